// Tolerance rules of other projects, at their limits.
#include "properties/judge/rules.h"

#include <gtest/gtest.h>

namespace attncheck::properties {
namespace {

bool accepts(const std::string& rule, ref::Dtype dtype, double exact, double got) {
    const std::vector<double> one{exact}, other{got};
    return find_rule(rule)->accepts({.dtype = dtype, .exact = one, .got = other});
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
