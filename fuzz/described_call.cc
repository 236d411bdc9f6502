#include "fuzz/described_call.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <set>
#include <stdexcept>

#include "fuzz/fuzzed_case.h"
#include "impl/validated_entry_points.h"
#include "properties/case/derived.h"

namespace attncheck::fuzz {
namespace {

using Int = std::int64_t;
using properties::Call;
using properties::Description;
using properties::Tensor;

constexpr Int kMostStored = 1 << 9;  ///< beyond it a list is one number, all strides 0
constexpr std::size_t kMostEdited = 1 << 16;
constexpr double kReals[] = {0,
                             -1,
                             0.5,
                             1,
                             1.5,
                             5e-324,
                             1e-50,
                             1 - 1e-12,
                             1 + 1e-12,
                             0x1.ffffffp127,
                             0x1.fffffefffffffp127,
                             -1e300,
                             std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN()};

/// A legal call, and what its changes are drawn from.
struct Base {
    properties::Spec spec;
    Call call;
    properties::EditGroups edits;  ///< those that validation tries
    std::vector<Int> limits;       ///< ends of the ranges of fields, lists and arguments, and beyond
    Int most_backed = 64;     ///< values that an array may need
};

std::vector<Int> limits_of(const Description& d) {
    constexpr Int kEnd32 = Int{1} << 32;  // where narrower types end
    std::set<Int> out{-1,         0,      1,          2, 3, 8, 16, kEnd32 / 2 - 1, kEnd32 / 2,
                      kEnd32 - 1, kEnd32, kEnd32 + 1, std::numeric_limits<Int>::max(),
                      std::numeric_limits<Int>::min()};
    const auto add = [&](Int value, Int step) {
        if (value > 0) out.insert({value - step, value, value + step, value + 1});
    };
    for (const auto& field : d.numbers) {
        add(field.min, field.step), add(field.max, field.step);
        out.insert(field.min - 1);
    }
    for (const auto& list : d.lists) add(list.max, 1), add(list.max_size, 1);
    for (const auto& field : d.integers) add(field.largest, 1);
    return {out.begin(), out.end()};
}

bool is_read(const properties::TensorField& tensor) {
    return tensor.role == properties::Role::list && !tensor.output;
}

Base make_base(std::string_view family, std::uint64_t number) {
    properties::Random random(properties::mix(number));
    const auto profile =
        random.chance(25) ? properties::Profile::ascend950 : properties::Profile::ascend910b;
    properties::Spec spec = sampled_case(family, random, profile);
    const Description& d = *spec.schema;
    const properties::Operator* op = properties::find_operator(d.op);
    const bool reads = std::ranges::any_of(d.tensors, is_read);
    Base base{spec, reads ? op->build(spec) : op->outline(spec),
              op->property("validation")->edits(spec), limits_of(d)};
    for (std::size_t i = 0; i < d.tensors.size(); ++i)
        if (!is_read(d.tensors[i])) base.call.tensors[i].bits.clear();
    for (const auto& list : d.lists) base.most_backed = std::max(base.most_backed, list.max_size + 64);
    return base;
}

/// Made once each: a draw takes longer than all that is asked about a call.
const Base& base_of(std::string_view family, const CallBytes& bytes) {
    static std::map<std::string, std::map<std::uint64_t, Base>, std::less<>> all;
    constexpr std::uint64_t kBases = 1024;
    std::uint64_t number = 0;
    for (std::size_t i = 0; i < std::min<std::size_t>(bytes.head.size(), 2); ++i)
        number += std::uint64_t{bytes.head[i]} << (8 * i);
    auto& bases = all.try_emplace(std::string(family)).first->second;
    const auto at = bases.find(number % kBases);
    if (at != bases.end()) return at->second;
    return bases.emplace(number % kBases, make_base(family, number % kBases)).first->second;
}

/// The environment is slow to change: only where it differs.
void choose_profile(properties::Profile profile) {
    static std::optional<properties::Profile> chosen;
    if (chosen == profile) return;
    chosen = profile;
    setenv("ATTNCHECK_PROFILE", std::string(name_of(profile)).c_str(), 1);
}

enum class What {
    edit, extent, integer, length, rank, dtype, stride, presence, shape, size, longer, real, text,
    element, count
};

What what_of(const Change& change) {
    return static_cast<What>(change.what % static_cast<int>(What::count));
}

class DescribedCall : public FuzzedCall {
public:
    DescribedCall(std::string_view family, const CallBytes& bytes)
        : base_(base_of(family, bytes)),
          call_(edited(bytes.changes)),
          entry_(*std::ranges::find(impl::entry_points(), std::string_view(call_.op),
                                    &impl::EntryPoint::name)) {
        forward_ = !call_.op.ends_with("_grad");
        unchanged_ = bytes.changes.empty();
        for (Tensor& t : call_.tensors) {
            t.shape.resize(ATTNCHECK_MAX_RANK);
            t.strides.resize(ATTNCHECK_MAX_RANK);
        }
        for (const Change& change : bytes.changes) spoil(change);
        lay_out();
        choose_profile(call_.profile);
    }

    std::optional<ref::Ruling> ruling() const override {
        try {
            return properties::rule(call_);
        } catch (const std::logic_error&) {  // every rule but that of the list's elements holds
            if (!has_long_list_) throw;
            return std::nullopt;
        }
    }
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

    /// The blocks of the legal call; of another shape: block 0.
    static void give_list(const Tensor& from, Tensor& to) {
        if (to.elements() > kMostEdited) throw std::invalid_argument("too long a list");
        to.bits = to.buffer_shape == from.buffer_shape ? from.bits
                                                       : std::vector<std::uint32_t>(to.elements());
    }

    /// The call with the edits among the changes, as far as they can be made together.
    Call edited(const std::vector<Change>& changes) const {
        Call call = base_.call;
        properties::Spec spec = base_.spec;
        for (const Change& change : changes) {
            if (what_of(change) != What::edit) continue;
            const auto& group =
                base_.edits[(change.which + 256u * change.kind) % base_.edits.size()];
            spec.edits.push_back(group[change.argument % group.size()]);
            try {
                call = properties::build_of(spec, [this](const properties::Spec&, Call& made) {
                    for (std::size_t i = 0; i < made.tensors.size(); ++i)
                        if (is_read(made.description->tensors[i]))
                            give_list(base_.call.tensors[i], made.tensors[i]);
                });
            } catch (const std::invalid_argument&) {  // names what another edit took away
                spec.edits.pop_back();
            }
        }
        return call;
    }

    /// A whole shape out of the extents of the call.
    void redraw_shape(const Change& change, Tensor& tensor) const {
        std::vector<Int> extents{0, 1};
        for (const Tensor& other : base_.call.tensors)
            extents.insert(extents.end(), other.shape.begin(), other.shape.end());
        tensor.rank = change.argument % (ATTNCHECK_MAX_RANK + 2);
        for (std::size_t axis = 0; axis < ATTNCHECK_MAX_RANK; ++axis)
            tensor.shape[axis] = extents[(change.number >> (8 * axis) & 255) % extents.size()];
        if (change.kind % 2) tensor.present = true;
    }

    void spoil_array(const Change& change, properties::HostArray& array) const {
        if (what_of(change) == What::longer) {
            array.values.push_back(array.values.empty() ? 0 : array.values.back());
            array.size = std::ssize(array.values);
        } else if (what_of(change) == What::length) {
            if (array.values.empty()) array.values.push_back(0);
            apply(change, array.values[change.which % array.values.size()], base_.limits);
        } else if (change.which % 4 == 0) {
            array.present = !array.present;
        } else {
            apply(change, array.size, base_.limits);
        }
    }

    void spoil_tensor(const Change& change, Tensor& tensor, std::size_t dim) const {
        switch (what_of(change)) {
            case What::extent:
                return apply(change, tensor.shape[dim], base_.limits);
            case What::rank:
                return apply(change, tensor.rank, kRanks);
            case What::dtype:
                return apply(change, tensor.dtype, kDtypes);
            case What::stride:
                return apply(change, tensor.strides[dim], {});
            case What::shape:
                return redraw_shape(change, tensor);
            case What::element:
                if (is_read(call_.description->tensors[static_cast<std::size_t>(
                        &tensor - call_.tensors.data())]) &&
                    !tensor.bits.empty())
                    apply(change, tensor.bits[change.which % tensor.bits.size()], base_.limits);
                return;
            default:
                tensor.present = !tensor.present;
        }
    }

    void spoil(const Change& change) {
        const std::uint8_t which = change.which;
        switch (what_of(change)) {
            case What::edit:
                return;
            case What::length:
            case What::size:
            case What::longer:
                if (auto* array = chosen(call_.arrays, which / 4)) spoil_array(change, *array);
                return;
            case What::integer:
                if (auto* number = chosen(call_.numbers, which))
                    apply(change, number->value, base_.limits);
                return;
            case What::real:
                if (auto* real = chosen(call_.reals, which))
                    real->value = kReals[change.argument % std::size(kReals)];
                return;
            case What::text:
                if (auto* text = chosen(call_.texts, which)) {
                    const char* drawn = draw_layout(0, change.argument);
                    text->value = drawn ? std::optional<std::string>(drawn) : std::nullopt;
                }
                return;
            default: {
                const std::size_t dim = which / call_.tensors.size() % ATTNCHECK_MAX_RANK;
                return spoil_tensor(change, *chosen(call_.tensors, which), dim);
            }
        }
    }

    /// A list in memory: exactly what its shape and strides span, elsewhere numbers that no sequence
    /// has. One of another rank, of no or of too many elements is a single 0.
    attncheck_tensor stored(Tensor& list, const attncheck_tensor& passed) {
        attncheck_tensor tensor = passed;
        std::fill_n(tensor.strides, ATTNCHECK_MAX_RANK, 0);
        double count = list.rank == std::ssize(list.buffer_shape);
        for (const Int extent : list.shape) count *= extent < 0 ? 0 : static_cast<double>(extent);
        std::vector<std::int32_t>& memory = stored_.emplace_back(1, 0);
        has_long_list_ = has_long_list_ || count > kMostStored;
        if (count < 1 || count > kMostStored) {
            list.bits.clear();
            tensor.data = memory.data();
            return tensor;
        }
        auto strides = properties::strides_for(
            base_.spec.layouts[static_cast<std::size_t>(&list - call_.tensors.data())], list.shape);
        if (properties::extent_of(list.shape, strides).count() > 8 * kMostStored)  // far apart
            strides = properties::strides_for(properties::Layout::dense, list.shape);
        const properties::Extent span = properties::extent_of(list.shape, strides);
        const std::vector<Int> offsets = properties::offsets_of(list.shape, strides);
        memory.assign(static_cast<std::size_t>(span.count()), -9);
        std::vector<std::uint32_t> bits(offsets.size());
        for (std::size_t k = 0; k < offsets.size(); ++k) {
            const auto at = properties::coordinates(static_cast<Int>(k), list.shape);
            Int from = 0;
            for (std::size_t dim = 0; dim < at.size() && from >= 0; ++dim)
                from = at[dim] < list.buffer_shape[dim] ? from * list.buffer_shape[dim] + at[dim] : -1;
            if (from >= 0 && from < std::ssize(list.bits))
                bits[k] = list.bits[static_cast<std::size_t>(from)];
        }
        for (std::size_t k = 0; k < offsets.size(); ++k)  // elements may be one in memory
            memory[static_cast<std::size_t>(offsets[k] - span.lowest)] =
                static_cast<std::int32_t>(bits[k]);
        for (std::size_t k = 0; k < offsets.size(); ++k)
            bits[k] = static_cast<std::uint32_t>(
                memory[static_cast<std::size_t>(offsets[k] - span.lowest)]);
        list.bits = std::move(bits), list.buffer_shape = list.shape;
        std::copy(strides.begin(), strides.end(), tensor.strides);
        tensor.data = memory.data() - span.lowest;
        return tensor;
    }

    /// The C struct. Tensors but lists have no memory, arrays as much as their size says.
    void lay_out() {
        for (std::size_t i = 0; i < call_.tensors.size(); ++i) {
            Tensor& t = call_.tensors[i];
            attncheck_tensor tensor{t.present ? no_memory() : nullptr, t.dtype, t.rank, {}, {}};
            std::copy_n(t.shape.begin(), ATTNCHECK_MAX_RANK, tensor.shape);
            std::copy_n(t.strides.begin(), ATTNCHECK_MAX_RANK, tensor.strides);
            t.shape.resize(static_cast<std::size_t>(std::clamp(t.rank, 0, ATTNCHECK_MAX_RANK)));
            const bool in_memory = t.present && is_read(call_.description->tensors[i]);
            tensors_.push_back(in_memory ? stored(t, tensor) : tensor);
        }
        for (properties::HostArray& a : call_.arrays) {
            attncheck_int_array array{a.present ? &kSomeValue : nullptr, a.size};
            back_array(array, a.values, std::numeric_limits<Int>::max(), base_.most_backed);
            a.size = array.size;
            arrays_.push_back(array);
        }
        for (std::size_t i = 0; i < call_.texts.size(); ++i)
            texts_.push_back(call_.texts[i].value
                                 ? text_before_guard(static_cast<int>(i), *call_.texts[i].value)
                                 : nullptr);
        bytes_ = properties::pack(call_, tensors_, arrays_, texts_);
    }

    static constexpr Int kSomeValue = -1;
    bool has_long_list_ = false;

    const Base& base_;
    Call call_;
    impl::EntryPoint entry_;
    std::vector<attncheck_tensor> tensors_;
    std::vector<attncheck_int_array> arrays_;
    std::vector<const char*> texts_;
    std::vector<std::vector<std::int32_t>> stored_;  ///< what lists point into
    std::vector<std::byte> bytes_;
};

}  // namespace

std::unique_ptr<FuzzedCall> described_call(std::string_view family, const CallBytes& bytes) {
    return std::make_unique<DescribedCall>(family, bytes);
}

}  // namespace attncheck::fuzz
