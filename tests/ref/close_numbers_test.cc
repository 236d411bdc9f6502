// Rounding errors that numbers share are counted as one error; those that differ are not.
#include "ref/attention/close_numbers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

namespace attncheck::ref {
namespace {

constexpr double kHalfStep = 0x1p-8;  ///< of bf16 from 1 to 2

/// What roundings of these numbers have in common: the variance of their sum.
double common_variance(const std::vector<double>& numbers) {
    RoundingNoise noise(numbers.size());
    std::vector<std::int64_t> places(numbers.size());
    std::iota(places.begin(), places.end(), 0);
    add_close(noise, places, numbers, Dtype::bf16, std::vector<double>{1.0});
    double variance = 0;
    for (const SharedErrors& errors : noise.shared)
        for (std::size_t i = 0; i < errors.factor.size(); ++i) {
            double sum = 0;
            for (std::size_t c = 0; c < numbers.size(); ++c)
                sum += static_cast<double>(errors.share[i * numbers.size() + c]);
            variance += sum * sum * errors.factor[i] * errors.factor[i];
        }
    return variance;
}

TEST(CloseNumbers, EqualOnesErrOnce) {
    const std::vector<double> numbers(100, 1.2345);
    const double one_error = std::pow(100 * kHalfStep, 2) / 3;
    EXPECT_GT(common_variance(numbers), 0.8 * one_error);
    EXPECT_LE(common_variance(numbers), one_error);
}

TEST(CloseNumbers, OnAFinerGridErrHalfAsMuch) {
    std::vector<double> numbers;  // 0.01 and 0.51 steps above a point of the grid
    for (int k = 0; k < 100; ++k) numbers.push_back(1.25 + (k % 2 + 0.02) * kHalfStep);
    const double one_error = std::pow(100 * kHalfStep / 2, 2) / 3;
    EXPECT_GT(common_variance(numbers), 0.7 * one_error);
    EXPECT_LE(common_variance(numbers), one_error);
}

TEST(CloseNumbers, SpreadOverManyStepsDoNotErrAlike) {
    std::vector<double> numbers;
    for (int k = 0; k < 1000; ++k) numbers.push_back(1 + std::fmod(0.6180339887498949 * k, 1.0));
    EXPECT_EQ(common_variance(numbers), 0);
}

}  // namespace
}  // namespace attncheck::ref
