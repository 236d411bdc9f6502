// Which keys a query of FlashAttentionScore sees, with which bias, and which of them dropout keeps;
// the smoke values of the vendor's examples. Worked examples: flash_attention.md 2.9, 3.2 to 3.5.
#include "ref/operators/flash_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

namespace attncheck::ref {
namespace {

using Values = std::vector<double>;
using Numbers = std::vector<std::int64_t>;

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

/// Sequences packed one behind the other, one head, everything of dimension one.
FlashAttentionShape packed(Numbers query_lengths, Numbers kv_lengths) {
    FlashAttentionShape shape;
    for (const auto length : query_lengths) shape.total_queries += length;
    for (const auto length : kv_lengths) shape.total_keys += length;
    shape.query_lengths = std::move(query_lengths), shape.kv_lengths = std::move(kv_lengths);
    shape.packed = true;
    return shape;
}

FlashAttentionShape with_mask(FlashAttentionShape shape, std::int64_t mode, std::int64_t pre = 0,
                              std::int64_t next = 0, Numbers prefix = {}) {
    shape.mask = {true, mode, pre, next, {2048, 2048}, std::move(prefix), {}};
    return shape;
}

/// One line for each query of a sequence: x a key that is seen, . one that is not.
std::string picture(const FlashAttentionShape& shape, std::size_t sequence = 0,
                    std::int64_t head = 0) {
    std::string text;
    for (std::int64_t i = 0; i < shape.query_lengths[sequence]; ++i) {
        for (std::int64_t j = 0; j < shape.kv_lengths[sequence]; ++j)
            text += is_visible(shape, SequenceStarts(shape), sequence, head, i, j) ? 'x' : '.';
        text += ' ';
    }
    return text;
}

std::vector<KeyColumn> columns_of(const FlashAttentionShape& shape, std::int64_t row,
                                  std::int64_t head = 0) {
    std::vector<KeyColumn> columns;
    EXPECT_TRUE(flash_columns(shape)(row, head, columns));
    return columns;
}

/// The vendor's example: ones everywhere, 256 queries and keys, D 128, a mask that hides nothing.
struct Example {
    FlashAttentionShape shape;
    Values ones = Values(256 * 128, 1.0);

    Example() {
        shape.query_lengths = shape.kv_lengths = {256};
        shape.total_queries = shape.total_keys = 256;
        shape.head_dim = shape.value_dim = 128;
        shape.scale = static_cast<float>(1 / std::sqrt(128.0));
        shape.mask = {true, 0, 2147483647, 2147483647, {256, 256}, {}, {}};
        shape.mask.values.assign(256 * 256, 0);
    }
    AttentionInputs<double> inputs() const { return {ones, ones, ones, shape.scale, 1}; }
};

TEST(FlashAttention, MatchesTheForwardOfTheExamples) {
    const Example e;
    const auto f =
        expected_attention({e.shape.dense(), flash_columns(e.shape), e.inputs()}, Dtype::fp32);
    for (const double o : f.output.value) ASSERT_DOUBLE_EQ(o, 1);
    for (const double m : f.row_max.value) ASSERT_NEAR(m, 11.313708, 1e-6);
    for (const double l : f.row_sum.value) ASSERT_EQ(l, 256);
}

// Row maximum and row sum 3 do not belong to the data: those that are given count.
TEST(FlashAttention, MatchesTheBackwardOfTheExamples) {
    const Example e;
    const Values threes(256, 3.0);
    const auto grad = expected_attention_grad(
        {e.shape.dense(), flash_columns(e.shape), {e.inputs(), e.ones, e.ones, threes, threes}},
        Dtype::fp32);
    for (const double g : grad.query_grad.value) ASSERT_NEAR(g, 0, 1e-6);
    for (const double g : grad.key_grad.value) ASSERT_NEAR(g, 0, 1e-6);
    for (const double g : grad.value_grad.value) ASSERT_NEAR(g, 348109.95, 0.2);
}

TEST(FlashMasks, HideWhatTheModesHide) {
    const auto wide = packed({3}, {5}), tall = packed({4}, {2});
    const struct {
        FlashAttentionShape shape;
        const char* seen;
    } table[] = {
        {wide, "xxxxx xxxxx xxxxx "},
        {with_mask(wide, 2), "x.... xx... xxx.. "},
        {with_mask(wide, 3), "xxx.. xxxx. xxxxx "},
        {with_mask(wide, 4, 1, 0), ".xx.. ..xx. ...xx "},
        {with_mask(wide, 4, -1, 2), "...xx ....x ..... "},
        {with_mask(wide, 4, kUnlimited, kUnlimited), "xxxxx xxxxx xxxxx "},
        {with_mask(wide, 4, kUnlimited, -1), "xx... xxx.. xxxx. "},
        {with_mask(wide, 6, 0, 0, {0}), "xxx.. xxxx. xxxxx "},
        {with_mask(wide, 6, 0, 0, {4}), "xxxx. xxxx. xxxxx "},
        {with_mask(tall, 2), "x. xx xx xx "},
        {with_mask(tall, 3), ".. .. x. xx "},  // rows without a key
        {with_mask(tall, 6, 0, 0, {1}), "x. x. x. xx "},
    };
    for (const auto& [shape, seen] : table)
        EXPECT_EQ(picture(shape), seen) << "mode " << shape.mask.sparse_mode;
}

// Without a mask mode, tokens and prefix have no effect.
TEST(FlashMasks, AreOffWithoutAMask) {
    for (const std::int64_t mode : {0, 1, 2, 3, 4, 6, 7, 8}) {
        auto shape = with_mask(packed({2}, {3}), mode, 0, 0, {0});
        shape.mask.present = false;
        EXPECT_EQ(picture(shape), "xxx xxx ") << mode;
    }
}

// q [3,5], kv [3,9], next -2: the last sequence, 2 x 6, sees j <= i + 2.
TEST(FlashMasks, SplitTheBottomRightTriangle) {
    const auto shape = with_mask(packed({3, 2}, {3, 6}), 7, 6, -2);
    EXPECT_EQ(picture(shape, 0), "x.. xx. xxx ");
    EXPECT_EQ(picture(shape, 1), "xxx... xxxx.. ");
    // The band is the last sequence that has queries.
    const auto trailing = with_mask(packed({3, 2, 0}, {3, 6, 2}), 7, 6, -2);
    EXPECT_EQ(picture(trailing, 1), "xxx... xxxx.. ");
}

// q [3,8,12], kv [4,9,13], next 1: the first sequence, 3 x 4, sees j <= i + 2, others a triangle.
TEST(FlashMasks, SplitTheTopLeftTriangle) {
    const auto shape = with_mask(packed({3, 5, 4}, {4, 5, 4}), 8, 4, 1);
    EXPECT_EQ(picture(shape, 0), "xxx. xxxx xxxx ");
    EXPECT_EQ(picture(shape, 1), "x.... xx... xxx.. xxxx. xxxxx ");
    EXPECT_EQ(picture(shape, 2), "x... xx.. xxx. xxxx ");
    const auto leading = with_mask(packed({0, 3, 4}, {2, 4, 4}), 8, 4, 1);
    EXPECT_EQ(picture(leading, 1), "xxx. xxxx xxxx ");
}

TEST(FlashMasks, ReadTheirContents) {
    auto shape = packed({2}, {3});
    shape.mask = {true, 1, 0, 0, {2, 3}, {}, {0, 2, 255, 1, 0, 0}};
    EXPECT_EQ(picture(shape), "x.. .xx ");
    shape.mask.sparse_mode = 0;  // and the band: j <= i
    shape.mask.pre_tokens = kUnlimited;
    EXPECT_EQ(picture(shape), "x.. .x. ");
}

TEST(FlashMasks, BelongToBatchesAndHeads) {
    FlashAttentionShape shape;
    shape.query_lengths = {1, 1}, shape.kv_lengths = {2, 2};
    shape.total_queries = 2, shape.total_keys = 4;
    shape.query_heads = 2;
    shape.mask = {true, 1, 0, 0, {2, 2, 1, 2}, {}, {0, 1, 1, 0, 1, 1, 0, 0}};
    EXPECT_EQ(picture(shape, 0, 0) + picture(shape, 0, 1), "x. .x ");
    EXPECT_EQ(picture(shape, 1, 0) + picture(shape, 1, 1), ".. xx ");
    shape.mask.shape = {2, 1, 1, 2}, shape.mask.values = {0, 1, 1, 0};
    EXPECT_EQ(picture(shape, 0, 1) + picture(shape, 1, 1), "x. .x ");
}

// [max Sq, max Skv] is read from the top left, [sum Sq, sum Skv] at the place of the sequence.
TEST(FlashMasks, OfPackedSequencesHaveTwoShapes) {
    auto shape = packed({1, 2}, {2, 1});
    shape.mask = {true, 1, 0, 0, {2, 2}, {}, {0, 1, 1, 1}};
    EXPECT_EQ(picture(shape, 0) + picture(shape, 1), "x. x . ");
    shape.mask = {true, 1, 0, 0, {3, 3}, {}, {1, 0, 0, 1, 1, 0, 1, 1, 1}};
    EXPECT_EQ(picture(shape, 0) + picture(shape, 1), ".x x . ");
}

// Type 1 is added before the scale, the others after it.
TEST(FlashBiases, AreScaledByTheirType) {
    auto shape = packed({1}, {2});
    shape.scale = 0.5;
    shape.bias = {true, 1, {1, 1, 1, 2}, {3, -4}, 0, 0};
    EXPECT_EQ(bias_at(shape, SequenceStarts(shape), 0, 0, 0, 1), -2);
    shape.bias.type = 0;
    EXPECT_EQ(bias_at(shape, SequenceStarts(shape), 0, 0, 0, 1), -4);
    shape.bias.present = false;
    EXPECT_EQ(bias_at(shape, SequenceStarts(shape), 0, 0, 0, 1), 0);
}

TEST(FlashBiases, AreFoundInEveryForm) {
    auto shape = packed({2, 1}, {2, 3});
    shape.query_heads = 2;
    Values numbers(64);
    for (std::size_t k = 0; k < numbers.size(); ++k) numbers[k] = static_cast<double>(k);
    shape.bias = {true, 0, {10}, numbers, 0, 0};  // N1 sum(Skv)
    EXPECT_EQ(bias_at(shape, SequenceStarts(shape), 1, 1, 0, 2), 4 + 3 + 2);
    EXPECT_EQ(bias_at(shape, SequenceStarts(shape), 0, 1, 1, 1), bias_at(shape, SequenceStarts(shape), 0, 1, 0, 1));
    shape.bias.shape = {14};  // N1 sum(Sq Skv)
    EXPECT_EQ(bias_at(shape, SequenceStarts(shape), 0, 1, 1, 0), 6);
    EXPECT_EQ(bias_at(shape, SequenceStarts(shape), 1, 1, 0, 2), 8 + 3 + 2);
    FlashAttentionShape batches;
    batches.query_lengths = {2, 2}, batches.kv_lengths = {3, 3};
    batches.query_heads = 2;
    batches.bias = {true, 0, {2, 2, 2, 3}, numbers, 0, 0};
    EXPECT_EQ(bias_at(batches, SequenceStarts(batches), 1, 1, 1, 2), 23);
    batches.bias.shape = {1, 2, 2, 3};
    EXPECT_EQ(bias_at(batches, SequenceStarts(batches), 1, 1, 1, 2), 11);
    batches.bias.shape = {2, 2, 1, 3};
    EXPECT_EQ(bias_at(batches, SequenceStarts(batches), 1, 1, 1, 2), 11);
}

// The last 1024 rows of a bias that depends on i - j alone: every pair finds its own distance.
TEST(FlashBiases, OfLongSequencesAreCompressed) {
    constexpr std::int64_t kLength = 1030;
    auto shape = packed({kLength}, {kLength});
    shape.bias = {true, 0, {1, 1, 1024, kLength}, Values(1024 * kLength), 0, 0};
    for (std::int64_t row = 0; row < 1024; ++row)
        for (std::int64_t j = 0; j < kLength; ++j)
            shape.bias.values[static_cast<std::size_t>(row * kLength + j)] =
                static_cast<double>(row + (kLength - 1024) - j);
    for (const std::int64_t i : {0, 1, 5, 6, 7, 1000, 1029})
        for (std::int64_t j = 0; j <= i; ++j) ASSERT_EQ(bias_at(shape, SequenceStarts(shape), 0, 0, i, j), i - j);
}

// ALiBi penalises distance, and sqrt takes the distance alone.
TEST(FlashBiases, OfSlopesPenaliseDistance) {
    auto shape = packed({2, 2}, {5, 5});
    shape.query_heads = 2;
    shape.bias = {true, 2, {2}, {0.5, 2}, 0, 0};
    EXPECT_EQ(bias_at(shape, SequenceStarts(shape), 0, 1, 0, 4), -8);
    EXPECT_EQ(bias_at(shape, SequenceStarts(shape), 1, 0, 1, 0), -0.5);
    shape.bias.type = 3;
    EXPECT_EQ(bias_at(shape, SequenceStarts(shape), 0, 1, 0, 4), -4);
    shape.bias.query_start = 3, shape.bias.key_start = 0;
    EXPECT_EQ(bias_at(shape, SequenceStarts(shape), 0, 1, 0, 4), -2);
    shape.bias.shape = {2, 2}, shape.bias.values = {1, 2, 3, 4};
    EXPECT_EQ(bias_at(shape, SequenceStarts(shape), 1, 1, 0, 4), -4);
}

// Bit e & 7 of byte e >> 3, without padding, sequence after sequence.
TEST(FlashDropout, ReadsItsBitsInOrder) {
    auto shape = packed({1, 2}, {3, 2});
    shape.query_heads = 2;
    shape.dropout = {true, 0.5, {0b00101001, 0b00000110}};
    const auto kept = [&](std::int64_t row, std::int64_t head) {
        std::string text;
        for (const KeyColumn& column : columns_of(shape, row, head))
            text += column.kept ? '1' : '0';
        return text;
    };
    EXPECT_EQ(kept(0, 0), "100");  // bits 0 to 2
    EXPECT_EQ(kept(0, 1), "101");
    EXPECT_EQ(kept(1, 0), "00");  // bits 6 and 7 of the first byte
    EXPECT_EQ(kept(2, 0), "01");  // 8 and 9
    EXPECT_EQ(kept(1, 1), "10");
    EXPECT_EQ(kept(2, 1), "00");
    shape.dropout.bytes.pop_back();
    EXPECT_THROW(flash_columns(shape), std::invalid_argument);
}

TEST(FlashColumns, LieInTheirSequence) {
    auto shape = packed({1, 0, 2}, {2, 3, 4});
    shape.total_queries = 4, shape.total_keys = 10;
    const auto columns = columns_of(with_mask(shape, 3), 1);
    ASSERT_EQ(columns.size(), 3);
    EXPECT_EQ(columns.front().key, 5);
    EXPECT_EQ(columns.back().key, 7);
    std::vector<KeyColumn> beyond;
    EXPECT_FALSE(flash_columns(shape)(3, 0, beyond));
}

// A row that sees no key: output 0, -FLT_MAX and +FLT_MAX, and no gradient (contract.md, 2).
TEST(FlashColumns, MayBeNone) {
    const auto shape = with_mask(packed({2}, {1}), 3);
    const Values q{1, 1}, k{1}, v{7}, dout{1, 1};
    const AttentionInputs<double> in{q, k, v, 1, 1};
    const auto f = expected_attention({shape.dense(), flash_columns(shape), in}, Dtype::fp32);
    EXPECT_EQ(f.output.value, (Values{0, 7}));
    EXPECT_EQ(f.row_max.value, (Values{kEmptyRowMax, 1}));
    EXPECT_EQ(f.row_sum.value, (Values{kEmptyRowSum, 1}));
    const auto grad =
        expected_attention_grad({shape.dense(),
                                 flash_columns(shape),
                                 {in, dout, f.output.value, f.row_max.value, f.row_sum.value}},
                                Dtype::fp32);
    EXPECT_EQ(grad.value_grad.value, Values{1});
    EXPECT_EQ(grad.query_grad.bound[0], 0);
}

TEST(FlashStatistics, HaveTwoOrders) {
    auto shape = packed({2, 1}, {1, 1});
    shape.total_queries = 4;  // one row beyond
    shape.query_heads = 2;
    EXPECT_EQ(statistics_order(shape, true), (Numbers{0, 1, 2, 3, 4, 5, 6, 7}));
    EXPECT_EQ(statistics_order(shape, false), (Numbers{0, 2, 1, 3, 4, 5, 6, 7}));
}

}  // namespace
}  // namespace attncheck::ref
