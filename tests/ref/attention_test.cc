// The oracle of the neutral Attention: which keys a query sees, worked examples, agreement with
// FlashAttention.
#include "ref/operators/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "attention_problem.h"
#include "ref/operators/flash_attention.h"

namespace attncheck::ref {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// One line for each query of a sequence: x a key that is seen, . one that is not.
std::string picture(const NeutralAttentionShape& shape, std::size_t sequence = 0,
                    std::int64_t head = 0) {
    std::string text;
    const ColumnLister list = attention_columns(shape);
    const std::int64_t first = first_rows(shape.query_lengths)[sequence],
                       first_key = first_rows(shape.kv_lengths)[sequence];
    for (std::int64_t i = 0; i < shape.query_lengths[sequence]; ++i) {
        std::string line(static_cast<std::size_t>(shape.kv_lengths[sequence]), '.');
        std::vector<KeyColumn> columns;
        EXPECT_TRUE(list(first + i, head, columns));
        for (const KeyColumn& c : columns) line[static_cast<std::size_t>(c.key - first_key)] = 'x';
        for (std::int64_t j = 0; j < shape.kv_lengths[sequence]; ++j)
            EXPECT_EQ(sees_key(shape, sequence, head, i, j),
                      line[static_cast<std::size_t>(j)] == 'x');
        text += line + ' ';
    }
    return text;
}

// ---- which keys a query sees ----

TEST(Attention, WindowsFollowTheDiagonal) {
    const struct {
        std::int64_t queries, keys, left, right;
        bool bottom_right;
        const char* seen;
    } table[] = {
        {3, 5, -1, -1, false, "xxxxx xxxxx xxxxx "},
        {3, 5, -1, 0, false, "x.... xx... xxx.. "},
        {3, 5, -1, 0, true, "xxx.. xxxx. xxxxx "},
        {3, 5, 1, 0, true, ".xx.. ..xx. ...xx "},
        {3, 5, 0, -1, false, "xxxxx .xxxx ..xxx "},
        {3, 5, 0, 0, false, "x.... .x... ..x.. "},
        {4, 2, -1, 0, true, ".. .. x. xx "},
        {4, 2, 1, -1, false, "xx xx .x .. "},
        {2, 2, std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::max(),
         true, "xx xx "},
    };
    for (const auto& row : table) {
        auto s = padded(1, row.queries, row.keys);
        s.window_left = row.left, s.window_right = row.right, s.bottom_right = row.bottom_right;
        EXPECT_EQ(picture(s), row.seen) << row.left << ' ' << row.right;
    }
}

// The diagonal is that of the extents: kv_length hides keys, it does not move the window.
TEST(Attention, KvLengthHidesKeysAndMovesNothing) {
    auto s = padded(2, 2, 4);
    s.has_kv_length = true, s.kv_length = {3, 0};
    EXPECT_EQ(picture(s, 0), "xxx. xxx. ");
    EXPECT_EQ(picture(s, 1), ".... .... ");
    s.window_right = 0, s.bottom_right = true;
    EXPECT_EQ(picture(s, 0), "xxx. xxx. ");
    s.window_left = 1;
    EXPECT_EQ(picture(s, 0), ".xx. ..x. ");
}

TEST(Attention, PackedSequencesHaveDiagonalsOfTheirOwn) {
    NeutralAttentionShape s;
    s.query_lengths = {2, 0, 1}, s.kv_lengths = {1, 2, 3};
    s.total_queries = 3, s.total_keys = 6;
    s.packed = true, s.window_right = 0, s.bottom_right = true;
    EXPECT_EQ(picture(s, 0), ". x ");
    EXPECT_EQ(picture(s, 2), "xxx ");
}

TEST(Attention, MaskAndBiasAreReadThroughTheirBroadcastExtents) {
    auto s = padded(2, 2, 3, 2, 1);
    s.mask = {true, {1, 2, 1, 3}, {1, 0, 1, 0, 1, 1}};
    s.bias = {true, {2, 1, 2, 1}, {0.5, -kInfinity, 1, 2}};
    EXPECT_EQ(picture(s, 0, 0), "x.x ... ");
    EXPECT_EQ(picture(s, 1, 0), "x.x x.x ");
    EXPECT_EQ(picture(s, 1, 1), ".xx .xx ");
    std::vector<KeyColumn> columns;
    attention_columns(s)(3, 1, columns);
    EXPECT_EQ(columns.at(0).bias, 2);
    EXPECT_EQ(columns.at(0).place, 3);
}

TEST(Attention, ColumnsOfChosenKeysAreThoseOfAllKeys) {
    auto s = padded(2, 3, 4, 4, 2);
    s.window_right = 0, s.bottom_right = true;
    s.bias = {true, {1, 4, 1, 4}, Values(16, 0.25)};
    const Numbers keys = {1 * 2 + 0, 6 * 2 + 1, 3 * 2 + 1};
    const ColumnLister all = attention_columns(s), some = attention_columns_of(s, keys);
    for (std::int64_t t = 0; t < 6; ++t)
        for (std::int64_t h = 0; h < 4; ++h) {
            std::vector<KeyColumn> wanted, got;
            all(t, h, wanted), some(t, h, got);
            std::erase_if(wanted, [&](const KeyColumn& c) {
                return std::ranges::find(keys, c.key * 2 + h / 2) == keys.end();
            });
            ASSERT_EQ(got.size(), wanted.size());
            for (std::size_t k = 0; k < got.size(); ++k) {
                EXPECT_EQ(got[k].key, wanted[k].key);
                EXPECT_EQ(got[k].place, wanted[k].place);
            }
        }
}

TEST(Attention, RejectsWhatDoesNotFit) {
    auto s = padded(1, 2, 3);
    s.bias = {true, {1, 1, 2, 2}, Values(4)};
    EXPECT_THROW(attention_columns(s), std::invalid_argument);
    s.bias = {true, {1, 1, 2, 3}, Values(5)};
    EXPECT_THROW(attention_columns(s), std::invalid_argument);
    s.bias = {};
    s.sink = {1, 2};
    EXPECT_THROW(attention_columns(s), std::invalid_argument);
}

// ---- worked examples ----

ExpectedAttention forward_of(const NeutralAttentionShape& s, const Values& q, const Values& k,
                             const Values& v, Dtype dtype = Dtype::fp32, Grant grant = Grant::rounding) {
    return expected_attention({s.dense(), attention_columns(s), s.inputs(q, k, v)}, dtype, grant);
}

// Scores 1 and 2, softcap 2, biases 0.5 and -0.25, sink 0.75.
TEST(Attention, WorkedExample) {
    auto s = padded(1, 1, 2);
    s.scale = 0.5, s.softcap = 2;
    s.bias = {true, {1, 1, 1, 2}, {0.5, -0.25}};
    s.sink = {0.75};
    const auto f = forward_of(s, {1}, {2, 4}, {10, -3});
    const double s0 = 2 * std::tanh(0.5) + 0.5, s1 = 2 * std::tanh(1.0) - 0.25;
    const double sum = std::exp(s0) + std::exp(s1) + std::exp(0.75);
    EXPECT_NEAR(f.output.value[0], (10 * std::exp(s0) - 3 * std::exp(s1)) / sum, 1e-14);
    EXPECT_NEAR(f.stored_lse.value[0], std::log(sum), 1e-14);
    EXPECT_LT(f.output.bound[0], 1e-4);
    EXPECT_GT(f.output.bound[0], 0);
    EXPECT_LT(f.stored_lse.bound[0], 1e-5);
}

TEST(Attention, RowsWithoutKeys) {
    auto s = padded(1, 2, 1);
    s.window_right = 0, s.bottom_right = true;  // query 0 sees nothing
    const auto none = forward_of(s, {1, 1}, {1}, {5});
    EXPECT_EQ(none.output.value[0], 0);
    EXPECT_EQ(none.output.bound[0], 0);
    EXPECT_EQ(none.stored_lse.value[0], -kInfinity);
    EXPECT_EQ(none.stored_lse.bound[0], 0);
    EXPECT_EQ(none.output.value[1], 5);
    s.sink = {-kInfinity};  // the same as none
    EXPECT_EQ(forward_of(s, {1, 1}, {1}, {5}).stored_lse.value[0], -kInfinity);
    s.sink = {3};
    const auto sunk = forward_of(s, {1, 1}, {1}, {5});
    EXPECT_EQ(sunk.output.value[0], 0);
    EXPECT_EQ(sunk.output.bound[0], 0);
    EXPECT_EQ(sunk.stored_lse.value[0], 3);
    EXPECT_LT(sunk.stored_lse.bound[0], 1e-5);
}

// Whatever they hold; a softcap makes an infinite score finite.
TEST(Attention, HiddenKeysAreNotTouched) {
    auto s = padded(1, 1, 3);
    s.bias = {true, {1, 1, 1, 3}, {0, -kInfinity, 0}};
    s.mask = {true, {1, 1, 1, 3}, {1, 1, 0}};
    s.softcap = 4, s.sink = {0};
    const auto f = forward_of(s, {2}, {1, kNan, kInfinity}, {7, kNan, kNan});
    EXPECT_TRUE(std::isfinite(f.output.value[0]));
    EXPECT_LT(f.output.bound[0], 1e-3);
    const auto infinite = forward_of(s, {kInfinity}, {1, kNan, 1}, {7, 0, 0});
    EXPECT_NEAR(infinite.output.value[0], 7 * std::exp(4.0) / (std::exp(4.0) + 1), 1e-12);
}

// A plain lattice row stays one with a sink that counts as one key or vanishes.
TEST(Attention, SinksTakePartInLatticeRows) {
    auto s = padded(1, 1, 3);
    s.sink = {0};
    const Values q = {0}, k = {1, 2, 3}, v = {4, 8, -4};
    const auto f = forward_of(s, q, k, v, Dtype::bf16, Grant::lattice);
    EXPECT_EQ(f.output.value[0], 2);
    EXPECT_LT(f.output.bound[0], 1e-4);
    s.sink = {1};
    EXPECT_GT(forward_of(s, q, k, v, Dtype::bf16, Grant::lattice).output.bound[0], 1e-3);
}

// Softcap and sink off, bias after the scale, causal: the problem is one of FlashAttention, and so
// are its numbers and bounds.
TEST(Attention, AgreesWithFlashAttention) {
    NeutralProblem p(6, 0, false);
    p.shape.mask = {}, p.shape.window_left = -1, p.shape.window_right = 0;
    FlashAttentionShape flash;
    flash.query_lengths = p.shape.query_lengths, flash.kv_lengths = p.shape.kv_lengths;
    flash.total_queries = p.shape.total_queries, flash.total_keys = p.shape.total_keys;
    flash.query_heads = 4, flash.kv_heads = 2, flash.head_dim = 3, flash.value_dim = 4;
    flash.scale = p.shape.scale;
    flash.mask = {true, 3, 0, 0, {2048, 2048}, {}, {}};
    flash.bias = {true, 0, {1, 4, 1, 7}, p.shape.bias.values};
    const auto ours = expected_attention({p.shape.dense(), p.columns(), p.inputs()}, Dtype::bf16),
               theirs = expected_attention({flash.dense(), flash_columns(flash), p.inputs()},
                                           Dtype::bf16);
    EXPECT_EQ(ours.output.value, theirs.output.value);
    EXPECT_EQ(ours.output.bound, theirs.output.bound);
    const auto forward = p.forward();
    AttentionGradInputs in = p.gradient(forward);
    const auto grad = expected_attention_grad({p.shape.dense(), p.columns(), in}, Dtype::bf16);
    in.bias_elements = 0;
    const auto other =
        expected_attention_grad({flash.dense(), flash_columns(flash), in}, Dtype::bf16);
    EXPECT_EQ(grad.key_grad.value, other.key_grad.value);
    EXPECT_EQ(grad.key_grad.bound, other.key_grad.bound);
    EXPECT_EQ(grad.query_grad.bound, other.query_grad.bound);
}

}  // namespace
}  // namespace attncheck::ref
