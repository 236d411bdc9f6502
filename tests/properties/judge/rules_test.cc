// Tolerance rules of other projects, at their limits.
#include "properties/judge/rules.h"

#include <gtest/gtest.h>

#include <cmath>

namespace attncheck::properties {
namespace {

bool accepts(const std::string& rule, ref::Dtype dtype, double exact, double got, bool gradient = false) {
    const std::vector<double> one{exact}, other{got};
    return find_rule(rule)->accepts({.dtype = dtype, .gradient = gradient, .exact = one, .got = other});
}

// The defaults of torch.testing.assert_close: relative and absolute part add up.
TEST(Rules, Torch) {
    EXPECT_TRUE(accepts("torch", ref::Dtype::fp16, 1, 1 + 1.009e-3));
    EXPECT_FALSE(accepts("torch", ref::Dtype::fp16, 1, 1 + 1.011e-3));
    EXPECT_TRUE(accepts("torch", ref::Dtype::bf16, 1, 1 + 1.6009e-2));
    EXPECT_FALSE(accepts("torch", ref::Dtype::bf16, 1, 1 + 1.6011e-2));
    EXPECT_TRUE(accepts("torch", ref::Dtype::fp32, 0, 0.99e-5));
    EXPECT_FALSE(accepts("torch", ref::Dtype::fp32, 1, 1 + 1.131e-5));
}

// A mean over the tensor: one element may be far off, and a tensor of zeros has no room.
TEST(Rules, Ggml) {
    const std::vector<double> exact{3, 4, 0};
    const auto takes = [&](double error) {
        const std::vector<double> got{3, 4, error};
        return find_rule("ggml")->accepts({.dtype = ref::Dtype::fp16, .exact = exact, .got = got});
    };
    EXPECT_TRUE(takes(0.1118));  // 0.0125 = 5e-4 * 25
    EXPECT_FALSE(takes(0.1119));
    EXPECT_TRUE(accepts("ggml", ref::Dtype::fp16, 0, 0));
    EXPECT_FALSE(accepts("ggml", ref::Dtype::fp16, 0, 1e-6));
}

// Gradients in bf16 have more room.
TEST(Rules, Cudnn) {
    EXPECT_TRUE(accepts("cudnn", ref::Dtype::fp16, 1, 1.0399));
    EXPECT_FALSE(accepts("cudnn", ref::Dtype::fp16, 1, 1.0401));
    EXPECT_FALSE(accepts("cudnn", ref::Dtype::fp16, 1, 1.0401, true));
    EXPECT_TRUE(accepts("cudnn", ref::Dtype::bf16, 1, 1.0899, true));
    EXPECT_FALSE(accepts("cudnn", ref::Dtype::bf16, 1, 1.0901, true));
}

// Relative by the number of terms, or absolute by the largest value.
TEST(Rules, Benchdnn) {
    const auto takes = [](double exact, double got, bool gradient) {
        const std::vector<double> one{exact}, other{got};
        return find_rule("benchdnn")->accepts(
            {.dtype = ref::Dtype::fp16, .gradient = gradient, .terms = 3, .largest_value = 8, .exact = one, .got = other});
    };
    constexpr double kEps = 0x1p-10;
    EXPECT_TRUE(takes(1, 1 + 31 * kEps, false));  // 8 (1 + 3) eps
    EXPECT_FALSE(takes(1, 1 + 33 * kEps, false));
    EXPECT_TRUE(takes(0.01, 0.01 + 7.9 * kEps, false));  // eps max |v|
    EXPECT_FALSE(takes(0.01, 0.01 + 8.1 * kEps, false));
    EXPECT_TRUE(takes(0.1, 0.1499, true));
    EXPECT_FALSE(takes(0.1, 0.1501, true));
}

// As many times the error of the composition, and twice what adding and taking away 0.3 does to the exact numbers.
TEST(Rules, FlashAttention2) {
    const auto takes = [](double error, bool gradient) {
        const std::vector<double> exact{0.25}, got{0.25 + error};
        const double stored = ref::decode(ref::Dtype::fp16, ref::encode(ref::Dtype::fp16, 0.55)),
                     back = ref::decode(ref::Dtype::fp16, ref::encode(ref::Dtype::fp16, stored - 0.3));
        const double noise = 2 * std::fabs(back - 0.25);
        const std::vector<double> moved{got[0] + noise};
        return find_rule("fa2")->accepts(
            {.dtype = ref::Dtype::fp16, .gradient = gradient, .composition_error = 0.01, .exact = exact, .got = moved});
    };
    EXPECT_TRUE(takes(0.0199, false));
    EXPECT_FALSE(takes(0.0201, false));
    EXPECT_TRUE(takes(0.0299, true));
    EXPECT_FALSE(takes(0.0301, true));
}

// torch.allclose: the relative and the absolute part add up.
TEST(Rules, KernelBench) {
    EXPECT_TRUE(accepts("kernelbench", ref::Dtype::bf16, 1, 1.0199));
    EXPECT_FALSE(accepts("kernelbench", ref::Dtype::bf16, 1, 1.0201));
    EXPECT_TRUE(accepts("kernelbench", ref::Dtype::fp32, 1, 1.000199));
    EXPECT_FALSE(accepts("kernelbench", ref::Dtype::fp32, 1, 1.000201));
}

// Either part is enough.
TEST(Rules, FlashInferBench) {
    EXPECT_TRUE(accepts("flashinfer_bench", ref::Dtype::fp16, 0, 0.0099));
    EXPECT_FALSE(accepts("flashinfer_bench", ref::Dtype::fp16, 1, 1.0101));
    EXPECT_TRUE(accepts("flashinfer_bench", ref::Dtype::fp16, 100, 100.99));
    EXPECT_FALSE(accepts("flashinfer_bench", ref::Dtype::fp16, 100, 101.01));
}

}  // namespace
}  // namespace attncheck::properties
