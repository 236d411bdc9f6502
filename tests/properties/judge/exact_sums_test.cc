// Sums that are exact in any order: one wrong number is the bound's to report, which a relation is not.
#include "properties/judge/exact_sums.h"

#include <gtest/gtest.h>

#include "properties/laws/attention_operator.h"
#include "properties/operators/catalogue.h"

namespace attncheck::properties {
namespace {

TEST(ExactSums, AnotherNumberBreaksTheBound) {
    const Spec spec = parse(
        "attention{dtype=bf16 q=[1] kv=[2] layout=bshd kv_heads=1 group=1 dim=1 value_dim=1 data=ints seed=1}", schemas());
    const AttentionProblem problem = find_operator("attention")->attention()->problem(spec);
    EXPECT_FALSE(verdict_on_exact_sums(problem, "out", {0}, {0.5}, {0.5}, 2).failed());
    const Verdict wrong = verdict_on_exact_sums(problem, "out", {0}, {0.5}, {0.75}, 2);
    EXPECT_TRUE(wrong.failed());
    EXPECT_EQ(wrong.tier, Tier::bound);
}

}  // namespace
}  // namespace attncheck::properties
