// Which compressed keys a query of NsaCompressAttention sees, and where its statistics lie.
#include "ref/operators/nsa_compress_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <stdexcept>

#include "ref/numbers/dual.h"

namespace attncheck::ref {
namespace {

using Values = std::vector<double>;
using Keys = std::vector<std::int64_t>;
using Bytes = std::vector<std::uint8_t>;

Keys keys_of(const ColumnLister& lister, std::int64_t row, std::int64_t head = 0) {
    std::vector<KeyColumn> columns;
    if (!lister(row, head, columns)) return {-1};
    Keys keys;
    for (const KeyColumn& c : columns) {
        EXPECT_EQ(c.bias, 0);
        EXPECT_TRUE(c.kept);
        keys.push_back(c.key);
    }
    return keys;
}

/// Three sequences: 3 queries on 5 keys, none on none, 2 on 3; two rows behind the last sequence.
/// Two kv heads with a group of two; two compressed keys per selection block.
CompressAttentionShape packed_shape() {
    CompressAttentionShape shape;
    shape.query_lengths = {3, 0, 2}, shape.kv_lengths = {5, 0, 3};
    shape.total_queries = 7, shape.total_keys = 9;
    shape.query_heads = 4, shape.kv_heads = 2;
    shape.head_dim = 3, shape.value_dim = 2;
    shape.compress_block = 32, shape.compress_stride = 16, shape.select_block = 32;
    shape.select_count = 2;
    return shape;
}

Values draw(std::size_t size, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal;
    Values values(size);
    for (double& v : values) v = static_cast<float>(normal(random));
    return values;
}

// Without a mask every key of the own sequence is visible, the later ones too.
TEST(CompressColumns, AreAllKeysOfTheSequence) {
    const auto lister = compress_columns(packed_shape());
    for (const std::int64_t row : {0, 1, 2}) EXPECT_EQ(keys_of(lister, row), (Keys{0, 1, 2, 3, 4}));
    for (const std::int64_t row : {3, 4})
        for (const std::int64_t head : {0, 3})
            EXPECT_EQ(keys_of(lister, row, head), (Keys{5, 6, 7}));
    for (const std::int64_t row : {5, 6}) EXPECT_EQ(keys_of(lister, row), Keys{-1});
}

// The row length of the mask is that of the longest sequence, also for shorter ones behind it; any
// non-zero byte hides.
TEST(CompressColumns, ReadTheMaskByPosition) {
    const CompressAttentionShape shape = packed_shape();
    Bytes mask(3 * 5);
    mask[0 * 5 + 1] = 1, mask[1 * 5 + 0] = 255, mask[1 * 5 + 4] = 1;
    for (int i = 0; i < 5; ++i) mask[2 * 5 + i] = 1;
    const auto lister = compress_columns(shape, {mask, {}});
    EXPECT_EQ(keys_of(lister, 0), (Keys{0, 2, 3, 4}));
    EXPECT_EQ(keys_of(lister, 1), (Keys{1, 2, 3}));
    EXPECT_EQ(keys_of(lister, 2, 3), Keys{});
    EXPECT_EQ(keys_of(lister, 3), (Keys{5, 7}));
    EXPECT_EQ(keys_of(lister, 4, 2), (Keys{6, 7}));
}

// What does not fit is refused, never read.
TEST(CompressColumns, RefuseWhatDoesNotFit) {
    const CompressAttentionShape shape = packed_shape();
    const Bytes right(15), short_mask(14), right_topk(3 * 3), wide_topk(3 * 4);
    EXPECT_NO_THROW(compress_columns(shape, {right, right_topk}));
    EXPECT_THROW(compress_columns(shape, {short_mask, {}}), std::invalid_argument);
    EXPECT_THROW(compress_columns(shape, {right, wide_topk}), std::invalid_argument);
    const auto refused = [&](auto spoil) {
        CompressAttentionShape wrong = shape;
        spoil(wrong);
        EXPECT_THROW(compress_columns(wrong), std::invalid_argument);
    };
    refused([](auto& s) { s.query_lengths[2] = 5; });
    refused([](auto& s) { s.kv_lengths[0] = 7; });
    refused([](auto& s) { s.kv_lengths.pop_back(); });
    refused([](auto& s) { s.compress_stride = 0; });
    refused([](auto& s) { s.compress_stride = 64; });
    refused([](auto& s) { s.select_block = 16; });
    refused([](auto& s) { s.select_block = 40; });
    refused([](auto& s) { s.select_count = 0; });
}

// The specification's worked positions: (g0,s0), (g0,s1), (g1,s0), (g1,s1).
TEST(CompressStatistics, LieHeadByHeadWithinASequence) {
    CompressAttentionShape shape;
    shape.query_lengths = {2}, shape.kv_lengths = {1};
    shape.total_queries = 2, shape.total_keys = 1, shape.query_heads = 2;
    EXPECT_EQ(compress_statistics_order(shape), (Keys{0, 2, 1, 3}));
    // A second sequence of one query keeps its order, as do rows that belong to none.
    shape.query_lengths = {2, 1}, shape.kv_lengths = {1, 0}, shape.total_queries = 4;
    EXPECT_EQ(compress_statistics_order(shape), (Keys{0, 2, 1, 3, 4, 5, 6, 7}));
}

// Plain softmax with long double and without a shift, written down once more.
struct Direct {
    long double output = 0, max = 0, sum = 0;
};
Direct direct(const Values& q, const Values& k, const Values& v, const CompressAttentionShape& s,
              const Bytes& mask, std::int64_t b, std::int64_t position, std::int64_t n,
              std::int64_t channel, double scale) {
    std::int64_t row = position, first = 0, widest = 0;
    for (std::int64_t i = 0; i < b; ++i) {
        row += s.query_lengths[static_cast<std::size_t>(i)];
        first += s.kv_lengths[static_cast<std::size_t>(i)];
    }
    for (const std::int64_t length : s.kv_lengths) widest = std::max(widest, length);
    Direct result;
    long double total = 0, weighted = 0;
    result.max = -std::numeric_limits<long double>::infinity();
    for (std::int64_t i = 0; i < s.kv_lengths[static_cast<std::size_t>(b)]; ++i) {
        if (!mask.empty() && mask[static_cast<std::size_t>(position * widest + i)]) continue;
        const std::int64_t key = (first + i) * s.kv_heads + n * s.kv_heads / s.query_heads;
        long double logit = 0;
        for (std::int64_t d = 0; d < s.head_dim; ++d)
            logit += static_cast<long double>(
                         q[static_cast<std::size_t>((row * s.query_heads + n) * s.head_dim + d)]) *
                     k[static_cast<std::size_t>(key * s.head_dim + d)];
        logit *= scale;
        total += std::exp(logit);
        weighted += std::exp(logit) * v[static_cast<std::size_t>(key * s.value_dim + channel)];
        result.max = std::max(result.max, logit);
    }
    result.output = weighted / total;
    result.sum = total * std::exp(-result.max);
    return result;
}

ExpectedAttention expected(const CompressAttentionShape& shape, const Bytes& mask,
                           const AttentionInputs<double>& in, Dtype dtype) {
    return expected_attention({shape.dense(), compress_columns(shape, {mask, {}}), in}, dtype);
}

// Every output of a ragged batch, with and without a mask, and where the operator writes it.
TEST(CompressAttention, AgreesWithTheFormula) {
    const CompressAttentionShape shape = packed_shape();
    const Values q = draw(7 * 4 * 3, 1), k = draw(9 * 2 * 3, 2), v = draw(9 * 2 * 2, 3);
    Bytes mask(15);
    mask[1] = mask[5 + 3] = mask[10] = mask[11] = 1;
    for (const Bytes& given : {Bytes{}, mask}) {
        const auto out = expected(shape, given, {q, k, v, 0.75}, Dtype::bf16);
        const Keys order = compress_statistics_order(shape);
        std::int64_t row = 0;
        for (const std::int64_t b : {0, 2})
            for (std::int64_t s = 0; s < shape.query_lengths[static_cast<std::size_t>(b)];
                 ++s, ++row)
                for (std::int64_t n = 0; n < 4; ++n) {
                    for (std::int64_t d = 0; d < 2; ++d) {
                        const auto at = static_cast<std::size_t>((row * 4 + n) * 2 + d);
                        const Direct exact = direct(q, k, v, shape, given, b, s, n, d, 0.75);
                        EXPECT_NEAR(out.output.value[at], exact.output, 1e-13);
                    }
                    const Direct exact = direct(q, k, v, shape, given, b, s, n, 0, 0.75);
                    const std::int64_t first = b == 0 ? 0 : 3;
                    const std::int64_t length = shape.query_lengths[static_cast<std::size_t>(b)];
                    const auto at = static_cast<std::size_t>(
                        order[static_cast<std::size_t>(first * 4 + n * length + s)]);
                    EXPECT_NEAR(out.row_max.value[at], exact.max, 1e-13);
                    EXPECT_NEAR(out.row_sum.value[at], exact.sum, 1e-13);
                    EXPECT_GT(out.row_sum.bound[at], 0);
                }
        for (std::size_t rest = 5 * 4; rest < out.row_max.size(); ++rest) {
            EXPECT_EQ(out.row_max.value[rest], 0);
            EXPECT_EQ(out.row_sum.value[rest], 0);
            EXPECT_EQ(out.row_sum.bound[rest], 0);
        }
        for (std::size_t i = 5 * 4 * 2; i < out.output.size(); ++i)
            EXPECT_EQ(out.output.value[i], 0);
    }
}

// A row all of whose keys are hidden gets the constants, and hidden NaN stay hidden; visible ones
// spread.
TEST(CompressAttention, GivesRowsWithoutAVisibleKeyTheirConstants) {
    CompressAttentionShape shape = packed_shape();
    Values q = draw(7 * 4 * 3, 1), k = draw(9 * 2 * 3, 2), v = draw(9 * 2 * 2, 3);
    Bytes mask(15, 1);
    for (int i = 0; i < 5; ++i) mask[5 + i] = i == 2;  // position 1 sees all but key 2
    for (int c = 0; c < 2; ++c) v[2 * 4 + c] = NAN, k[7 * 6 + c] = NAN;
    const auto out = expected(shape, mask, {q, k, v, 1}, Dtype::fp16);
    for (const std::size_t row : {0, 2, 3})
        for (std::size_t n = 0; n < 4; ++n) {
            EXPECT_EQ(out.row_max.value[row * 4 + n], -FLT_MAX);
            EXPECT_EQ(out.row_sum.value[row * 4 + n], FLT_MAX);
            EXPECT_EQ(out.output.value[(row * 4 + n) * 2], 0);
            EXPECT_EQ(out.output.bound[(row * 4 + n) * 2], 0);
        }
    for (const std::size_t row : {1, 4})
        for (std::size_t n = 0; n < 8; ++n)
            EXPECT_TRUE(std::isfinite(out.output.value[row * 8 + n])) << row;
    const auto all = expected(shape, {}, {q, k, v, 1}, Dtype::fp16);
    EXPECT_TRUE(std::isnan(all.output.value[0]));         // V of key 2, kv head 0
    EXPECT_TRUE(std::isfinite(all.output.value[2 * 2]));  // kv head 1
    EXPECT_TRUE(std::isnan(all.output.value[(3 * 4) * 2]));
    EXPECT_TRUE(std::isnan(all.row_max.value[3 * 4]));
    EXPECT_TRUE(std::isfinite(all.row_max.value[3 * 4 + 2]));
}

// The forward over dual numbers is the gradient of the hand-written backward in a direction.
TEST(CompressAttention, CanBeDifferentiatedExactly) {
    const CompressAttentionShape shape = packed_shape();
    const Values q = draw(7 * 4 * 3, 1), k = draw(9 * 2 * 3, 2), v = draw(9 * 2 * 2, 3);
    const Values output_grad = draw(7 * 4 * 2, 4), dk = draw(k.size(), 5);
    Bytes mask(15);
    mask[1] = mask[5 + 3] = mask[10] = mask[11] = 1;
    const auto lister = compress_columns(shape, {mask, {}});
    std::vector<Dual> dual_q(q.begin(), q.end()), dual_k, dual_v(v.begin(), v.end());
    for (std::size_t i = 0; i < k.size(); ++i) dual_k.emplace_back(k[i], dk[i]);
    std::vector<Dual> output(7 * 4 * 2);
    dense_attention<Dual>({shape.dense(), lister, {dual_q, dual_k, dual_v, 0.5}}, output);
    double along = 0, by_gradient = 0;
    for (std::size_t i = 0; i < output.size(); ++i) along += output_grad[i] * output[i].tangent;
    const auto forward = expected_attention({shape.dense(), lister, {q, k, v, 0.5}}, Dtype::fp32);
    const auto grad = expected_attention_grad({shape.dense(),
                                               lister,
                                               {{q, k, v, 0.5},
                                                output_grad,
                                                forward.output.value,
                                                forward.row_max.value,
                                                forward.row_sum.value}},
                                              Dtype::fp32);
    for (std::size_t i = 0; i < k.size(); ++i) by_gradient += grad.key_grad.value[i] * dk[i];
    EXPECT_NEAR(along, by_gradient, 1e-13);
    EXPECT_GT(std::fabs(along), 0.01);
}

}  // namespace
}  // namespace attncheck::ref
