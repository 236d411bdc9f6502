// The values that hypotheses are compared by, against those that come with what rounding predicts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "properties/judge/attention_tiers.h"
#include "properties/laws/attention_operator.h"
#include "properties/operators/attention/case.h"
#include "properties/operators/flash_attention/problem.h"
#include "properties/operators/nsa_selected_attention/problem.h"
#include "tests/properties/case/case_line.h"

namespace attncheck::properties {
namespace {

struct Named {
    const char* op;
    const AttentionOperator& of;
};

class ValueTensors : public testing::TestWithParam<Named> {};

TEST_P(ValueTensors, AreThoseOfTheTiers) {
    const Operator& op = *find_operator(GetParam().op);
    std::map<std::string, int> compared;
    for (std::uint64_t number = 0; number < 120; ++number) {
        Spec spec = sampled(op, number);
        spec.recipe = Recipe::normal;
        spec.overrides.clear();
        if (op.illegal(spec)) continue;
        const AttentionProblem problem = GetParam().of.problem(spec);
        if (problem.query_rows() * problem.key_rows() > 40'000) continue;
        const auto tiers = tier_tensors(problem, {});
        for (const TierTensor& values : value_tensors(problem)) {
            const auto same = std::ranges::find(tiers, values.name, &TierTensor::name);
            if (same == tiers.end()) continue;
            ASSERT_EQ(values.noise.size(), same->noise.size()) << print(spec);
            EXPECT_EQ(values.role, same->role);
            EXPECT_EQ(std::string(values.row_word), same->row_word);
            ++compared[values.name];
            for (std::size_t k = 0; k < values.noise.size(); ++k) {
                const double expected = same->noise.value[k];
                if (!std::isfinite(expected)) continue;
                if (values.noise.value[k] == -HUGE_VAL) {  // of an empty row nothing is predicted
                    ASSERT_EQ(same->noise.variance[k], 0) << values.name << ' ' << print(spec);
                    continue;
                }
                ASSERT_NEAR(values.noise.value[k], expected, 1e-9 * (1 + std::fabs(expected)))
                    << values.name << ' ' << k << ' ' << print(spec);
            }
        }
    }
    EXPECT_GE(compared.size(), 2U);
    for (const auto& [name, times] : compared) EXPECT_GE(times, 10) << name;
}

INSTANTIATE_TEST_SUITE_P(
    Operators, ValueTensors,
    testing::Values(Named{"attention", neutral_operator()}, Named{"attention_grad", neutral_operator()},
                    Named{"flash_attention_score", flash_attention_operator()},
                    Named{"flash_attention_score_grad", flash_attention_operator()},
                    Named{"nsa_selected_attention", selected_attention_operator()},
                    Named{"nsa_selected_attention_grad", selected_attention_operator()}),
    [](const auto& of) { return std::string(of.param.op); });

}  // namespace
}  // namespace attncheck::properties
