#include "fuzz/described_call.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "fuzz/fuzzed_case.h"
#include "impl/validated_entry_points.h"
#include "properties/case/derived.h"

namespace attncheck::fuzz {
namespace {

using properties::Call;

constexpr std::int64_t kLimits[] = {0,  1,  2,  3,   8,   15,  16,  17,  63,  64,  65,
                                    80, 127, 128, 129, 256, 257, 512, 513, 1024, -1};
constexpr std::int64_t kMostBacked = 64;
constexpr double kReals[] = {0,
                             -1,
                             5e-324,
                             0x1.ffffffp127,
                             -1e300,
                             std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN()};

/// A small legal case that the bytes stand for.
properties::Spec case_of(std::string_view family, const CallBytes& bytes) {
    std::uint64_t seed = 0;
    for (const std::uint8_t byte : bytes.head) seed = properties::mix(seed + byte);
    properties::Random random(seed);
    return sampled_case(family, random);
}

class DescribedCall : public FuzzedCall {
public:
    DescribedCall(std::string_view family, const CallBytes& bytes)
        : call_(properties::find_operator(case_of(family, bytes).schema->op)
                    ->outline(case_of(family, bytes))),
          entry_(*std::ranges::find(impl::entry_points(), std::string_view(call_.op),
                                    &impl::EntryPoint::name)) {
        forward_ = !call_.op.ends_with("_grad");
        unchanged_ = bytes.changes.empty();
        for (properties::Tensor& t : call_.tensors) {
            t.shape.resize(ATTNCHECK_MAX_RANK);
            t.strides.resize(ATTNCHECK_MAX_RANK);
        }
        for (const Change& change : bytes.changes) spoil(change);
        lay_out();
    }

    std::optional<ref::Ruling> ruling() const override { return properties::rule(call_); }
    impl::MaybeRejection rejection() const override { return entry_.validate(bytes_.data()); }
    int enter() const override { return entry_.enter(bytes_.data()); }
    ArgumentList arguments() const override {
        ArgumentList all;
        all.tensors = tensors_;
        all.arrays = arrays_;
        for (const properties::Number& number : call_.numbers) all.integers.push_back(number.value);
        for (const properties::Real& real : call_.reals) all.reals.push_back(real.value);
        all.texts = texts_;
        return all;
    }

private:
    /// An element of a list that the operator may lack.
    template <class Items>
    static auto* chosen(Items& items, std::uint8_t which) {
        return items.empty() ? nullptr : &items[which % items.size()];
    }

    void spoil(const Change& change) {
        const std::uint8_t which = change.which;
        auto* const tensor = chosen(call_.tensors, which);
        const std::size_t dim = which / std::max<std::size_t>(call_.tensors.size(), 1);
        auto* const array = chosen(call_.arrays, which);
        switch (change.what % 11) {
            case 0:
            case 1:
                if (tensor) apply(change, tensor->shape[dim % ATTNCHECK_MAX_RANK], kLimits);
                return;
            case 2:
                if (tensor) apply(change, tensor->rank, kRanks);
                return;
            case 3:
                if (tensor) apply(change, tensor->dtype, kDtypes);
                return;
            case 4:
                if (tensor) apply(change, tensor->strides[dim % ATTNCHECK_MAX_RANK], {});
                return;
            case 5:
                if (tensor) tensor->present = !tensor->present;
                return;
            case 6:
                if (array && !array->values.empty())
                    apply(change, array->values[which % array->values.size()], kLimits);
                return;
            case 7:
                if (array && which % 4 == 0) array->present = false;
                if (array && which % 4 != 0) apply(change, array->size, kLimits);
                return;
            case 8:
                if (auto* number = chosen(call_.numbers, which))
                    apply(change, number->value, kLimits);
                return;
            case 9:
                if (auto* real = chosen(call_.reals, which))
                    real->value = kReals[change.argument % std::size(kReals)];
                return;
            default:
                if (auto* text = chosen(call_.texts, which)) {
                    const char* drawn = draw_layout(0, change.argument);
                    text->value = drawn ? std::optional<std::string>(drawn) : std::nullopt;
                }
        }
    }

    /// The C struct. Tensors have no memory, arrays as much as their size says.
    void lay_out() {
        for (properties::Tensor& t : call_.tensors) {
            attncheck_tensor tensor{t.present ? no_memory() : nullptr, t.dtype, t.rank, {}, {}};
            std::copy_n(t.shape.begin(), ATTNCHECK_MAX_RANK, tensor.shape);
            std::copy_n(t.strides.begin(), ATTNCHECK_MAX_RANK, tensor.strides);
            tensors_.push_back(tensor);
            t.shape.resize(static_cast<std::size_t>(std::clamp(t.rank, 0, ATTNCHECK_MAX_RANK)));
        }
        for (properties::HostArray& a : call_.arrays) {
            attncheck_int_array array{a.present ? &kSomeValue : nullptr, a.size};
            back_array(array, a.values, std::numeric_limits<std::int64_t>::max(), kMostBacked);
            a.size = array.size;
            arrays_.push_back(array);
        }
        for (std::size_t i = 0; i < call_.texts.size(); ++i)
            texts_.push_back(call_.texts[i].value
                                 ? text_before_guard(static_cast<int>(i), *call_.texts[i].value)
                                 : nullptr);
        bytes_ = properties::pack(call_, tensors_, arrays_, texts_);
    }

    static constexpr std::int64_t kSomeValue = -1;

    Call call_;
    impl::EntryPoint entry_;
    std::vector<attncheck_tensor> tensors_;
    std::vector<attncheck_int_array> arrays_;
    std::vector<const char*> texts_;
    std::vector<std::byte> bytes_;
};

}  // namespace

std::unique_ptr<FuzzedCall> described_call(std::string_view family, const CallBytes& bytes) {
    return std::make_unique<DescribedCall>(family, bytes);
}

}  // namespace attncheck::fuzz
