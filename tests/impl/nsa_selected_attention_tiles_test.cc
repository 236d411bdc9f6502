// What going block by block adds to the calls of nsa_selected_attention_kernel_test.cc: chunks and
// slices of queries, lists turned round, elements for which a tile is computed in another way. The
// tests of numbers that pair products would flush hold on every machine and say something where
// there are any.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "impl/operators/selection/selected_key_sums.h"
#include "impl/operators/selection/selected_tile.h"
#include "impl/runtime/thread_pool.h"
#include "nsa_selected_attention_checks.h"
#include "print_half_format.h"

namespace attncheck::impl {
namespace {

class NsaSelectedAttentionTilesTest : public testing::TestWithParam<HalfFormat> {
protected:
    void TearDown() override { set_num_threads(0); }
};

// A chunk has 256 rows at least: 8 queries of a group of 32, 15 of one of 17 (an odd number of rows
// in most tiles). 700 queries of one head are three slices, whose last chunk is not full.
std::vector<SelectedShape> chunked_shapes() {
    return {
        {1, 32, 128, 128, 16, 3, Sees::kCausal, {{70, 96}, {0, 48}, {33, 64}, {16, 0}}, 3, 7},
        {1, 17, 192, 128, 48, 2, Sees::kMask, {{61, 144}, {31, 96}}, 0, 5},
        {2, 1, 128, 128, 16, 2, Sees::kCausal, {{5, 32}, {700, 96}}, 1, 0},
        {1, 3, 192, 192, 128, 2, Sees::kAll, {{200, 384}}, 0, 0},
    };
}

TEST_P(NsaSelectedAttentionTilesTest, ChunksAndSlicesAgreeWithPlainLoops) {
    for (const SelectedShape& shape : chunked_shapes()) {
        SCOPED_TRACE(testing::Message() << "G " << shape.group_size);
        SelectedProblem p(shape, GetParam());
        run(p);
        expect_right(p);
    }
}

// All queries list one block, and some all of its copies: the most rows that a block can meet and
// the most rounds.
TEST_P(NsaSelectedAttentionTilesTest, EveryQueryMayListOneBlockOnly) {
    for (const Sees sees : {Sees::kAll, Sees::kCausal, Sees::kMask}) {
        SelectedProblem p({1, 17, 128, 128, 16, 8, sees, {{70, 128}}}, GetParam());
        for (std::int64_t t = 0; t < 70; ++t) {
            for (std::int64_t i = 0; i < 8; ++i)
                p.topk.at(t, 0, i) = t % 3 == 0 ? 2 : static_cast<std::int32_t>(i == 5 ? 2 : i);
        }
        run(p);
        expect_right(p);
    }
}

TEST_P(NsaSelectedAttentionTilesTest, BitsDoNotDependOnThreads) {
    for (const SelectedShape& shape : chunked_shapes()) {
        SelectedProblem one(shape, GetParam());
        set_num_threads(1);
        run(one);
        for (const int threads : {2, 5}) {
            SelectedProblem many(shape, GetParam());
            set_num_threads(threads);
            run(many);
            EXPECT_TRUE(Bits(many) == Bits(one)) << threads;
        }
    }
}

// Queries [begin, end) of the only sequence of `whole` make the only sequence of the result, and
// stand behind another one.
SelectedProblem in_company(SelectedProblem& whole) {
    SelectedShape shape = whole.shape;
    const auto own = shape.lengths[0];
    const std::pair<std::int64_t, std::int64_t> other{9, 8 * own.second};
    shape.lengths = {other, own, {3, shape.block * shape.count}};
    SelectedProblem p(shape, whole.format);
    const auto copy = [](auto& from, auto& to, std::int64_t rows, std::int64_t skip) {
        for (std::int64_t i = 0; i < rows; ++i) {
            for (std::int64_t j = 0; j < from.shape[1]; ++j) {
                for (std::int64_t k = 0; k < from.shape[2]; ++k)
                    to.at(skip + i, j, k) = from.at(i, j, k);
            }
        }
    };
    copy(whole.query, p.query, own.first, other.first);
    copy(whole.output_grad, p.output_grad, own.first, other.first);
    copy(whole.topk, p.topk, own.first, other.first);
    copy(whole.key, p.key, own.second, other.second);
    copy(whole.value, p.value, own.second, other.second);
    return p;
}

// Lengths of other sequences, and so what else is in a unit of work, change no bits.
TEST_P(NsaSelectedAttentionTilesTest, ASequenceHasTheSameBitsInAnyCompany) {
    for (SelectedShape shape : chunked_shapes()) {
        if (shape.sees == Sees::kMask) continue;  // its rows are longer in company
        shape.lengths = {shape.lengths.size() > 2 ? shape.lengths[0] : shape.lengths.back()};
        shape.spare_queries = shape.spare_keys = 0;
        SelectedProblem alone(shape, GetParam());
        run(alone);
        SelectedProblem together = in_company(alone);
        run(together);
        const auto expect_same = [](auto& wanted, auto& actual, std::int64_t skip,
                                    const char* name) {
            for (std::int64_t i = 0; i < wanted.shape[0]; ++i) {
                for (std::int64_t j = 0; j < wanted.shape[1]; ++j) {
                    for (std::int64_t k = 0; k < wanted.shape[2]; ++k)
                        ASSERT_EQ(wanted.at(i, j, k), actual.at(skip + i, j, k))
                            << name << " " << i << " " << j << " " << k;
                }
            }
        };
        const auto [queries, keys] = together.shape.lengths[0];
        expect_same(alone.output, together.output, queries, "output");
        expect_same(alone.row_max, together.row_max, queries, "softmax_max");
        expect_same(alone.row_sum, together.row_sum, queries, "softmax_sum");
        expect_same(alone.dq, together.dq, queries, "dq");
        expect_same(alone.dk, together.dk, keys, "dk");
        expect_same(alone.dv, together.dv, keys, "dv");
    }
}

// Which elements of an output may change with one element of an input.
using DependsOn = std::function<bool(std::int64_t, std::int64_t, std::int64_t)>;

void expect_same_elsewhere(HalfTensor& actual, HalfTensor& clean, const char* name,
                           const DependsOn& depends) {
    for (std::int64_t i = 0; i < actual.shape[0]; ++i) {
        for (std::int64_t j = 0; j < actual.shape[1]; ++j) {
            for (std::int64_t k = 0; k < actual.shape[2]; ++k) {
                if (depends(i, j, k)) continue;
                ASSERT_EQ(actual.at(i, j, k), clean.at(i, j, k))
                    << name << " " << i << " " << j << " " << k;
            }
        }
    }
}

// Two chunks of which all queries meet block 0; half the keys are hidden by the mask.
struct OneElement {
    static constexpr std::int64_t kBadHead = 33, kGroup = 32;
    SelectedShape shape{2, kGroup, 128, 128, 16, 2, Sees::kMask, {{20, 48}, {9, 32}}, 1, 1};
    SelectedProblem clean, p;
    const Pairs pairs{p};

    explicit OneElement(HalfFormat format) : clean(shape, format), p(shape, format) {}

    bool sees(std::int64_t t, std::int64_t head, std::int64_t key) const {
        return head / kGroup == 1 && pairs.sees(t, 1, key);
    }

    // What may follow a row of q or dO (token t, head kBadHead), or of K or V (kv head 1).
    static DependsOn row_of_query(std::int64_t query) {
        return [=](std::int64_t t, std::int64_t head, std::int64_t) {
            return t == query && head == kBadHead;
        };
    }
    DependsOn keys_of_query(std::int64_t query) const {
        return [=, this](std::int64_t j, std::int64_t n, std::int64_t) {
            return n == 1 && pairs.sees(query, 1, j);
        };
    }
    static DependsOn row_of_key(std::int64_t key) {
        return [=](std::int64_t j, std::int64_t n, std::int64_t) { return n == 1 && j == key; };
    }
    DependsOn queries_of_key(std::int64_t key) const {
        return [=, this](std::int64_t t, std::int64_t head, std::int64_t) {
            return sees(t, head, key);
        };
    }
    DependsOn neighbours_of_key(std::int64_t key) const {
        return [=, this](std::int64_t j, std::int64_t n, std::int64_t) {
            return n == 1 && pairs.share_query(1, key, j);
        };
    }
    static DependsOn in_channel(std::int64_t channel, const DependsOn& depends) {
        return [=](std::int64_t i, std::int64_t j, std::int64_t c) {
            return c == channel && depends(i, j, c);
        };
    }
    static DependsOn nothing() {
        return [](auto...) { return false; };
    }

    void expect_same(const DependsOn& output, const DependsOn& dq, const DependsOn& dk,
                     const DependsOn& dv) {
        expect_same_elsewhere(p.output, clean.output, "output", output);
        expect_same_gradient(dq, dk, dv);
    }
    void expect_same_gradient(const DependsOn& dq, const DependsOn& dk, const DependsOn& dv) {
        expect_same_elsewhere(p.dq, clean.dq, "dq", dq);
        expect_same_elsewhere(p.dk, clean.dk, "dk", dk);
        expect_same_elsewhere(p.dv, clean.dv, "dv", dv);
    }
};

struct NotPlain : testing::Test, OneElement {
    NotPlain() : OneElement(HalfFormat::kBf16) {}

    // The gradient of the clean output and statistics, so that dP alone follows a value.
    void gradient_of_clean_forward() {
        p.output = clean.output;
        p.row_max = clean.row_max;
        p.row_sum = clean.row_sum;
        gradient(p);
    }
    void expect_right_gradient() {
        ExpectedGradient g = expected_gradient(p);
        expect_near(p, p.dq, g.dq, "dq");
        expect_near(p, p.dk, g.dk, "dk");
        expect_near(p, p.dv, g.dv, "dv");
    }
};

// Numbers whose products the instruction would flush or overflow, the largest of them too large
// for fp32 sums of their products.
constexpr float kNotPlain[] = {0x1p-133f, -0x1p-100f, 0x1p-39f, 0x1p20f, -0x1p40f};
// What neither makes P one-hot nor leaves dP finite but useless.
constexpr float kLogitSized[] = {0x1p-133f, -0x1p-100f, 0x1p-39f};

TEST_F(NotPlain, InAQueryIsComputedExactlyAndNowhereElse) {
    run(clean);
    for (const float number : kLogitSized) {
        p = clean;
        p.query.at(17, kBadHead, 3) = narrow(HalfFormat::kBf16, number);
        run(p);
        expect_right(p);
        expect_same(row_of_query(17), row_of_query(17), keys_of_query(17), keys_of_query(17));
    }
}

TEST_F(NotPlain, InAKeyIsComputedExactlyAndNowhereElse) {
    run(clean);
    for (const float number : kLogitSized) {
        p = clean;
        p.key.at(5, 1, 77) = narrow(HalfFormat::kBf16, number);
        run(p);
        expect_right(p);
        expect_same(queries_of_key(5), queries_of_key(5), neighbours_of_key(5),
                    neighbours_of_key(5));
    }
}

TEST_F(NotPlain, InAValueIsComputedExactlyAndNowhereElse) {
    run(clean);
    for (const float number : kNotPlain) {
        p = clean;
        p.value.at(5, 1, 99) = narrow(HalfFormat::kBf16, number);
        forward(p);
        ExpectedForward e = expected_forward(p);
        expect_near(p, p.output, e.output, "attention_out");
        EXPECT_EQ(p.row_max.logical(), clean.row_max.logical());
        EXPECT_EQ(p.row_sum.logical(), clean.row_sum.logical());
        expect_same_elsewhere(p.output, clean.output, "output", in_channel(99, queries_of_key(5)));
        gradient_of_clean_forward();
        expect_right_gradient();
        expect_same_gradient(queries_of_key(5), row_of_key(5), nothing());
    }
}

TEST_F(NotPlain, InAnOutputGradientIsComputedExactlyAndNowhereElse) {
    run(clean);
    for (const float number : kNotPlain) {
        p = clean;
        p.output_grad.at(17, kBadHead, 99) = narrow(HalfFormat::kBf16, number);
        gradient(p);
        expect_right_gradient();
        expect_same_gradient(row_of_query(17), keys_of_query(17),
                             in_channel(99, keys_of_query(17)));
    }
}

// Weights of 2^20 and more come from statistics alone.
TEST_F(NotPlain, WeightsComeFromGivenStatisticsToo) {
    run(clean);
    p = clean;
    p.row_sum.at(17, kBadHead, 0) *= 0x1p-40f;
    gradient(p);
    expect_right_gradient();
    expect_same_gradient(row_of_query(17), keys_of_query(17), keys_of_query(17));
}

void shrink(HalfTensor& tensor, float factor) {
    for (std::uint16_t& half : tensor.storage)
        half = narrow(HalfFormat::kBf16, widen(HalfFormat::kBf16, half) * factor);
}

// Whole tensors of tiny numbers: nothing of the result would be left of them. Queries and keys that
// are subnormal matter where the scale takes that back.
TEST_F(NotPlain, WholeTensorsAreNotFlushed) {
    for (HalfTensor SelectedProblem::* tensor :
         {&SelectedProblem::value, &SelectedProblem::output_grad}) {
        SelectedProblem tiny(shape, HalfFormat::kBf16);
        shrink(tiny.*tensor, 0x1p-60f);
        run(tiny);
        expect_right(tiny);
    }
    SelectedShape scaled = shape;
    scaled.scale = 0x1p124;
    for (HalfTensor SelectedProblem::* tensor : {&SelectedProblem::query, &SelectedProblem::key}) {
        SelectedProblem tiny(scaled, HalfFormat::kBf16);
        shrink(tiny.*tensor, 0x1p-128f);
        run(tiny);
        // dk of tiny queries, and dq of tiny keys, are moderate; the other one is beyond fp32.
        ExpectedForward e = expected_forward(tiny);
        expect_near(tiny, tiny.output, e.output, "attention_out");
        expect_statistics(tiny, e);
        ExpectedGradient g = expected_gradient(tiny);
        if (tensor == &SelectedProblem::query) expect_near(tiny, tiny.dk, g.dk, "dk");
        if (tensor == &SelectedProblem::key) expect_near(tiny, tiny.dq, g.dq, "dq");
        expect_near(tiny, tiny.dv, g.dv, "dv");
    }
}

// NaN or infinity sends a tile another way; what does not depend on it keeps its bits.
TEST_P(NsaSelectedAttentionTilesTest, WhatIsNotFiniteChangesNothingElse) {
    OneElement one(GetParam());
    SelectedProblem& p = one.p;
    const std::int64_t query = 17, head = OneElement::kBadHead, key = 5, channel = 99;
    const DependsOn row = one.row_of_query(query), keys = one.keys_of_query(query),
                    rows = one.queries_of_key(key), neighbours = one.neighbours_of_key(key);
    run(one.clean);
    for (const float number :
         {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
          std::numeric_limits<float>::quiet_NaN()}) {
        const std::uint16_t bad = narrow(GetParam(), number);
        p = one.clean;
        p.query.at(query, head, channel) = bad;
        run(p);
        one.expect_same(row, row, keys, keys);
        p = one.clean;
        p.output_grad.at(query, head, channel) = bad;
        run(p);
        one.expect_same(one.nothing(), row, keys, one.in_channel(channel, keys));
        p = one.clean;
        p.key.at(key, 1, channel) = bad;
        run(p);
        one.expect_same(rows, rows, neighbours, neighbours);
        p = one.clean;
        p.value.at(key, 1, channel) = bad;
        run(p);
        one.expect_same(one.in_channel(channel, rows), rows, neighbours, one.nothing());
    }
}

// A sum that a later block makes vanish, and a negative share of that block that vanishes too: a
// hidden NaN there, which sends the tile another way, decides about no sign.
TEST_P(NsaSelectedAttentionTilesTest, WhatVanishesHasNoSign) {
    SelectedProblem clean({1, 1, 128, 128, 16, 2, Sees::kMask, {{1, 32}}, 0, 0, 1.0}, GetParam());
    const auto number = [](float value) { return narrow(GetParam(), value); };
    for (HalfTensor* tensor : {&clean.query, &clean.key, &clean.value})
        std::fill(tensor->storage.begin(), tensor->storage.end(), std::uint16_t{0});
    for (std::int64_t j = 0; j < 32; ++j) clean.mask.at(0, 0, j) = j > 0 && j < 16 ? 1 : 0;
    for (std::int32_t i = 0; i < 2; ++i) clean.topk.at(0, 0, i) = i;
    clean.query.at(0, 0, 0) = number(1);
    clean.key.at(16, 0, 0) = number(120);
    clean.key.at(31, 0, 0) = number(17);  // exp(17 - 120) is about 2^-149
    clean.value.at(0, 0, 0) = number(-1);
    clean.value.at(31, 0, 0) = number(-0.25f);
    clean.mask.at(0, 0, 19) = 1;
    SelectedProblem p = clean;
    p.value.at(19, 0, 0) = number(std::numeric_limits<float>::quiet_NaN());
    forward(clean);
    forward(p);
    EXPECT_EQ(p.output.logical(), clean.output.logical());
}

// A negative sum that a later block makes vanish, and a block behind that of which the row sees
// nothing: whether another row of the tile does decides about no sign.
TEST_P(NsaSelectedAttentionTilesTest, ATileWithoutAVisibleKeyChangesNoSign) {
    SelectedProblem alone({1, 1, 128, 128, 16, 3, Sees::kMask, {{2, 48}}, 0, 0, 1.0}, GetParam());
    const auto number = [](float value) { return narrow(GetParam(), value); };
    for (HalfTensor* tensor : {&alone.query, &alone.key, &alone.value})
        std::fill(tensor->storage.begin(), tensor->storage.end(), std::uint16_t{0});
    for (std::int64_t t = 0; t < 2; ++t) {
        for (std::int64_t j = 0; j < 48; ++j)
            alone.mask.at(0, t, j) = t == 0 && (j == 0 || j == 16) ? 0 : 1;
        for (std::int32_t i = 0; i < 3; ++i) alone.topk.at(t, 0, i) = i;
    }
    alone.query.at(0, 0, 0) = number(1);
    alone.key.at(16, 0, 0) = number(103);  // exp(-103) is about 2^-149
    alone.value.at(0, 0, 0) = number(-0.125f);
    SelectedProblem p = alone;
    p.mask.at(0, 1, 35) = 0;
    forward(alone);
    forward(p);
    for (std::int64_t c = 0; c < 128; ++c)
        EXPECT_EQ(p.output.at(0, 0, c), alone.output.at(0, 0, c)) << c;
}

INSTANTIATE_TEST_SUITE_P(Formats, NsaSelectedAttentionTilesTest,
                         testing::Values(HalfFormat::kFp16, HalfFormat::kBf16),
                         [](const auto& param_info) {
                             return std::string(param_info.param == HalfFormat::kFp16 ? "Fp16"
                                                                                      : "Bf16");
                         });

// The mean of the values of a row is finite, its sums before the division are not; other rows of
// the chunk, and other channels, keep their bits.
TEST(SelectedTileTest, OnlySumsThatOverflowAreComputedAgain) {
    const SelectedShape shape{1, 4, 128, 128, 128, 3, Sees::kAll, {{40, 640}}};
    SelectedProblem clean(shape, HalfFormat::kBf16);
    for (std::int64_t t = 0; t < 40; ++t) {
        for (std::int64_t i = 0; i < 3; ++i)
            clean.topk.at(t, 0, i) =
                static_cast<std::int32_t>(t % 2 + 2 * i - (t % 2 && i == 2 ? 2 : 0));
    }
    SelectedProblem p = clean;
    for (std::int64_t j = 0; j < 128; ++j) p.value.at(j, 0, 7) = 0x7f7f;
    forward(clean);
    forward(p);
    ExpectedForward e = expected_forward(p);
    for (std::int64_t t = 0; t < 40; ++t) {
        for (std::int64_t head = 0; head < 4; ++head) {
            for (std::int64_t c = 0; c < 128; ++c) {
                if (t % 2 == 0 && c == 7) {
                    const double got = p.number(p.output, t, head, c),
                                 wanted = e.output.at(t, head, c).value;
                    ASSERT_TRUE(std::abs(got - wanted) <= 0x1p-7 * wanted) << got << " " << wanted;
                } else {
                    ASSERT_EQ(p.output.at(t, head, c), clean.output.at(t, head, c));
                }
            }
        }
    }
}

// Lists turned round: blocks ascend, queries ascend, copies come in later rounds, future blocks not
// at all; the visible pairs of all tiles are those of the lists.
TEST(SelectedTileTest, TilesHoldEveryVisiblePairAsOftenAsItIsListed) {
    for (const Sees sees : {Sees::kAll, Sees::kCausal, Sees::kMask}) {
        SelectedProblem p({2, 5, 128, 128, 32, 3, sees, {{3, 96}, {90, 160}}, 1, 1},
                          HalfFormat::kBf16);
        const KeySelection selection(p.forward_args());
        std::multiset<std::tuple<std::int64_t, std::int64_t, std::int64_t>> wanted, found;
        p.for_each_pair(
            [&](std::int64_t t, std::int64_t n, std::int64_t key) { wanted.insert({t, n, key}); });
        BlockLists lists(selection);
        SelectedTile tile(selection, 5);
        for (const auto& [begin, end] : {std::pair{0, 3}, {3, 40}, {40, 93}}) {
            for (std::int64_t n = 0; n < 2; ++n) {
                const SelectedChunk chunk{selection.sequence_of_query(begin), n, begin, end};
                std::vector<std::uint8_t> query_sees(static_cast<std::size_t>(chunk.size())),
                    flags(kSelectedTileRows * kFlashTileKeys);
                lists.start(chunk);
                lists.for_each_block(
                    [&](std::int64_t block, const std::int32_t* queries, std::int64_t count) {
                        EXPECT_TRUE(std::is_sorted(queries, queries + count, std::less_equal<>()));
                        const auto visit = [&](const std::int32_t* some, std::int64_t size) {
                            ASSERT_LE(size * 5, kSelectedTileRows);
                            tile.start(chunk, block, some, size, query_sees.data());
                            tile.mark_seen(flags.data());
                            std::vector<float> matrix(flags.size(), 1.0f);
                            tile.fill_hidden(matrix.data(), 0.0f);
                            for (std::int64_t row = 0; row < size * 5; ++row) {
                                for (std::int64_t key = 0; key < 32; ++key) {
                                    const auto at =
                                        static_cast<std::size_t>(row * kFlashTileKeys + key);
                                    if (key < tile.cols()) {
                                        ASSERT_EQ(matrix[at] != 0, flags[at] != 0);
                                    }
                                    if (flags[at] == 0) continue;
                                    ASSERT_LT(key, tile.cols());
                                    if (row % 5 == 0) {
                                        found.insert(
                                            {begin + some[row / 5], n, tile.key_token() + key});
                                    }
                                }
                            }
                        };
                        for_each_tile_of_block(queries, count, 5, visit);
                    });
            }
        }
        EXPECT_EQ(found, wanted);
    }
}

TEST(SelectedTileTest, SlicesCoverEveryQueryOnce) {
    for (const std::int64_t floats_per_key : {320, 200000, 8000000}) {
        SelectedProblem p({1,
                           1,
                           128,
                           128,
                           16,
                           1,
                           Sees::kAll,
                           {{5, 16}, {3000, 64}, {0, 16}, {257, 0}, {300, 32}},
                           9},
                          HalfFormat::kBf16);
        const KeySelection selection(p.forward_args());
        const QuerySlices slices(selection, floats_per_key);
        std::int64_t next = 0, most = 0;
        for (std::int64_t unit = 0; unit < slices.num_units(); ++unit) {
            slices.for_each_slice(unit, [&](const QuerySlices::Slice& slice) {
                EXPECT_EQ(slice.begin, next);
                EXPECT_LT(slice.begin, slice.end);
                EXPECT_LE(slice.sequence.query_begin, slice.begin);
                EXPECT_LE(slice.end, slice.sequence.query_end);
                next = slice.end;
                most = std::max(most, slice.index + 1);
            });
        }
        EXPECT_EQ(next, selection.num_queries());
        EXPECT_EQ(most, slices.num_slices());
        EXPECT_EQ(most, floats_per_key == 320 ? 8 : floats_per_key == 200000 ? 5 : 1);
    }
}

TEST(SelectedTileTest, SlicesHaveEqualWorkUnderTheCausalMask) {
    SelectedProblem p({1, 1, 128, 128, 16, 8, Sees::kCausal, {{700, 48}, {3000, 64}}, 9},
                      HalfFormat::kBf16);
    const KeySelection selection(p.forward_args());
    const QuerySlices slices(selection, 320);
    std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> work;  // of sequence and slice
    std::map<std::int64_t, std::int64_t> total, num_slices;
    for (std::int64_t unit = 0; unit < slices.num_units(); ++unit) {
        slices.for_each_slice(unit, [&](const QuerySlices::Slice& slice) {
            const std::int64_t begin = slice.sequence.query_begin;
            ++num_slices[begin];
            for (std::int64_t token = slice.begin; token < slice.end; ++token) {
                // 8 listed blocks of 16 keys; a query's row is loaded and written once
                const std::int64_t blocks = std::min<std::int64_t>(8, (token - begin) / 16 + 1) + 1;
                work[{begin, slice.index}] += blocks;
                total[begin] += blocks;
            }
        });
    }
    EXPECT_EQ(num_slices, (std::map<std::int64_t, std::int64_t>{{0, 3}, {700, 8}}));
    for (const auto& [slice, blocks] : work) {
        const std::int64_t sequence = slice.first;
        EXPECT_NEAR(static_cast<double>(blocks * num_slices[sequence]),
                    static_cast<double>(total[sequence]), 9.0 * num_slices[sequence])
            << "slice " << slice.second << " of the sequence at " << sequence;
    }
}

}  // namespace
}  // namespace attncheck::impl
