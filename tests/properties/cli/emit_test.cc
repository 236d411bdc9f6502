// Programs of operators whose equations no program has, as those of a new operator: what is expected stands in them as numbers.
#include <gmock/gmock.h>

#include "properties/cli/emitted_case.h"
#include "properties/cli/emitted_text.h"
#include "properties/operators/attention_merge/problem.h"

namespace attncheck::properties {
namespace {

/// Merges under another name.
const Operator& unknown_operator() {
    static const Description description = [] {
        Description copy = merge_description();
        copy.op = "unknown";
        return copy;
    }();
    static const auto op = make_operator(
        {.schema = description,
         .properties = {},
         .required = {},
         .labels = [](const Spec&) { return std::vector<std::string>{}; },
         .draw = [](const Schema& schema, Random&, int, Profile) { return Spec(schema); },
         .expected = [](const Spec& spec, const ref::RoundingClass& rounding) {
             const MergeProblem problem(spec);
             return outputs_of(problem.expected(rounding), problem.gives_lse);
         }});
    return *op;
}

TEST(EmittedProgram, OfAnUnknownOperatorHasTheValues) {
    const Operator& op = unknown_operator();
    Spec spec(op.schema());
    for (const char* field : {"parts", "rows", "heads", "dim"}) spec.set(field, 1);
    spec.recipe = Recipe::ones;
    const EmittedCase made = emitted_case(op, spec);
    const std::string c = emitted_c(made), python = emitted_python(made, false);
    EXPECT_THAT(c, testing::HasSubstr("out_want[1] = {1}"));
    EXPECT_THAT(c, testing::Not(testing::HasSubstr("exp(lses")));
    EXPECT_THAT(python, testing::HasSubstr("DATA[\"want\"]"));
    EXPECT_THAT(python, testing::Not(testing::HasSubstr("np.exp")));
}

}  // namespace
}  // namespace attncheck::properties
