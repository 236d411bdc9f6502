// The composition in half precision against numbers worked out by hand.
#include "properties/judge/half_composition.h"

#include <gtest/gtest.h>

#include <cmath>

#include "properties/operators/nsa_compress/case.h"
#include "tests/properties/case/case_line.h"

namespace attncheck::properties {
namespace {

/// One query, two keys, one head; probabilities are 1 / (1 + e^-1) and the rest.
AttentionProblem two_keys() {
    AttentionProblem problem;
    problem.shape.query_rows = 1;
    problem.shape.kv_rows = 2;
    problem.shape.query_heads = problem.shape.kv_heads = 1;
    problem.shape.head_dim = problem.shape.value_dim = 1;
    problem.columns = [](std::int64_t, std::int64_t, std::vector<ref::KeyColumn>& columns) {
        columns = {{0}, {1}};
        return true;
    };
    constexpr std::uint32_t kOne = 0x3c00;  // fp16
    problem.query = {kOne};
    problem.key = {kOne, 0};
    problem.value = {kOne, 0};
    return problem;
}

// P = 0.7310585786 lies between the halves 0.73095703125 and 0.7314453125.
TEST(HalfComposition, LosesWhatItStores) {
    const CompositionErrors errors = half_composition_errors(two_keys());
    ASSERT_EQ(errors.size(), 1u);
    EXPECT_NEAR(errors.at("attention_out"), 0.7310585786 - 0.73095703125, 1e-9);
}

// dP = (1, 0), delta = P, dS = P (1 - P) = 0.1966119332 from the stored P: 0.19665... stored as
// 0.196655273; dQ = dS, dK = (dS, -dS), dV = P.
TEST(HalfComposition, GradientKeepsItsOwnProbabilities) {
    AttentionProblem problem = two_keys();
    problem.gradient = true;
    problem.output_grad = problem.query;
    const CompositionErrors errors = half_composition_errors(problem);
    EXPECT_EQ(errors.size(), 3u);
    EXPECT_NEAR(errors.at("dq"), 0.196655273438 - 0.196611933241, 1e-9);
    EXPECT_NEAR(errors.at("dk"), 0.196655273438 - 0.196611933241, 1e-9);
    EXPECT_NEAR(errors.at("dv"), 0.7310585786 - 0.73095703125, 1e-7);
}

// 0.1 * 0.1 twice, in halves: the products are stored before they are added up.
TEST(HalfComposition, CompressionStoresProducts) {
    const Spec spec = spec_of(
        "nsa_compress{dtype=fp16 seq=[16] heads=1 dim=16 block=16 stride=16 data=zeros seed=0 "
        "set=[input[0,0,0]=0.0999755859375,input[1,0,0]=0.0999755859375,"
        "weight[0,0]=0.0999755859375,weight[1,0]=0.0999755859375]}");
    const double product = 0.0999755859375 * 0.0999755859375,
                 stored = ref::decode(ref::Dtype::fp16, ref::encode(ref::Dtype::fp16, product));
    ASSERT_NE(product, stored);
    const CompressProblem problem(spec);
    const CompositionErrors errors = half_composition_errors(
        problem.shape, problem.dtype, problem.values(kCmpInput), problem.values(kCmpWeight));
    EXPECT_NEAR(errors.at("output"), 2 * std::abs(product - stored), 1e-15);
}

}  // namespace
}  // namespace attncheck::properties
