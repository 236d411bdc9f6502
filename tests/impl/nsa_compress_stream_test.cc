#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <utility>

#include "impl/operators/nsa_compress/nsa_compress.h"
#include "impl/arguments/strided_rows.h"
#include "impl/runtime/thread_pool.h"
#include "tests/impl/nsa_compress_problem.h"
#include "tests/impl/print_half_format.h"

namespace attncheck::impl {
namespace {

using namespace compress_problem;

class NsaCompressStreamTest : public testing::TestWithParam<HalfFormat> {
protected:
    void TearDown() override { set_num_threads(0); }
};

// Large results are stored past the cache, lines of what is to come are asked for once or twice and
// its pages touched: with sequences that end between chunks and slabs, tokens behind the last one,
// a head dimension that ends within a line (and a gap behind it), row ends that are not those of
// slabs, and rows that are too long to be walked as a whole.
TEST_P(NsaCompressStreamTest, LargeTensorsPastTheCacheHaveTheSameBits) {
    struct Large {
        Shape shape;
        std::int64_t padded_dim;
    };
    const Large all[] = {{{16500, 4, 256, 32, 16, {7, 9000, 16490}}, 256},
                         {{58300, 6, 48, 48, 16, {58300}}, 64},
                         {{131100, 2, 64, 64, 48, {40000, 131099}}, 64},
                         {{3300, 40, 128, 32, 16, {3290}}, 128}};
    for (const auto& [shape, padded_dim] : all) {
        const auto make = [&](bool at_lines) {
            auto p = std::make_unique<Problem>(shape, GetParam());
            if (!at_lines) return p;
            for (auto [tensor, rows] :
                 {std::pair(&p->output, shape.rows()), std::pair(&p->input_grad, shape.tokens)}) {
                *tensor = Tensor({rows, shape.heads, padded_dim}, {0, 1, 2}, 1);
                tensor->shape[2] = shape.dim;
                tensor->move_to_a_line();
            }
            return p;
        };
        const auto cached = make(false), streamed = make(true);
        for (const auto& [threads, requests] :
             {std::pair(1, LineRequests::kOnce), std::pair(3, LineRequests::kOnce),
              std::pair(1, LineRequests::kTwice), std::pair(3, LineRequests::kTwice)}) {
            set_num_threads(threads);
            KernelTable kernels = default_kernels();
            kernels.requests = requests;
            for (Tensor* tensor : {&streamed->output, &streamed->input_grad})
                std::fill(tensor->storage.begin(), tensor->storage.end(), kPoison);
            const std::size_t gaps =
                streamed->output.storage.size() - streamed->output.logical().size();
            const std::size_t grad_gaps =
                streamed->input_grad.storage.size() - streamed->input_grad.logical().size();
            cached->run();
            streamed->run_with(kernels);
            EXPECT_EQ(streamed->output.poisoned(), gaps);
            EXPECT_EQ(streamed->input_grad.poisoned(), grad_gaps);
            EXPECT_TRUE(streamed->output.logical() == cached->output.logical());
            EXPECT_TRUE(streamed->input_grad.logical() == cached->input_grad.logical());
            EXPECT_TRUE(streamed->weight_grad.logical() == cached->weight_grad.logical());
        }
    }
}

// bf16 results round to nearest, ties to even, in vectors of any width; infinities and NaN stay
// what they are.
TEST(NsaCompressRounding, TiesOfBf16GoToEven) {
    Problem p({16, 1, 48, 16, 16, {16}}, HalfFormat::kBf16);
    const auto set = [&](std::int64_t t, std::int64_t c, float value) {
        p.input.at(t, 0, c) = narrow_bf16(value);
    };
    for (std::int64_t t = 0; t < 16; ++t) {
        p.weight.at(t, 0) = narrow_bf16(1.0f);
        for (std::int64_t c = 0; c < 48; ++c) set(t, c, 0.0f);
    }
    const float infinity = std::numeric_limits<float>::infinity();
    for (std::int64_t c = 0; c < 48; c += 6) {
        set(0, c, 1.0f), set(1, c, 0x1p-8f);                 // half an ulp above an even neighbour
        set(0, c + 1, -0x1.02p0f), set(1, c + 1, -0x1p-8f);  // and above an odd one
        set(0, c + 2, 1.0f), set(1, c + 2, 0x1.8p-9f);       // less than half
        set(0, c + 3, infinity);
        set(0, c + 4, infinity), set(1, c + 4, -infinity);
        p.input.at(0, 0, c + 5) = 0x7f81;  // a signalling NaN
    }
    for (const char* isa : {"scalar", "ssse3", "sse4", "avx2", "avx512", "neon"}) {
        const auto kernels = find_kernels(isa);
        if (!kernels) continue;
        nsa_compress(p.forward_args(), *kernels);
        for (std::int64_t c = 0; c < 48; c += 6) {
            EXPECT_EQ(p.output.at(0, 0, c), 0x3f80) << isa;
            EXPECT_EQ(p.output.at(0, 0, c + 1), 0xbf82) << isa;
            EXPECT_EQ(p.output.at(0, 0, c + 2), 0x3f80) << isa;
            EXPECT_EQ(p.output.at(0, 0, c + 3), 0x7f80) << isa;
            EXPECT_TRUE(std::isnan(widen_bf16(p.output.at(0, 0, c + 4)))) << isa;
            EXPECT_TRUE(std::isnan(widen_bf16(p.output.at(0, 0, c + 5)))) << isa;
        }
    }
}

// Any pattern of bits that a sum of products can have: the low half of a NaN is zero.
TEST_P(NsaCompressStreamTest, RowsPastTheCacheRoundAsAnyOther) {
    constexpr std::int64_t kCount = (1 << 18) + 16;  // ends within a line
    const AlignedBuffer<float> sums(kCount);
    const AlignedBuffer<std::uint16_t> streamed(kCount), stored(kCount);
    std::mt19937 random(3);
    for (std::int64_t i = 0; i < kCount; ++i) {
        auto bits = static_cast<std::uint32_t>(random());
        if (i % 3 == 0) bits = (bits & 0xffff0000u) | 0x8000u;  // a tie of bf16
        if (i % 5 == 0) bits |= 0x7f000000u;
        if ((bits & 0x7fffffffu) > 0x7f800000u) bits &= 0xffff0000u;
        sums.data()[i] = std::bit_cast<float>(bits);
    }
    for (const char* isa : {"scalar", "ssse3", "sse4", "avx2", "avx512", "neon"}) {
        const auto kernels = find_kernels(isa);
        if (!kernels) continue;
        const auto format = static_cast<int>(GetParam());
        kernels->narrow_row[format](sums.data(), stored.data(), kCount);
        kernels->stream_row[format](sums.data(), streamed.data(), kCount);
        kernels->end_of_stores();
        for (std::int64_t i = 0; i < kCount; ++i) {
            const float sum = sums.data()[i];
            ASSERT_EQ(streamed.data()[i], stored.data()[i]) << isa << " " << sum;
            const std::uint16_t wanted = narrow(GetParam(), sum);
            const bool is_nan = std::isnan(sum) && std::isnan(widen(GetParam(), stored.data()[i]));
            ASSERT_TRUE(is_nan || stored.data()[i] == wanted) << isa << " " << sum;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Formats, NsaCompressStreamTest,
                         testing::Values(HalfFormat::kFp16, HalfFormat::kBf16),
                         [](const auto& tested) {
                             return tested.param == HalfFormat::kFp16 ? "Fp16" : "Bf16";
                         });

}  // namespace
}  // namespace attncheck::impl
