// Three rulings on the same calls, each written apart: legality of a case (Operator::illegal), the
// documented predicate of ref/, and the validator of the built-in implementation. A rule that one
// of them has too many would hide cases from every run; one too few lets calls through that mean
// nothing. Calls with edited arguments are the concern of the property `validation`
// (properties_of_builtin_test) and of fuzz/validation_fuzz.cc.
#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "fuzz/fuzzed_call.h"
#include "impl/validated_entry_points.h"
#include "properties/case/derived.h"
#include "tests/properties/case/every_operator.h"

namespace attncheck::properties {
namespace {

/// ATTNCHECK_DRAWS in the environment asks for another number.
int draws() {
    const char* text = std::getenv("ATTNCHECK_DRAWS");
    return text ? std::atoi(text) : 1000;
}

/// The built-in implementation's entry point of this name.
const impl::EntryPoint& entry_of(const std::string& op) {
    return *std::ranges::find(impl::entry_points(), std::string_view(op), &impl::EntryPoint::name);
}

/// What the validator says. It may read the struct, texts, host arrays and 32-bit integers (lists
/// of blocks); all other tensors lie where touching them ends the program.
impl::MaybeRejection rejection_of(const Call& call) {
    std::vector<attncheck_tensor> tensors;
    for (const Tensor& tensor : call.tensors) {
        attncheck_tensor& out = tensors.emplace_back();
        if (!tensor.present) continue;
        const bool readable =
            tensor.dtype == ATTNCHECK_INT32 && !tensor.output && !tensor.bits.empty();
        out.data = readable ? const_cast<std::uint32_t*>(tensor.bits.data()) : fuzz::no_memory();
        out.dtype = tensor.dtype;
        out.rank = tensor.rank;
        std::ranges::copy(tensor.shape, out.shape);
        std::ranges::copy(strides_for(Layout::dense, tensor.shape), out.strides);
    }
    std::vector<attncheck_int_array> arrays;
    for (const HostArray& array : call.arrays)
        arrays.push_back({array.present ? array.values.data() : nullptr, array.size});
    std::vector<const char*> texts;
    for (const Text& text : call.texts) texts.push_back(text.value ? text.value->c_str() : nullptr);
    return entry_of(call.op).validate(pack(call, tensors, arrays, texts).data());
}

/// Those with an entry point: a composition's calls are its operators' calls.
std::vector<const Operator*> operators_with_entry_points() {
    auto all = every_operator();
    std::erase_if(all, [](const Operator* op) { return op->is_composition(); });
    return all;
}

/// A case as a run draws it: for one of the properties in turn, which may steer the generator.
std::optional<Spec> drawn(const Operator& op, std::uint64_t number) {
    const Property& property = op.properties()[number % op.properties().size()];
    Random random(number);
    Spec spec = op.sample(random, static_cast<int>(number % 101));
    if (property.adapt) property.adapt(spec, random);
    spec.edits.clear();
    return op.illegal(spec) ? std::nullopt : std::optional(std::move(spec));
}

class Legality : public OperatorTest {};

INSTANTIATE_TEST_SUITE_P(Operators, Legality, testing::ValuesIn(operators_with_entry_points()),
                         named_after_it);

// What the suite takes for legal is legal by the contract, and accepted by its implementation.
TEST_P(Legality, GeneratedCasesAreLegalForAll) {
    int legal = 0;
    for (int number = 0; number < draws(); ++number) {
        const std::optional<Spec> spec = drawn(op(), static_cast<std::uint64_t>(number));
        if (!spec) continue;
        ++legal;
        const Call call = op().build(*spec);
        const ref::Ruling ruling = rule(call);
        ASSERT_TRUE(ruling.accepted()) << ruling.message << "\n" << print(*spec);
        const impl::MaybeRejection rejection = rejection_of(call);
        ASSERT_FALSE(rejection) << rejection->message << "\n" << print(*spec);
    }
    EXPECT_GT(legal, draws() * 9 / 10);
}

}  // namespace
}  // namespace attncheck::properties
