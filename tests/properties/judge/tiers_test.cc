// Tiers on tensors made by hand, whose noise is at the end of what a double holds.
#include "properties/judge/tiers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "properties/case/random.h"

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
    // Of other roundings to half, which are as large, the variance is known from above alone.
    for (const char* words : {"p=kept", "split=half", "steps=half"})
        EXPECT_TRUE(judge_tiers({tensor}, ref::parse_rounding_class(words), [](const auto&, const auto&) { return std::vector<TierTensor>{}; })
                        .casts.empty())
            << words;
}

// All rows see the same two keys, and have nearly the same P. So all of them round nearly the same number.
TEST(Tiers, RowsWithOneRoundingAreNoFinding) {
    constexpr std::size_t kCrowd = 220, kAll = 400, kWidth = 4;
    const auto tensor_of = [](bool is_crowded) {
        TierTensor tensor;
        tensor.name = "out", tensor.row_word = "query", tensor.width = kWidth, tensor.dtype = ref::Dtype::bf16;
        tensor.noise = ref::RoundingNoise(kAll * kWidth);
        Random random(3);
        for (std::size_t i = 0; i < kAll * kWidth; ++i) {
            if (i % kWidth == 0) tensor.places.push_back({0, static_cast<std::int64_t>(i / kWidth), std::int64_t{kAll}});
            const double any = static_cast<double>(random.between(-(1 << 20), 1 << 20)) * 0x1p-20;
            const bool is_one = i % kWidth == 1 && i / kWidth < kCrowd;
            double& value = tensor.noise.value[i];
            value = !is_one ? any : 1 + 0x1p-8 + (is_crowded ? any * 0x1p-12 : (i / kWidth % 100) * 0x1p-7);
            const double half = ref::half_ulp(tensor.dtype, std::fabs(value));
            tensor.noise.variance[i] = half * half / 3;
            // An error of one and a half deviations in those rows, whatever the number.
            const double stored = ref::decode(tensor.dtype, ref::encode(tensor.dtype, value));
            tensor.got.push_back(is_one && !is_crowded ? value + std::copysign(1.65 * std::sqrt(tensor.noise.variance[i]), any) : stored);
        }
        return tensor;
    };
    EXPECT_FALSE(judged(tensor_of(true)).failed()) << judged(tensor_of(true)).message;
    EXPECT_TRUE(judged(tensor_of(false)).failed()) << "as large errors of different numbers";
}

}  // namespace
}  // namespace attncheck::properties
