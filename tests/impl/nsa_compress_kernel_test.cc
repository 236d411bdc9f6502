#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "impl/kernels/half_formats.h"
#include "impl/operators/nsa_compress/nsa_compress.h"
#include "impl/arguments/strided_rows.h"
#include "impl/runtime/thread_pool.h"
#include "tests/impl/nsa_compress_problem.h"
#include "tests/impl/print_half_format.h"

namespace attncheck::impl {
namespace {

using namespace compress_problem;

// Visits (token, row of output, row of weight) of every product.
template <class Visit>
void for_each_pair(const Shape& shape, Visit visit) {
    std::int64_t row = 0, previous = 0;
    for (const std::int64_t end : shape.lengths) {
        for (std::int64_t begin = previous; begin + shape.block <= end;
             begin += shape.stride, ++row) {
            for (std::int64_t r = 0; r < shape.block; ++r) visit(begin + r, row, r);
        }
        previous = end;
    }
}

struct Expected {
    std::vector<double> output, input_grad, weight_grad;
};

Expected expected(Problem& p) {
    const std::int64_t heads = p.shape.heads, dim = p.shape.dim, row_size = heads * dim;
    Expected e{std::vector<double>(static_cast<std::size_t>(p.shape.rows() * row_size)),
               std::vector<double>(static_cast<std::size_t>(p.shape.tokens * row_size)),
               std::vector<double>(static_cast<std::size_t>(p.shape.block * heads))};
    const auto value = [&](Tensor& tensor, std::int64_t i, std::int64_t j, std::int64_t k = 0) {
        return static_cast<double>(widen(p.format, tensor.at(i, j, k)));
    };
    for_each_pair(p.shape, [&](std::int64_t token, std::int64_t row, std::int64_t r) {
        for (std::int64_t n = 0; n < heads; ++n) {
            const double w = value(p.weight, r, n);
            for (std::int64_t c = 0; c < dim; ++c) {
                const double x = value(p.input, token, n, c), g = value(p.output_grad, row, n, c);
                e.output[static_cast<std::size_t>(row * row_size + n * dim + c)] += x * w;
                e.input_grad[static_cast<std::size_t>(token * row_size + n * dim + c)] += g * w;
                e.weight_grad[static_cast<std::size_t>(r * heads + n)] += g * x;
            }
        }
    });
    return e;
}

// Within an ulp of the output format: half an ulp of rounding, the rest for fp32 sums of positive
// terms.
void expect_near(Problem& p, Tensor& actual, const std::vector<double>& wanted, const char* name) {
    const double relative = p.format == HalfFormat::kFp16 ? 0x1p-10 : 0x1p-7;
    const std::vector<std::uint16_t> bits = actual.logical();
    ASSERT_EQ(bits.size(), wanted.size()) << name;
    for (std::size_t i = 0; i < bits.size(); ++i) {
        const double got = widen(p.format, bits[i]);
        const bool close = std::abs(got - wanted[i]) <= relative * std::abs(wanted[i]);
        ASSERT_TRUE(close) << name << " element " << i << ": " << got << ", expected " << wanted[i];
    }
}

const std::vector<Shape>& shapes() {
    static const std::vector<Shape> all = {
        {272, 1, 16, 32, 16, {0, 128, 272}},         // leading zero
        {300, 3, 48, 48, 32, {120, 140, 140, 272}},  // block not a multiple of stride, empty and
                                                     // short sequences, tail
        {400, 2, 256, 128, 16, {400}},               // eight open windows
        {200, 5, 112, 64, 48, {17, 200}},
        {128, 2, 32, 80, 64, {128}},
        {1024, 16, 128, 32, 16, {500, 1000}},  // several chunks and threads
        {4000, 4, 128, 112, 48, {31, 2000, 2050, 3999}},
    };
    return all;
}

class NsaCompressKernelTest : public testing::TestWithParam<HalfFormat> {
protected:
    void TearDown() override { set_num_threads(0); }
};

TEST_P(NsaCompressKernelTest, AgreesWithPlainLoopsInAnyStorage) {
    for (const Shape& shape : shapes()) {
        std::optional<Problem> packed;
        for (const Storage storage : {Storage::kPacked, Storage::kHeadsFirst, Storage::kReversed}) {
            Problem p(shape, GetParam(), storage);
            const std::size_t gaps = p.output.storage.size() - p.output.logical().size();
            const std::size_t grad_gaps =
                p.input_grad.storage.size() - p.input_grad.logical().size();
            p.run();
            const Expected e = expected(p);
            expect_near(p, p.output, e.output, "output");
            expect_near(p, p.input_grad, e.input_grad, "input_grad");
            expect_near(p, p.weight_grad, e.weight_grad, "weight_grad");
            EXPECT_EQ(p.output.poisoned(), gaps);  // all elements written, nothing between them
            EXPECT_EQ(p.input_grad.poisoned(), grad_gaps);
            if (!packed) {
                packed.emplace(std::move(p));
                continue;
            }
            EXPECT_EQ(p.output.logical(), packed->output.logical());
            EXPECT_EQ(p.input_grad.logical(), packed->input_grad.logical());
            EXPECT_EQ(p.weight_grad.logical(), packed->weight_grad.logical());
        }
    }
}

TEST_P(NsaCompressKernelTest, BitsDoNotDependOnThreads) {
    for (const Shape& shape : shapes()) {
        Problem one(shape, GetParam());
        set_num_threads(1);
        one.run();
        for (const int threads : {2, 3, 7}) {
            Problem many(shape, GetParam());
            set_num_threads(threads);
            many.run();
            EXPECT_EQ(many.output.storage, one.output.storage) << threads;
            EXPECT_EQ(many.input_grad.storage, one.input_grad.storage) << threads;
            EXPECT_EQ(many.weight_grad.storage, one.weight_grad.storage) << threads;
        }
    }
}

TEST_P(NsaCompressKernelTest, InstructionSetsAgreeWithinAnUlp) {
    for (const Shape& shape : shapes()) {
        Problem scalar(shape, GetParam());
        ASSERT_TRUE(find_kernels("scalar").has_value());
        scalar.run_with(*find_kernels("scalar"));
        for (const char* isa :
             {"ssse3", "sse4", "avx2", "avx512", "avx512_bf16", "amx", "amx_emulated", "neon"}) {
            const auto kernels = find_kernels(isa);
            if (!kernels) continue;
            Problem other(shape, GetParam());
            other.run_with(*kernels);
            const auto expect_close = [&](Tensor& left, Tensor& right) {
                const auto a = left.logical(), b = right.logical();
                for (std::size_t i = 0; i < a.size(); ++i)
                    ASSERT_LE(std::abs(a[i] - b[i]), 1) << isa << " " << i;
            };
            expect_close(other.output, scalar.output);
            expect_close(other.input_grad, scalar.input_grad);
            expect_close(other.weight_grad, scalar.weight_grad);
        }
    }
}

// nsa.md 13, item 1: block counts; the validator accepts exactly these numbers of rows.
TEST_P(NsaCompressKernelTest, BlockCountsFollowTheWorkedVectors) {
    const std::pair<std::int64_t, std::int64_t> counts[] = {{20, 0},  {31, 0},  {32, 1},  {47, 1},
                                                            {48, 2},  {64, 3},  {120, 6}, {128, 7},
                                                            {144, 8}, {272, 16}};
    for (const auto& [length, rows] : counts) {
        Problem p({length, 1, 16, 32, 16, {length}}, GetParam());
        EXPECT_EQ(p.shape.rows(), rows);
        p.run();
    }
    EXPECT_EQ((WindowGeometry{32, 16}.num_windows(0)), 0);
}

// nsa.md 13, item 2 with every number 16 times: one non-zero row per block and position.
TEST_P(NsaCompressKernelTest, HandVectorWithoutOverlap) {
    Problem p({37, 1, 16, 16, 16, {37}}, GetParam());
    for (std::int64_t r = 0; r < 16; ++r)
        p.weight.at(r, 0) = narrow(GetParam(), r == 0 ? 10.0f : r == 1 ? 1.0f : 0.0f);
    for (std::int64_t t = 0; t < 37; ++t) {
        for (std::int64_t c = 0; c < 16; ++c)
            p.input.at(t, 0, c) = narrow(GetParam(), static_cast<float>(t % 16 + t / 16));
    }
    p.run();
    EXPECT_EQ(widen(GetParam(), p.output.at(0, 0, 0)), 1.0f);    // 0*10 + 1*1
    EXPECT_EQ(widen(GetParam(), p.output.at(1, 0, 15)), 12.0f);  // 1*10 + 2*1
}

// block 32, stride 16, ones: tokens in one window get dY of it, tokens in two the sum (item 3,
// adapted).
TEST_P(NsaCompressKernelTest, HandVectorWithOverlap) {
    Problem p({50, 1, 16, 32, 16, {50}}, GetParam());
    for (std::int64_t r = 0; r < 32; ++r) p.weight.at(r, 0) = narrow(GetParam(), 1.0f);
    for (std::int64_t t = 0; t < 50; ++t) {
        for (std::int64_t c = 0; c < 16; ++c)
            p.input.at(t, 0, c) = narrow(GetParam(), t < 16 ? 1.0f : 2.0f);
    }
    for (std::int64_t c = 0; c < 16; ++c) {
        p.output_grad.at(0, 0, c) = narrow(GetParam(), 1.0f);
        p.output_grad.at(1, 0, c) = narrow(GetParam(), 2.0f);
    }
    p.run();
    EXPECT_EQ(widen(GetParam(), p.output.at(0, 0, 3)), 48.0f);
    EXPECT_EQ(widen(GetParam(), p.output.at(1, 0, 3)), 64.0f);
    EXPECT_EQ(widen(GetParam(), p.input_grad.at(0, 0, 0)), 1.0f);
    EXPECT_EQ(widen(GetParam(), p.input_grad.at(16, 0, 0)), 3.0f);
    EXPECT_EQ(widen(GetParam(), p.input_grad.at(47, 0, 15)), 2.0f);
    EXPECT_EQ(p.input_grad.at(48, 0, 0), 0);  // covered by no window: +0
    EXPECT_EQ(widen(GetParam(), p.weight_grad.at(0, 0)), 16.0f * (1 * 1 + 2 * 2));
    EXPECT_EQ(widen(GetParam(), p.weight_grad.at(31, 0)), 16.0f * (1 * 2 + 2 * 2));
}

TEST_P(NsaCompressKernelTest, NoWindowsGiveZeroGradients) {
    Problem p({70, 2, 32, 32, 16, {31, 62}}, GetParam());
    p.run();
    for (Tensor* zeros : {&p.input_grad, &p.weight_grad}) {
        for (const std::uint16_t bits : zeros->logical()) ASSERT_EQ(bits, 0);
    }
}

// One NaN or infinity in X, W or dY reaches what depends on it, times zero included, and nothing
// else.
TEST_P(NsaCompressKernelTest, NonFiniteValuesReachWhatDependsOnThem) {
    const Shape shape{150, 2, 32, 48, 32, {20, 150}};
    const std::int64_t head = 1, channel = 17;
    for (const std::int64_t bad_token : {5, 20, 60, 115, 116, 149}) {
        for (const float bad :
             {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
            Problem p(shape, GetParam());
            for (std::int64_t r = 0; r < shape.block; ++r)
                p.weight.at(r, head) = 0;  // inf * 0 is NaN
            for (std::int64_t j = 0; j < shape.rows(); ++j) p.output_grad.at(j, head, channel) = 0;
            p.input.at(bad_token, head, channel) = narrow(GetParam(), bad);
            p.run();
            std::vector<bool> bad_row(static_cast<std::size_t>(shape.rows())), bad_weight(48);
            for_each_pair(shape, [&](std::int64_t token, std::int64_t row, std::int64_t r) {
                if (token != bad_token) return;
                bad_row[static_cast<std::size_t>(row)] = true;
                bad_weight[static_cast<std::size_t>(r)] = true;
            });
            for (std::int64_t j = 0; j < shape.rows(); ++j) {
                for (std::int64_t n = 0; n < 2; ++n) {
                    for (std::int64_t c = 0; c < 32; ++c) {
                        const bool dependent =
                            bad_row[static_cast<std::size_t>(j)] && n == head && c == channel;
                        ASSERT_EQ(std::isnan(widen(GetParam(), p.output.at(j, n, c))), dependent)
                            << bad_token;
                    }
                }
            }
            for (std::int64_t r = 0; r < 48; ++r) {
                ASSERT_EQ(std::isnan(widen(GetParam(), p.weight_grad.at(r, head))),
                          bad_weight[static_cast<std::size_t>(r)]);
                ASSERT_TRUE(std::isfinite(widen(GetParam(), p.weight_grad.at(r, 0))));
            }
            for (const std::uint16_t bits : p.input_grad.logical())
                ASSERT_TRUE(std::isfinite(widen(GetParam(), bits)));
        }
    }
}

TEST_P(NsaCompressKernelTest, RejectedCallsLeaveOutputsAlone) {
    Problem p(shapes()[1], GetParam());
    auto forward = p.forward_args();
    auto gradient = p.gradient_args();
    forward.act_seq_len_type = gradient.act_seq_len_type = 1;
    EXPECT_EQ(attncheck_nsa_compress(&forward), ATTNCHECK_ERR_INVALID);
    EXPECT_EQ(attncheck_nsa_compress_grad(&gradient), ATTNCHECK_ERR_INVALID);
    for (const Tensor* tensor : {&p.output, &p.input_grad, &p.weight_grad}) {
        EXPECT_EQ(tensor->poisoned(), tensor->storage.size());
    }
}

// A broadcast input (stride 0) and an extent of 1 with an arbitrary stride.
TEST_P(NsaCompressKernelTest, ZeroAndMeaninglessStridesAreHarmless) {
    Problem p({160, 1, 16, 32, 16, {160}}, GetParam());
    auto forward = p.forward_args();
    auto gradient = p.gradient_args();
    for (std::int64_t t = 0; t < 160; ++t) {
        for (std::int64_t c = 0; c < 16; ++c) p.input.at(t, 0, c) = p.input.at(0, 0, 0);
    }
    p.run();
    const auto output = p.output.storage, weight_grad = p.weight_grad.storage;
    for (attncheck_tensor* input : {&forward.input, &gradient.input}) {
        input->strides[0] = input->strides[2] = 0;
        input->strides[1] = std::numeric_limits<std::int64_t>::min();
    }
    forward.output.strides[1] = std::numeric_limits<std::int64_t>::max();
    EXPECT_EQ(attncheck_nsa_compress(&forward), ATTNCHECK_OK);
    EXPECT_EQ(attncheck_nsa_compress_grad(&gradient), ATTNCHECK_OK);
    EXPECT_EQ(p.output.storage, output);
    EXPECT_EQ(p.weight_grad.storage, weight_grad);
}

// An aligned gradient beyond the size that bypasses the cache has the bits of an unaligned one.
TEST_P(NsaCompressKernelTest, CacheBypassDoesNotChangeBits) {
    Problem p({8192, 2, 128, 32, 16, {8192}}, GetParam());
    p.run();
    std::vector<std::uint16_t> aligned_storage(static_cast<std::size_t>(8192 * 256 + 32));
    auto gradient = p.gradient_args();
    const auto address = reinterpret_cast<std::uintptr_t>(aligned_storage.data());
    gradient.input_grad.data = aligned_storage.data() + (64 - address % 64) % 64 / 2;
    ASSERT_EQ(attncheck_nsa_compress_grad(&gradient), ATTNCHECK_OK);
    const auto wanted = p.input_grad.logical();
    const auto* got = static_cast<const std::uint16_t*>(gradient.input_grad.data);
    EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), got));
}

// The output of an input beyond a last-level cache likewise.
TEST_P(NsaCompressKernelTest, CacheBypassDoesNotChangeOutputs) {
    Problem p({65536, 2, 128, 32, 16, {65536}}, GetParam());
    auto forward = p.forward_args();
    const auto run_at = [&](std::int64_t bytes_into_line) {
        const AlignedBuffer<std::uint16_t> storage(4096 * 256 + 32);
        forward.output.data = storage.data() + bytes_into_line / 2;
        EXPECT_EQ(attncheck_nsa_compress(&forward), ATTNCHECK_OK);
        const auto* got = static_cast<const std::uint16_t*>(forward.output.data);
        return std::vector<std::uint16_t>(got, got + 4095 * 256);
    };
    EXPECT_TRUE(run_at(0) == run_at(2));
}

TEST_P(NsaCompressKernelTest, ConcurrentCallersGetTheSameBits) {
    Problem one(shapes()[5], GetParam());
    one.run();
    std::vector<Problem> problems;
    for (int i = 0; i < 5; ++i) problems.emplace_back(shapes()[5], GetParam());
    std::vector<std::thread> callers;
    for (Problem& problem : problems) callers.emplace_back([&problem] { problem.run(); });
    for (std::thread& caller : callers) caller.join();
    for (const Problem& problem : problems) {
        EXPECT_EQ(problem.output.storage, one.output.storage);
        EXPECT_EQ(problem.input_grad.storage, one.input_grad.storage);
        EXPECT_EQ(problem.weight_grad.storage, one.weight_grad.storage);
    }
}

TEST(ThreadPoolTest, FirstExceptionReachesTheCaller) {
    set_num_threads(3);
    EXPECT_THROW(parallel_for(100,
                              [](std::int64_t unit) {
                                  if (unit == 40) throw std::runtime_error("unit");
                              }),
                 std::runtime_error);
    std::atomic<int> units{0};
    parallel_for(100, [&](std::int64_t) { ++units; });
    EXPECT_EQ(units.load(), 100);
    set_num_threads(0);
}

INSTANTIATE_TEST_SUITE_P(Formats, NsaCompressKernelTest,
                         testing::Values(HalfFormat::kFp16, HalfFormat::kBf16),
                         [](const auto& param_info) {
                             return std::string(param_info.param == HalfFormat::kFp16 ? "Fp16"
                                                                                      : "Bf16");
                         });

}  // namespace
}  // namespace attncheck::impl
