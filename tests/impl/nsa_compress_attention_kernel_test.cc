#include <gtest/gtest.h>

#include <bit>
#include <set>
#include <string>

#include "impl/operators/nsa_compress_attention/nsa_compress_attention.h"
#include "impl/arguments/rejection.h"
#include "impl/runtime/thread_pool.h"
#include "nsa_compress_attention_problem.h"
#include "tests/impl/print_half_format.h"

namespace attncheck::impl {
namespace {

constexpr float kFloatMax = std::numeric_limits<float>::max();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// fp32 sums of some hundred terms and an exponential: a few hundred times 2^-24 of the sum of the
// absolute terms. Far below anything that a wrong pair, weight or statistic would change.
constexpr double kSumError = 4e-5;

// One rounding to the output format, as a part of the result.
double rounding(HalfFormat format) {
    return format == HalfFormat::kFp16 ? 0x1p-11 * 1.01 : 0x1p-8 * 1.01;
}

void run(CompressProblem& p) {
    const auto args = p.args();
    ASSERT_EQ(attncheck_nsa_compress_attention(&args), ATTNCHECK_OK) << last_error_message();
}

// Written so that NaN fails.
void expect_row(CompressProblem& p, const ExpectedRow& row, std::size_t b, std::int64_t t,
                std::int64_t s, std::int64_t head) {
    for (std::int64_t copy = 0; copy < 8; ++copy) {
        const float row_max = p.statistic(p.row_max, b, s, head, copy),
                    row_sum = p.statistic(p.row_sum, b, s, head, copy);
        if (row.row_sum == 0) {
            ASSERT_EQ(row_max, -kFloatMax) << t;
            ASSERT_EQ(row_sum, kFloatMax) << t;
            continue;
        }
        ASSERT_TRUE(std::abs(row_max - row.row_max) <= 1e-5 * (1 + std::abs(row.row_max)))
            << row_max << " " << row.row_max;
        ASSERT_TRUE(std::abs(row_sum - row.row_sum) <= kSumError * row.row_sum)
            << row_sum << " " << row.row_sum;
    }
    for (std::int64_t c = 0; c < p.shape.value_dim; ++c) {
        const Sum& sum = row.output[static_cast<std::size_t>(c)];
        const double got = p.number(p.output, t, head, c);
        // 2^-24: a subnormal fp16 result is a multiple of it.
        const double allowed = rounding(p.format) * std::abs(sum.value) + kSumError * sum.size +
                               (p.format == HalfFormat::kFp16 ? 0x1p-24 : 0.0);
        ASSERT_TRUE(std::abs(got - sum.value) <= allowed)
            << "attention_out[" << t << "," << head << "," << c << "]: " << got << ", expected "
            << sum.value;
        if (sum.size == 0) {
            ASSERT_EQ(p.output.at(t, head, c), 0) << "not +0";
        }
    }
}

// Forced blocks first, in order; then by descending score up to the rounding of the scores.
void expect_list(CompressProblem& p, const std::vector<double>& scores, std::int64_t t,
                 std::int64_t s, std::int64_t kv_head) {
    const double allowed = kSumError * static_cast<double>(p.shape.group_size);
    std::vector<bool> listed(scores.size());
    std::int64_t previous = -1;
    double bound = kInfinity;
    const auto ties = [](double a, double b) { return std::abs(a - b) <= 1e-12 || a == b; };
    for (std::int64_t i = 0; i < p.shape.count; ++i) {
        const std::int64_t block = p.topk.at(t, kv_head, i);
        ASSERT_TRUE(block >= 0 && block < std::ssize(scores)) << block;
        ASSERT_FALSE(listed[static_cast<std::size_t>(block)]) << block;
        listed[static_cast<std::size_t>(block)] = true;
        const bool forced = p.forced(s, block);
        const double score = forced ? kInfinity : scores[static_cast<std::size_t>(block)];
        ASSERT_TRUE(score <= bound + allowed) << "entry " << i << " of " << t;
        if (ties(score, bound)) {
            ASSERT_GT(block, previous) << "tie out of order, " << t;
        }
        bound = score;
        previous = block;
    }
    for (std::int64_t block = 0; block < std::ssize(scores); ++block) {
        if (listed[static_cast<std::size_t>(block)]) continue;
        const double score =
            p.forced(s, block) ? kInfinity : scores[static_cast<std::size_t>(block)];
        ASSERT_TRUE(score <= bound + allowed) << "block " << block << " is missing, " << t;
        if (ties(score, bound)) {
            ASSERT_GT(block, previous) << "tie out of order, " << t;
        }
    }
}

void expect_right(CompressProblem& p) {
    p.for_each_query([&](std::size_t b, std::int64_t t, std::int64_t s, std::int64_t n) {
        if (testing::Test::HasFatalFailure()) return;
        const std::int64_t own_keys = p.shape.lengths[b].second;
        std::vector<double> scores(static_cast<std::size_t>(p.shape.geometry.candidates(own_keys)));
        for (std::int64_t head = n * p.shape.group_size; head < (n + 1) * p.shape.group_size;
             ++head) {
            const ExpectedRow row = expected_row(p, b, t, s, head);
            expect_row(p, row, b, t, s, head);
            const std::vector<double> own = expected_scores(row.probs, p.shape.geometry);
            for (std::size_t j = 0; j < scores.size(); ++j) scores[j] += own[j];
        }
        expect_list(p, scores, t, s, n);
    });
    if (testing::Test::HasFatalFailure()) return;
    for (std::int64_t t = p.query_ends.back(); t < p.shape.queries(); ++t) {
        for (std::int64_t head = 0; head < p.shape.heads(); ++head) {
            for (std::int64_t c = 0; c < p.shape.value_dim; ++c)
                ASSERT_EQ(p.output.at(t, head, c), 0);
            for (std::int64_t copy = 0; copy < 8; ++copy) {
                ASSERT_EQ(p.row_max.at(t, head, copy), 0.0f);
                ASSERT_EQ(p.row_sum.at(t, head, copy), 0.0f);
            }
        }
        for (std::int64_t n = 0; n < p.shape.kv_heads; ++n)
            for (std::int64_t i = 0; i < p.shape.count; ++i) ASSERT_EQ(p.topk.at(t, n, i), 0);
    }
}

struct Bits {
    std::vector<std::uint16_t> output;
    std::vector<std::uint32_t> row_max, row_sum;
    std::vector<std::int32_t> topk;
    bool operator==(const Bits&) const = default;

    explicit Bits(CompressProblem& p) : output(p.output.logical()), topk(p.topk.logical()) {
        for (const float value : p.row_max.logical())
            row_max.push_back(std::bit_cast<std::uint32_t>(value));
        for (const float value : p.row_sum.logical())
            row_sum.push_back(std::bit_cast<std::uint32_t>(value));
    }
};

std::vector<std::int32_t> list_of(CompressProblem& p, std::int64_t t, std::int64_t kv_head = 0) {
    std::vector<std::int32_t> list;
    for (std::int64_t i = 0; i < p.shape.count; ++i) list.push_back(p.topk.at(t, kv_head, i));
    return list;
}

using List = std::vector<std::int32_t>;

// An empty sequence first, last and in the middle, one without queries, a short one after a long
// one, tokens beyond the last one.
CompressShape mixed(std::int64_t group_size, std::int64_t head_dim, std::int64_t value_dim,
                    const Geometry& geometry, std::int64_t count, bool has_mask,
                    bool has_topk_mask) {
    const std::int64_t least = geometry.is_m() * (count - 1) + 1;
    return {group_size > 8 ? 1 : 3,
            group_size,
            head_dim,
            value_dim,
            geometry,
            count,
            {{0, 0}, {5, least + 21}, {0, 0}, {0, least}, {3, least}, {4, least + 6}, {0, 0}},
            has_mask,
            has_topk_mask,
            2,
            5};
}

class NsaCompressAttentionKernelTest : public testing::TestWithParam<HalfFormat> {
protected:
    void TearDown() override { set_num_threads(0); }
};

// The kernel takes any group size; the documented ones divide 128.
TEST_P(NsaCompressAttentionKernelTest, AgreesWithPlainLoopsForEveryGroupSizeAndDim) {
    int turn = 0;
    for (const std::int64_t group_size : {1, 2, 3, 4, 5, 8, 16, 17, 31, 32, 64, 127, 130}) {
        for (const auto& [head_dim, value_dim] :
             {std::pair{16, 16}, std::pair{192, 128}, std::pair{37, 5}, std::pair{33, 33}}) {
            SCOPED_TRACE(testing::Message() << "G " << group_size << " D " << head_dim);
            ++turn;
            CompressProblem p(
                mixed(group_size, head_dim, value_dim, {}, 3, turn % 3 != 0, turn % 2 != 0),
                GetParam());
            nsa_compress_attention(p.args(), default_attention_kernels());
            expect_right(p);
            if (HasFatalFailure()) return;
        }
    }
    CompressProblem widest(mixed(2, 768, 768, {}, 2, true, false), GetParam());
    run(widest);
    expect_right(widest);
    CompressProblem narrowest(mixed(4, 1, 1, {}, 2, true, false), GetParam());
    run(narrowest);
    expect_right(narrowest);
}

TEST_P(NsaCompressAttentionKernelTest, AgreesWithPlainLoopsForEveryGeometry) {
    int turn = 0;
    for (const Geometry& geometry : std::vector<Geometry>{{16, 16, 16},
                                                          {32, 16, 32},
                                                          {32, 16, 64},
                                                          {48, 32, 64},
                                                          {48, 48, 96},
                                                          {96, 48, 96},
                                                          {64, 64, 128},
                                                          {112, 16, 128},
                                                          {128, 16, 128},
                                                          {128, 64, 128}}) {
        for (const std::int64_t count : {1, 2, 7, 32}) {
            SCOPED_TRACE(testing::Message() << "l " << geometry.block << " d " << geometry.stride
                                            << " l' " << geometry.selected << " K " << count);
            ++turn;
            CompressProblem p(mixed(2, 48, 32, geometry, count, turn % 2 != 0, turn % 3 != 0),
                              GetParam());
            run(p);
            expect_right(p);
            if (HasFatalFailure()) return;
        }
    }
}

// Numbers of queries and keys around the tiles (128 rows, 64 keys, vectors of 16).
TEST_P(NsaCompressAttentionKernelTest, AgreesWithPlainLoopsAroundTileBoundaries) {
    for (const std::int64_t keys : {1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129, 200}) {
        for (const bool has_mask : {false, true}) {
            CompressProblem p({1, 2, 16, 16, {}, 1, {{65, keys}, {2, keys}}, has_mask}, GetParam());
            run(p);
            expect_right(p);
            if (HasFatalFailure()) return;
        }
    }
    for (const std::int64_t queries : {1, 31, 32, 33, 64, 127, 128, 129, 257}) {
        for (const std::int64_t group_size : {1, 4}) {
            CompressProblem p({2, group_size, 16, 16, {}, 2, {{queries, 70}, {queries, 9}}, true},
                              GetParam());
            run(p);
            expect_right(p);
            if (HasFatalFailure()) return;
        }
    }
}

// As compression makes them: causal rows, so that whole tiles of keys are hidden from a tile.
CompressProblem causal(const CompressShape& shape, HalfFormat format,
                       Storage how = Storage::kPacked) {
    CompressProblem p(shape, format, how);
    for (std::int64_t s = 0; s < p.mask.shape[1]; ++s)
        for (std::int64_t i = 0; i < p.mask.shape[2]; ++i)
            p.mask.at(0, s, i) =
                i * shape.geometry.stride + shape.geometry.block - 1 <= s * 3 ? 0 : 1;
    return p;
}

std::vector<CompressShape> long_shapes() {
    return {
        {2, 4, 128, 128, {}, 4, {{300, 80}, {0, 0}, {70, 17}}, true, true, 1, 7},
        {1, 16, 192, 128, {32, 16, 32}, 16, {{90, 160}, {33, 150}}, true, false, 0, 0},
        {3, 1, 64, 40, {64, 32, 64}, 5, {{140, 131}}, false, true, 3, 0},
    };
}

TEST_P(NsaCompressAttentionKernelTest, AgreesWithPlainLoopsOnLongerSequences) {
    for (const CompressShape& shape : long_shapes()) {
        for (const bool is_causal : {false, true}) {
            CompressProblem p =
                is_causal ? causal(shape, GetParam()) : CompressProblem(shape, GetParam());
            run(p);
            expect_right(p);
            if (HasFatalFailure()) return;
        }
    }
}

// Strides decide nothing but addresses; gaps are not written and hidden ones not read.
TEST_P(NsaCompressAttentionKernelTest, StorageDoesNotChangeBits) {
    for (const CompressShape& shape : long_shapes()) {
        CompressProblem packed(shape, GetParam());
        run(packed);
        for (const Storage how : {Storage::kHeadsFirst, Storage::kReversed}) {
            CompressProblem p(shape, GetParam(), how);
            run(p);
            EXPECT_TRUE(Bits(p) == Bits(packed));
            const auto gaps = [](const auto& tensor) {
                return std::ssize(tensor.storage) - tensor.elements();
            };
            EXPECT_EQ(p.output.poisoned(), gaps(p.output));
            EXPECT_EQ(p.row_max.poisoned(), gaps(p.row_max));
            EXPECT_EQ(p.row_sum.poisoned(), gaps(p.row_sum));
            EXPECT_EQ(p.topk.poisoned(), gaps(p.topk));
        }
    }
}

// Inputs with stride 0 and strides of extents of 1.
TEST_P(NsaCompressAttentionKernelTest, ZeroAndMeaninglessStridesAreHarmless) {
    CompressProblem p({1, 2, 32, 32, {}, 2, {{9, 21}}, true, true}, GetParam());
    for (std::int64_t s = 0; s < 9; ++s) {
        for (std::int64_t i = 0; i < 21; ++i) p.mask.at(0, s, i) = p.mask.at(0, 0, i);
        for (std::int64_t j = 0; j < 6; ++j) p.topk_mask.at(0, s, j) = p.topk_mask.at(0, s, 0);
        for (std::int64_t c = 0; c < 32; ++c) p.query.at(s, 0, c) = p.query.at(s, 1, c);
    }
    for (std::int64_t i = 0; i < 21; ++i)
        for (std::int64_t c = 0; c < 32; ++c) p.value.at(i, 0, c) = p.value.at(i, 0, 0);
    run(p);
    const Bits wanted(p);
    auto args = p.args();
    args.atten_mask.strides[0] = args.topk_mask.strides[1] = 0;
    args.query.strides[1] = args.value.strides[2] = 0;
    args.key.strides[1] = std::numeric_limits<std::int64_t>::min();
    args.topk_indices.strides[1] = std::numeric_limits<std::int64_t>::max();
    EXPECT_EQ(attncheck_nsa_compress_attention(&args), ATTNCHECK_OK);
    EXPECT_TRUE(Bits(p) == wanted);
}

TEST_P(NsaCompressAttentionKernelTest, BitsDoNotDependOnThreads) {
    for (const CompressShape& shape : long_shapes()) {
        CompressProblem one(shape, GetParam());
        set_num_threads(1);
        run(one);
        for (const int threads : {2, 3, 7}) {
            CompressProblem many(shape, GetParam());
            set_num_threads(threads);
            run(many);
            EXPECT_TRUE(Bits(many) == Bits(one)) << threads;
        }
    }
}

// A sequence gives the same bits wherever it stands in the pack.
TEST_P(NsaCompressAttentionKernelTest, NeighboursInThePackDoNotChangeBits) {
    const CompressShape shape = long_shapes()[0];
    CompressProblem whole(shape, GetParam());
    run(whole);
    CompressShape last = shape;
    last.lengths = {{70, 17}};
    last.has_mask = last.has_topk_mask = true;
    CompressProblem alone(last, GetParam());
    auto args = alone.args();
    const auto part = whole.args();
    const std::int64_t first_query = 300, first_key = 80;
    const auto tail = [](attncheck_tensor tensor, std::int64_t first, std::int64_t rows) {
        tensor.data = static_cast<std::uint16_t*>(tensor.data) + first * tensor.strides[0];
        tensor.shape[0] = rows;
        return tensor;
    };
    args.query = tail(part.query, first_query, 71);
    args.key = tail(part.key, first_key, 24);
    args.value = tail(part.value, first_key, 24);
    args.atten_mask = part.atten_mask;
    args.topk_mask = part.topk_mask;
    args.atten_mask.shape[0] = args.topk_mask.shape[0] = 70;
    args.atten_mask.shape[1] = 17;
    args.topk_mask.shape[1] = 5;
    ASSERT_EQ(attncheck_nsa_compress_attention(&args), ATTNCHECK_OK);
    for (std::int64_t t = 0; t < 70; ++t) {
        for (std::int64_t n = 0; n < 2; ++n)
            ASSERT_EQ(list_of(alone, t, n), list_of(whole, first_query + t, n)) << t;
        for (std::int64_t head = 0; head < 8; ++head) {
            ASSERT_EQ(alone.statistic(alone.row_sum, 0, t, head, 3),
                      whole.statistic(whole.row_sum, 2, t, head, 3));
            for (std::int64_t c = 0; c < 128; ++c)
                ASSERT_EQ(alone.output.at(t, head, c), whole.output.at(first_query + t, head, c));
        }
    }
}

TEST_P(NsaCompressAttentionKernelTest, EveryInstructionSetAgreesWithPlainLoops) {
    std::vector<CompressShape> shapes{mixed(3, 48, 33, {}, 3, true, true),
                                      {1, 8, 37, 5, {32, 32, 64}, 4, {{40, 70}}, true},
                                      {2, 1, 192, 128, {}, 2, {{5, 100}}}};
    for (const char* isa : {"scalar", "ssse3", "sse4", "avx2", "avx512", "avx512_bf16", "amx",
                            "amx_emulated", "neon"}) {
        const auto kernels = find_attention_kernels(isa);
        if (!kernels) continue;
        SCOPED_TRACE(isa);
        for (const CompressShape& shape : shapes) {
            CompressProblem p(shape, GetParam());
            nsa_compress_attention(p.args(), *kernels);
            expect_right(p);
            if (HasFatalFailure()) return;
        }
    }
}

// Flat groups of 8 in the order (g0,s0),(g0,s1),(g1,s0),(g1,s1) (nsa.md 13, vector 7).
TEST_P(NsaCompressAttentionKernelTest, StatisticsAreOrderedByHeadInsideASequence) {
    CompressProblem p({1, 2, 16, 16, {16, 16, 16}, 1, {{2, 1}}, false, false, 0, 0, 1.0},
                      GetParam());
    for (std::int64_t c = 0; c < 16; ++c) p.key.at(0, 0, c) = narrow(GetParam(), c == 0 ? 1 : 0);
    for (std::int64_t s = 0; s < 2; ++s)
        for (std::int64_t g = 0; g < 2; ++g)
            p.query.at(s, g, 0) = narrow(GetParam(), static_cast<float>(10 * g + s));
    run(p);
    const std::vector<float> flat = p.row_max.logical();
    const float wanted[] = {0, 1, 10, 11};
    for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(flat[i], wanted[i / 8]) << i;
}

// Every K and V row that no query of its sequence sees, and whatever lies beyond, is NaN.
TEST_P(NsaCompressAttentionKernelTest, NanInUnseenKeysReachesNothing) {
    for (const CompressShape& shape : long_shapes()) {
        if (!shape.has_mask) continue;
        CompressProblem clean = causal(shape, GetParam()), p = causal(shape, GetParam());
        std::int64_t spoilt = 0;
        for (std::int64_t key = 0; key < shape.keys(); ++key) {
            bool seen = false;
            std::int64_t begin = 0;
            for (std::size_t b = 0; b < shape.lengths.size(); ++b) {
                for (std::int64_t s = 0; s < shape.lengths[b].first; ++s)
                    seen =
                        seen || (key >= begin && key < p.key_ends[b] && p.visible(s, key - begin));
                begin = p.key_ends[b];
            }
            if (seen) continue;
            ++spoilt;
            for (std::int64_t n = 0; n < shape.kv_heads; ++n) {
                for (std::int64_t c = 0; c < shape.head_dim; ++c)
                    p.key.at(key, n, c) = narrow(GetParam(), kNan);
                for (std::int64_t c = 0; c < shape.value_dim; ++c)
                    p.value.at(key, n, c) = narrow(GetParam(), kNan);
            }
        }
        ASSERT_GT(spoilt, 0);
        run(clean);
        run(p);
        EXPECT_TRUE(Bits(p) == Bits(clean));
    }
}

// A NaN key reaches the rows that see it, in all channels and both statistics; a NaN value reaches
// its channel. Other rows keep their bits, and every list stays in range and distinct.
TEST_P(NsaCompressAttentionKernelTest, NanReachesWhatDependsOnIt) {
    const CompressShape shape{2, 2, 48, 48, {}, 3, {{40, 90}, {20, 30}}, true, true};
    for (const bool in_key : {true, false}) {
        for (const std::int64_t bad : {0, 17, 63, 64, 89, 95}) {
            CompressProblem clean(shape, GetParam()), p(shape, GetParam());
            run(clean);
            (in_key ? p.key : p.value).at(bad, 1, 21) = narrow(GetParam(), kNan);
            run(p);
            p.for_each_query([&](std::size_t b, std::int64_t t, std::int64_t s, std::int64_t n) {
                const std::int64_t begin = b == 0 ? 0 : p.key_ends[b - 1];
                const bool sees =
                    n == 1 && bad >= begin && bad < p.key_ends[b] && p.visible(s, bad - begin);
                for (std::int64_t head = 2 * n; head < 2 * n + 2; ++head) {
                    for (std::int64_t c = 0; c < 48; ++c) {
                        const bool depends = sees && (in_key || c == 21);
                        const std::uint16_t bits = p.output.at(t, head, c);
                        ASSERT_EQ(std::isnan(widen(GetParam(), bits)), depends) << t << " " << c;
                        if (!depends) {
                            ASSERT_EQ(bits, clean.output.at(t, head, c));
                        }
                    }
                    ASSERT_EQ(std::isnan(p.statistic(p.row_max, b, s, head, 0)), sees && in_key);
                    ASSERT_EQ(std::isnan(p.statistic(p.row_sum, b, s, head, 7)), sees && in_key);
                }
                const List list = list_of(p, t, n);
                if (!sees || !in_key) {
                    ASSERT_EQ(list, list_of(clean, t, n));
                }
                ASSERT_EQ(std::set(list.begin(), list.end()).size(), list.size());
                for (const std::int32_t block : list)
                    ASSERT_TRUE(block >= 0 && block < (b == 0 ? 23 : 8)) << block;
            });
        }
    }
}

// Logits of -inf beside finite ones have probability 0; +inf makes the row NaN.
TEST_P(NsaCompressAttentionKernelTest, InfiniteLogits) {
    CompressProblem p({1, 2, 16, 16, {}, 4, {{2, 100}}}, GetParam());
    for (std::int64_t t = 0; t < 2; ++t)
        for (std::int64_t head = 0; head < 2; ++head)
            p.query.at(t, head, 5) = narrow(GetParam(), 1.0f);
    for (std::int64_t i = 0; i < 70; ++i) p.key.at(i, 0, 5) = narrow(GetParam(), -kInfinity);
    run(p);
    expect_right(p);
    p.key.at(3, 0, 5) = narrow(GetParam(), kInfinity);
    run(p);
    EXPECT_TRUE(std::isnan(p.row_sum.at(0, 0, 0)));
    EXPECT_TRUE(std::isnan(widen(GetParam(), p.output.at(1, 1, 3))));
}

// No visible key: statistics and output by decision 2, all scores 0, so the first blocks; a forced
// one comes before them.
TEST_P(NsaCompressAttentionKernelTest, RowsWithoutAVisibleKey) {
    CompressProblem p({1, 2, 16, 16, {16, 16, 16}, 3, {{4, 70}}, true, true}, GetParam());
    for (std::int64_t i = 0; i < 70; ++i) {
        for (std::int64_t s = 0; s < 4; ++s) p.mask.at(0, s, i) = s < 2 || i != 33 ? 1 : 0;
        for (std::int64_t s = 0; s < 4; ++s) p.topk_mask.at(0, s, i) = s % 2 == 1 && i == 69;
    }
    run(p);
    expect_right(p);
    for (std::int64_t s = 0; s < 2; ++s) {
        EXPECT_EQ(p.statistic(p.row_max, 0, s, 1, 4), -kFloatMax);
        EXPECT_EQ(p.statistic(p.row_sum, 0, s, 1, 4), kFloatMax);
        EXPECT_EQ(p.output.at(s, 1, 9), 0);
    }
    EXPECT_EQ(list_of(p, 0), (List{0, 1, 2}));
    EXPECT_EQ(list_of(p, 1), (List{69, 0, 1}));
    // isM = isN = 1: block j has the score of P[j + 1].
    EXPECT_EQ(list_of(p, 2), (List{32, 0, 1}));
    EXPECT_EQ(list_of(p, 3), (List{69, 32, 0}));
}

// The first query that sees a block sees one only: P = 1 on block 0, whose window reaches it
// isN - 1 times (nsa.md 11, case 40).
TEST_P(NsaCompressAttentionKernelTest, OneVisibleBlock) {
    CompressProblem p({1, 4, 16, 16, {}, 4, {{32, 29}}, true}, GetParam());
    for (std::int64_t s = 0; s < 32; ++s)
        for (std::int64_t i = 0; i < 29; ++i) p.mask.at(0, s, i) = i * 16 + 31 <= s ? 0 : 1;
    run(p);
    for (std::int64_t head = 0; head < 4; ++head) {
        EXPECT_EQ(p.statistic(p.row_max, 0, 30, head, 0), -kFloatMax);
        EXPECT_EQ(p.statistic(p.row_sum, 0, 31, head, 0), 1.0f);
        for (std::int64_t c = 0; c < 16; ++c)
            EXPECT_EQ(p.output.at(31, head, c), p.value.at(0, 0, c));
    }
    EXPECT_EQ(list_of(p, 31), (List{0, 1, 2, 3}));
}

// A forced block is listed whatever its score; of too many the first ones stay.
TEST_P(NsaCompressAttentionKernelTest, ForcedBlocks) {
    CompressProblem p({1, 1, 16, 16, {16, 16, 16}, 3, {{4, 40}}, false, true}, GetParam());
    const std::set<std::int64_t> forced[] = {{5, 7, 11, 13, 39}, {39, 2, 0}, {38}, {}};
    for (std::int64_t s = 0; s < 4; ++s) {
        for (std::int64_t j = 0; j < 40; ++j)
            p.topk_mask.at(0, s, j) = forced[s].contains(j) ? static_cast<std::uint8_t>(j + 1) : 0;
        for (std::int64_t c = 0; c < 16; ++c) p.query.at(s, 0, c) = 0;
    }
    run(p);
    EXPECT_EQ(list_of(p, 0), (List{5, 7, 11}));
    EXPECT_EQ(list_of(p, 1), (List{0, 2, 39}));
    EXPECT_EQ(list_of(p, 2), (List{38, 0, 1}));
    EXPECT_EQ(list_of(p, 3), (List{0, 1, 2}));
}

// Equal logits, sums that are no powers of two: all complete windows tie in their bits. The last
// block misses the index Cmp; for isN > 2 the first one misses some too (nsa.md 11, case 38).
TEST_P(NsaCompressAttentionKernelTest, EqualScoresKeepTheOrderOfTheBlocks) {
    for (const std::int64_t group_size : {1, 4, 64}) {
        for (const std::int64_t keys : {60, 57, 92, 140}) {
            for (const Geometry& geometry : {Geometry{32, 16, 64}, Geometry{64, 16, 64}}) {
                const std::int64_t blocks = geometry.candidates(keys);
                CompressProblem p({1,
                                   group_size,
                                   16,
                                   16,
                                   geometry,
                                   std::min<std::int64_t>(blocks, 32),
                                   {{3, keys}}},
                                  GetParam());
                SelectedProblem::for_each_element(p.query, [](auto& element) { element = 0; });
                run(p);
                List wanted;
                const std::int32_t first = geometry.is_n() > 2 ? 1 : 0;
                for (std::int32_t j = first; j + 1 < blocks; ++j) wanted.push_back(j);
                // Windows of 5 or 7: the first has isN - 2 terms less, in steps of 1.
                const double at_start = expected_scores(
                    std::vector<double>(static_cast<std::size_t>(keys), 1.0), geometry)[0];
                const double at_end =
                    expected_scores(std::vector<double>(static_cast<std::size_t>(keys), 1.0),
                                    geometry)
                        .back();
                if (first == 1 && at_start >= at_end) wanted.push_back(0);
                wanted.push_back(static_cast<std::int32_t>(blocks - 1));
                if (first == 1 && at_start < at_end) wanted.push_back(0);
                wanted.resize(static_cast<std::size_t>(p.shape.count));
                EXPECT_EQ(list_of(p, 1), wanted) << group_size << " " << keys;
            }
        }
    }
}

// Scale 0: a block's score counts the visible keys of its window, and equal counts tie however the
// mask arranges them.
TEST_P(NsaCompressAttentionKernelTest, EqualScoresOfUnequalWindowsTie) {
    for (const std::int64_t group_size : {1, 4}) {
        CompressProblem p(
            {2, group_size, 16, 16, {64, 16, 128}, 6, {{60, 100}}, true, true, 0, 0, 0.0},
            GetParam());
        run(p);
        expect_right(p);
    }
}

TEST_P(NsaCompressAttentionKernelTest, AnyFiniteScaleIsLegal) {
    for (const double scale : {0.0, -0.0, -0.0625, 1.0, 0.1, 1e-300}) {  // 0.1 is not a float
        CompressProblem p({1, 4, 64, 32, {}, 3, {{30, 48}}, true, false, 0, 0, scale}, GetParam());
        run(p);
        expect_right(p);
    }
}

TEST_P(NsaCompressAttentionKernelTest, LargeLogitsDoNotOverflow) {
    for (const float step : {-300.0f, 1000000.0f}) {
        CompressProblem p({1, 1, 16, 16, {}, 2, {{1, 32}}, false, false, 0, 0, step}, GetParam());
        for (std::int64_t c = 0; c < 16; ++c) {
            p.query.at(0, 0, c) = narrow(GetParam(), c == 0 ? 1.0f : 0.0f);
            for (std::int64_t i = 0; i < 32; ++i)
                p.key.at(i, 0, c) = narrow(GetParam(), i % 2 ? 2.0f : 1.0f);
        }
        run(p);
        expect_right(p);
        EXPECT_EQ(p.row_sum.at(0, 0, 0), 16.0f);
    }
}

// The mean of large values is finite although their sum is not; a row beside them with an infinite
// value is not.
TEST_P(NsaCompressAttentionKernelTest, SumsBeforeTheDivisionMayOverflow) {
    CompressProblem p({1, 2, 16, 16, {}, 2, {{3, 1000}}, true}, GetParam());
    const std::uint16_t largest = GetParam() == HalfFormat::kFp16 ? 0x7bff : 0x7f7f;
    for (std::int64_t i = 0; i < 1000; ++i) {
        for (std::int64_t c = 0; c < 16; ++c) p.value.at(i, 0, c) = c % 2 ? largest : 0x3c00;
        for (std::int64_t s = 0; s < 3; ++s) p.mask.at(0, s, i) = s == 1 && i == 999;
    }
    p.value.at(999, 0, 7) = narrow(GetParam(), kInfinity);
    run(p);
    for (std::int64_t s = 0; s < 3; ++s) {
        for (std::int64_t c = 0; c < 16; ++c) {
            if (s != 1 && c == 7) {
                EXPECT_FALSE(std::isfinite(widen(GetParam(), p.output.at(s, 1, c))));
            } else {
                EXPECT_EQ(p.output.at(s, 1, c), c % 2 ? largest : 0x3c00) << s << " " << c;
            }
        }
    }
}

// The longest legal sequence, with a window that reaches its end.
TEST_P(NsaCompressAttentionKernelTest, FourteenThousandCompressedKeys) {
    CompressProblem p({1, 2, 16, 16, {16, 16, 16}, 32, {{3, 14000}, {2, 13999}}, true, true},
                      GetParam());
    run(p);
    expect_right(p);
}

// The values of the public example (acl_host.md 8, E10 and E11): equal logits everywhere. Blocks 0
// to 14 have the score G * 8/64; the last one misses P[64] and has 7/64.
TEST_P(NsaCompressAttentionKernelTest, PublicExample) {
    CompressProblem p({4, 4, 192, 128, {}, 16, {{1024, 64}}, true, true, 0, 0, 1.0}, GetParam());
    for (HalfTensor* tensor : {&p.query, &p.key, &p.value}) {
        SelectedProblem::for_each_element(
            *tensor, [](auto& element) { element = narrow(GetParam(), 1.0f); });
    }
    for (TestTensor<std::uint8_t>* mask : {&p.mask, &p.topk_mask})
        SelectedProblem::for_each_element(*mask, [](auto& element) { element = 0; });
    auto args = p.args();
    args.atten_mask.dtype = args.topk_mask.dtype = ATTNCHECK_UINT8;
    ASSERT_EQ(attncheck_nsa_compress_attention(&args), ATTNCHECK_OK);
    for (const float value : p.row_max.logical()) ASSERT_EQ(value, 192.0f);
    for (const float value : p.row_sum.logical()) ASSERT_EQ(value, 64.0f);
    for (const std::uint16_t bits : p.output.logical()) ASSERT_EQ(widen(GetParam(), bits), 1.0f);
    List wanted;
    for (std::int32_t j = 0; j < 16; ++j) wanted.push_back(j);
    for (std::int64_t t = 0; t < 1024; ++t)
        for (std::int64_t n = 0; n < 4; ++n) ASSERT_EQ(list_of(p, t, n), wanted);
}

// Nothing but empty sequences is legal: every output row is beyond.
TEST_P(NsaCompressAttentionKernelTest, OnlyEmptySequences) {
    CompressProblem p({1, 2, 16, 16, {}, 2, {{0, 0}, {0, 0}}, true, true, 3, 1}, GetParam());
    run(p);
    expect_right(p);
}

TEST_P(NsaCompressAttentionKernelTest, RejectedCallsLeaveOutputsAlone) {
    CompressProblem p(long_shapes()[0], GetParam());
    p.selected_ends.back() += 1;
    const auto args = p.args();
    EXPECT_EQ(attncheck_nsa_compress_attention(&args), ATTNCHECK_ERR_INVALID);
    EXPECT_EQ(p.output.poisoned(), std::ssize(p.output.storage));
    EXPECT_EQ(p.row_max.poisoned(), std::ssize(p.row_max.storage));
    EXPECT_EQ(p.row_sum.poisoned(), std::ssize(p.row_sum.storage));
    EXPECT_EQ(p.topk.poisoned(), std::ssize(p.topk.storage));
}

INSTANTIATE_TEST_SUITE_P(Formats, NsaCompressAttentionKernelTest,
                         testing::Values(HalfFormat::kFp16, HalfFormat::kBf16),
                         [](const auto& param_info) {
                             return std::string(param_info.param == HalfFormat::kFp16 ? "Fp16"
                                                                                      : "Bf16");
                         });

}  // namespace
}  // namespace attncheck::impl
