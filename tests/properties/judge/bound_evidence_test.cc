// Errors against bounds other than the declared one: the probabilistic bound, and narrower classes.
#include "properties/judge/bound_evidence.h"

#include <gmock/gmock.h>

#include <cmath>

#include "properties/laws/attention_run.h"
#include "properties/operators/catalogue.h"
#include "ref/bounds/probabilistic.h"

namespace attncheck::properties {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// Outputs whose error is this part of what a class allows; the rounding of the type comes to it.
CallResult result_with(const CaseProblem& problem, const ref::RoundingClass& rounding, double part) {
    CallResult result;
    result.outputs.resize(problem.call.tensors.size());
    for (const auto& [name, values] : problem.expected(rounding)) {
        const Tensor& tensor = problem.call.tensor(name);
        auto& bits = result.outputs[tensor_index(problem.call, name)];
        for (std::size_t k = 0; k < values.size(); ++k) {
            const double error = std::isfinite(values.bound[k]) ? part * values.bound[k] : 0;
            bits.push_back(ref::encode(tensor.type(), values.value[k] + error));
        }
    }
    return result;
}

std::string said(const char* declared_text, const char* seen_text, double part) {
    const Operator& op = *find_operator("flash_attention_score");
    const Spec spec = parse(
        "flash_attention_score{dtype=fp32 q=[3] kv=[40] layout=BSND kv_heads=1 group=1 dim=16 "
        "value_dim=16 data=normal seed=5}", {&op.schema()});
    const CaseProblem problem = attention_case(*op.attention(), spec, ref::Grant::rounding);
    const ref::RoundingClass declared = ref::parse_rounding_class(declared_text);
    const CallResult result =
        result_with(problem, ref::parse_rounding_class(seen_text), part);
    return narrower_words(declared, bound_evidence(0.1, problem.call, result, declared,
                                                   problem.expected));
}

// Errors of exp=6 under exp=400: about 6 is said. Errors of exp=400: nothing is.
TEST(BoundEvidence, ExpIsEstimated) {
    const std::string text = said("acc=fp32 exp=400", "acc=fp32 exp=40", 0.9);
    EXPECT_THAT(text, HasSubstr("declared exp=400, errors look like exp <= "));
    const double needed = std::stod(text.substr(text.find("<= ") + 3));
    EXPECT_GT(needed, 20);
    EXPECT_LT(needed, 45);
    EXPECT_THAT(said("acc=fp32 exp=400", "acc=fp32 exp=400", 0.9), IsEmpty());
}

// A word without which errors still hold is named; one that they need is not.
TEST(BoundEvidence, WordsThatAreNotNeededAreNamed) {
    EXPECT_THAT(said("acc=fp32 in=bf16", "acc=fp32", 0.5),
                HasSubstr("declared in, errors stay within the bounds without it (1 case)"));
    EXPECT_THAT(said("acc=fp32 in=bf16", "acc=fp32 in=bf16", 0.5), Not(HasSubstr("declared in")));
    EXPECT_THAT(said("acc=fp32", "acc=fp32", 0.5), IsEmpty());
}

// gamma~ is never above gamma, grows with the square root, and ends with its scope.
TEST(BoundEvidence, ProbabilisticGammaIsSmallerForLongSums) {
    constexpr double kRoundoff = 0x1p-24;
    for (double terms = 1; terms < 1e6; terms *= 3)
        EXPECT_LE(ref::probabilistic_gamma(terms, kRoundoff), ref::gamma(terms, kRoundoff));
    EXPECT_NEAR(ref::probabilistic_gamma(65536, kRoundoff), 6 * 256 * kRoundoff, 0.1 * kRoundoff);
    const double rigorous = ref::gamma(65536, kRoundoff);
    {
        const ref::ProbabilisticGamma probabilistic;
        EXPECT_EQ(ref::gamma(65536, kRoundoff), ref::probabilistic_gamma(65536, kRoundoff));
    }
    EXPECT_EQ(ref::gamma(65536, kRoundoff), rigorous);
}

TEST(BoundEvidence, IsSaidBesideTheRigorousBound) {
    EXPECT_EQ(beside_rigorous({{"rigorous", 0.25, 3}, {"probabilistic", 0.75, 3}}),
              "bounds: worst error 0.25 of the rigorous bound, 0.75 of the probabilistic one (3 cases)\n");
    EXPECT_EQ(beside_rigorous({}), "");
}

}  // namespace
}  // namespace attncheck::properties
