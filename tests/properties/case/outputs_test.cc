// Optional outputs: in the case line, in calls and in the rules.
#include "properties/case/outputs.h"

#include <gmock/gmock.h>

#include <bit>
#include <stdexcept>

#include "properties/case/call.h"
#include "properties/case/derived.h"
#include "properties/operators/catalogue.h"

namespace attncheck::properties {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Spec flash_case(const std::string& outputs) {
    return parse(
        "flash_attention_score{dtype=fp16 q=[2] kv=[3] layout=BSND kv_heads=1 group=1 dim=8 "
        "value_dim=8 data=normal seed=1" + outputs + "}", schemas());
}

// The case line lists the outputs that are left; optional ones that it does not list are withheld.
TEST(Outputs, AreInTheCaseLine) {
    const Spec spec = flash_case(" outputs=attention_out");
    EXPECT_THAT(withheld_names(*spec.schema, spec.withheld),
                ElementsAre("softmax_max", "softmax_sum"));
    EXPECT_THAT(print(spec), HasSubstr(" outputs=attention_out}"));
    EXPECT_EQ(parse(print(spec), schemas()), spec);
    EXPECT_FALSE(spec == flash_case(""));
    EXPECT_THAT(print(flash_case("")), Not(HasSubstr("outputs")));
    EXPECT_EQ(flash_case(" outputs=softmax_max,softmax_sum").withheld, 0u);
    EXPECT_EQ(std::popcount(flash_case(" outputs=attention_out,softmax_max").withheld), 1);
}

TEST(Outputs, UnknownOnesAreNamed) {
    for (const char* word : {" outputs=lse", " outputs=", " outputs=query"})
        try {
            flash_case(word);
            ADD_FAILURE() << word;
        } catch (const std::invalid_argument& e) {
            EXPECT_THAT(e.what(), HasSubstr("of flash_attention_score, known: softmax_max "
                                            "softmax_sum attention_out"));
        }
}

// They are not handed over, and the rules do not object.
TEST(Outputs, AreAbsentInTheCall) {
    int operators_with_optional = 0;
    for (const auto& op : operators()) {
        if (op->is_composition()) continue;
        Random random(5);
        Spec spec = op->sample(random, 20);
        for (const TensorField& tensor : op->schema().tensors)
            if (tensor.optional) spec.withheld |= withheld_bit(op->schema(), tensor.name);
        if (spec.withheld == 0) continue;
        ++operators_with_optional;
        const Call call = op->build(spec);
        for (const std::string& name : withheld_names(op->schema(), spec.withheld))
            EXPECT_FALSE(call.tensor(name).present) << op->name() << " " << name;
        EXPECT_TRUE(rule(call).accepted()) << op->name() << ": " << rule(call).message;
    }
    EXPECT_GE(operators_with_optional, 3);
}

}  // namespace
}  // namespace attncheck::properties
