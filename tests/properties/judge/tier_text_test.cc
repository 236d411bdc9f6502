// What a large error of the second tier is said to be.
#include "properties/judge/tier_text.h"

#include <gmock/gmock.h>

#include <cmath>

#include "properties/case/random.h"

namespace attncheck::properties {
namespace {

using testing::HasSubstr;

/// Rows of one head whose only rounding is that of their storage.
TierTensor stored(ref::Dtype type) {
    constexpr std::size_t kRows = 400, kWidth = 16;
    TierTensor tensor;
    tensor.name = "out";
    tensor.role = Role::output;
    tensor.row_word = "query";
    tensor.width = kWidth;
    tensor.dtype = type;
    for (std::size_t row = 0; row < kRows; ++row)
        tensor.places.push_back({0, static_cast<std::int64_t>(row), static_cast<std::int64_t>(kRows)});
    tensor.noise = ref::RoundingNoise(kRows * kWidth);
    Random random(7);
    for (std::size_t i = 0; i < tensor.noise.size(); ++i) {
        tensor.noise.value[i] = static_cast<double>(random.between(-(1 << 20), 1 << 20)) * 0x1p-20;
        const double half = ref::half_ulp(type, std::fabs(tensor.noise.value[i]));
        tensor.noise.variance[i] = half * half / 3;
    }
    return tensor;
}

double toward_zero(ref::Dtype type, double value) {
    const double nearest = ref::decode(type, ref::encode(type, value)), unit = 2 * ref::half_ulp(type, std::fabs(value));
    return std::fabs(nearest) > std::fabs(value) ? nearest - std::copysign(unit, value) : nearest;
}

TEST(LikelyCause, ResultsThatAreCutToTheirType) {
    for (const ref::Dtype type : {ref::Dtype::fp16, ref::Dtype::bf16}) {
        TierTensor tensor = stored(type);
        for (const double value : tensor.noise.value) tensor.got.push_back(toward_zero(type, value));
        EXPECT_THAT(likely_cause(tensor, {}, 2, false), HasSubstr("stored rounded toward zero, not to nearest, which explains"));
        EXPECT_THAT(judge_tiers({tensor}, {}, [](const auto&, const auto&) { return std::vector<TierTensor>{}; }).message,
                    HasSubstr("stored rounded toward zero"));
        // Beside a cast of P that is as large and was not made.
        for (double& variance : tensor.noise.variance) variance *= 2;
        EXPECT_THAT(judge_tiers({tensor}, {}, [](const auto&, const auto&) { return std::vector<TierTensor>{}; }).message,
                    HasSubstr("stored rounded toward zero"));
    }
}

// P that is cut before its product makes every sum smaller by 0.72 u.
TEST(WordsOfDefect, GainsOfACutAreNamed) {
    const auto message_of = [](double gain) {
        TierTensor tensor = stored(ref::Dtype::bf16);
        tensor.noise.probes.push_back({ref::Defect::gain, 0, tensor.noise.value});
        for (std::size_t i = 0; i < tensor.noise.size(); ++i) {
            tensor.noise.variance[i] = 0x1p-24;
            tensor.got.push_back(tensor.noise.value[i] * (1 + gain));
        }
        return judge_tiers({tensor}, {}, [](const auto&, const auto&) { return std::vector<TierTensor>{}; }).message;
    };
    EXPECT_THAT(message_of(-0.0028), HasSubstr("gain -0.28 % (cut, not rounded?)"));
    EXPECT_THAT(message_of(-0.005), AllOf(HasSubstr("gain -0.5 %"), Not(HasSubstr("cut"))));
    EXPECT_THAT(message_of(0.0028), AllOf(HasSubstr("gain +0.28 %"), Not(HasSubstr("cut"))));
}

// Errors as large without the direction.
TEST(LikelyCause, OtherErrorsAreNotSaidToBeCut) {
    TierTensor tensor = stored(ref::Dtype::bf16);
    for (const double value : tensor.noise.value)
        tensor.got.push_back(2 * value - toward_zero(ref::Dtype::bf16, value));  // away from zero
    EXPECT_EQ(likely_cause(tensor, {}, 2, false), "");
}

// A class of rounding rounds in all rows: what one row has alone is a defect, however well the size would fit.
TEST(LessPrecise, IsNothingThatOneRowHas) {
    const TierTensor plain = stored(ref::Dtype::bf16);
    const NoiseOf coarse = [&](const ref::RoundingClass&, const WantedRows&) {
        TierTensor other = plain;
        for (double& variance : other.noise.variance) variance *= 30 * 30;
        return std::vector<TierTensor>{std::move(other)};
    };
    for (const bool all_rows : {true, false}) {
        TierTensor tensor = plain;
        for (std::size_t i = 0; i < tensor.noise.size(); ++i) {
            const bool errs = all_rows || i / 16 == 7;
            tensor.got.push_back(tensor.noise.value[i] + (errs ? 25 * std::sqrt(tensor.noise.variance[i]) * (i % 2 == 0 ? 1 : -1) : 0));
        }
        EXPECT_EQ(judge_tiers({tensor}, {}, coarse).failure, all_rows ? "out is less precise than declared" : "out deviates");
    }
}

}  // namespace
}  // namespace attncheck::properties
