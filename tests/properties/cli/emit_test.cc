// Programs of operators whose equations no program has, as those of a new operator: what is expected stands in them as numbers.
#include <gmock/gmock.h>

#include "properties/cli/emitted_case.h"
#include "properties/cli/emitted_text.h"
#include "properties/operators/attention_merge/problem.h"
#include "tests/properties/case/case_line.h"

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
    const EmittedCase made = emitted_case(op, spec, {});
    const std::string c = emitted_c(made), python = emitted_python(made, false);
    EXPECT_THAT(c, testing::HasSubstr("out_want[1] = {1}"));
    EXPECT_THAT(c, testing::Not(testing::HasSubstr("exp(lses")));
    EXPECT_THAT(python, testing::HasSubstr("DATA[\"want\"]"));
    EXPECT_THAT(python, testing::Not(testing::HasSubstr("np.exp")));
}

// A wider class has wider bounds, and both programs name it.
TEST(EmittedProgram, HasTheBoundsOfItsClass) {
    const Operator& op = *find_operator("attention");
    const Spec spec = spec_of("attention{dtype=fp32 q=[2] kv=[3] layout=bshd kv_heads=1 group=1 dim=8 value_dim=4 scale=rsqrt data=normal seed=1}");
    const EmittedCase narrow = emitted_case(op, spec, ref::parse_rounding_class("default")),
                      wide = emitted_case(op, spec, ref::parse_rounding_class("in=tf32"));
    EXPECT_GT(wide.bound_of("out")->at(0), narrow.bound_of("out")->at(0));
    for (const std::string& program : {emitted_c(wide), emitted_python(wide, false), emitted_python(wide, true)})
        EXPECT_THAT(program, testing::HasSubstr("bounds of the rounding class 'acc=fp32 p=half ds=half in=tf32'"));
}

}  // namespace
}  // namespace attncheck::properties
