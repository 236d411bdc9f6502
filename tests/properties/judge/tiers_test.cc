// Tiers on tensors made by hand, whose noise is at the end of what a double holds.
#include "properties/judge/tiers.h"

#include <gtest/gtest.h>

#include <limits>

namespace attncheck::properties {
namespace {

constexpr std::int64_t kRows = 4096;

/// Every row errs by half a deviation in the direction of a gain: far from any limit by itself, a gain if taken together.
TierTensor with_a_gain() {
    TierTensor tensor;
    tensor.name = "dk", tensor.row_word = "key";
    tensor.noise = ref::RoundingNoise(kRows);
    tensor.noise.probes.push_back({ref::Defect::gain, 0, {}});
    for (std::int64_t k = 0; k < kRows; ++k) {
        const double value = 1 + static_cast<double>(k) * 0x1p-30;
        tensor.places.push_back({0, k, kRows});
        tensor.noise.value[static_cast<std::size_t>(k)] = value;
        tensor.noise.variance[static_cast<std::size_t>(k)] = 1;
        tensor.noise.probes[0].direction.push_back(value);
        tensor.got.push_back(1.5 * value);
    }
    return tensor;
}

Verdict judged(const TierTensor& tensor) {
    return judge_tiers({tensor}, {}, [](const ref::RoundingClass&, const WantedRows&) { return std::vector<TierTensor>{}; },
                       nullptr);
}

TEST(Tiers, GainOfHalfADeviationIsSeen) {
    const Verdict verdict = judged(with_a_gain());
    EXPECT_TRUE(verdict.failed());
    EXPECT_NE(verdict.message.find("gain"), std::string::npos) << verdict.message;
}

// As with statistics of 1e30, whose last place is larger than any logit: 0 times infinity.
TEST(Tiers, SharedErrorsWithoutAFiniteVarianceAreNoFinding) {
    TierTensor tensor = with_a_gain();
    ref::SharedErrors errors;
    errors.places = {0, 1};
    errors.share = {0, 1};
    errors.factor = {std::numeric_limits<double>::infinity()};
    tensor.noise.shared.push_back(errors);
    EXPECT_FALSE(judged(tensor).failed()) << judged(tensor).message;
}

TEST(Tiers, TruncatedPartsWithoutAFiniteVarianceAreNoFinding) {
    TierTensor tensor = with_a_gain();
    tensor.noise.probes.clear();
    tensor.noise.truncated.assign(kRows, 0.0);
    tensor.noise.variance[7] = tensor.noise.truncated[7] = std::numeric_limits<double>::infinity();
    EXPECT_FALSE(judged(tensor).failed()) << judged(tensor).message;
}

// What the errors look like is the sum of many elements: one that nothing is known of says nothing.
TEST(Tiers, ElementsWithoutAFiniteVarianceAreNoEvidence) {
    TierTensor tensor = with_a_gain();
    tensor.noise.probes.clear();
    tensor.got = tensor.noise.value;
    tensor.cast = "p";
    tensor.noise.cast.assign(kRows, 0.5);
    tensor.noise.rest.assign(kRows, 0.5);
    tensor.noise.rest[7] = tensor.noise.variance[7] = std::numeric_limits<double>::infinity();
    const Verdict verdict = judged(tensor);
    ASSERT_EQ(verdict.casts.size(), 1u);
    EXPECT_LT(verdict.casts[0].found, 0.1 * verdict.casts[0].expected);
}

}  // namespace
}  // namespace attncheck::properties
