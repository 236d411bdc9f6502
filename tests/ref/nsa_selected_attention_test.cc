// Which keys a query of NsaSelectedAttention sees, and the worked vectors of the specification.
#include "ref/operators/nsa_selected_attention.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace attncheck::ref {
namespace {

using Indices = std::vector<std::int64_t>;
using Values = std::vector<double>;

/// The keys listed for one (row, head), or {-1} when the row belongs to no sequence.
Indices keys_of(const ColumnLister& lister, std::int64_t row, std::int64_t head = 0) {
    std::vector<KeyColumn> columns;
    if (!lister(row, head, columns)) return {-1};
    Indices keys;
    for (const KeyColumn& c : columns) {
        EXPECT_EQ(c.bias, 0);
        EXPECT_TRUE(c.kept);
        keys.push_back(c.key);
    }
    return keys;
}

/// One sequence of four keys in blocks of two, three queries, everything of dimension one.
SelectedAttentionShape worked_shape() {
    SelectedAttentionShape shape;
    shape.query_lengths = {3}, shape.kv_lengths = {4};
    shape.total_queries = 3, shape.total_keys = 4;
    shape.head_dim = shape.value_dim = 1;
    shape.block = shape.count = 2;
    shape.mask = SelectedMask::causal;
    return shape;
}

struct WorkedForward {
    Values output, row_max, row_sum;
};

const Values kOnes = {1, 1, 1}, kKeys = {0, 0, 0, 0}, kValues = {1, 2, 3, 4};

WorkedForward worked_forward(const SelectedAttentionShape& shape, const Indices& topk) {
    const ExpectedAttention f = expected_attention(
        {shape.dense(), selected_columns(shape, topk), {kOnes, kKeys, kValues}}, Dtype::bf16);
    return {f.output.value, f.row_max.value, f.row_sum.value};
}

// The list (1, 0) at position 2 sees 2, 0, 1: the mean of 3, 1, 2.
TEST(SelectedAttention, MatchesTheWorkedForward) {
    const SelectedAttentionShape shape = worked_shape();
    const WorkedForward f = worked_forward(shape, {0, 0, 1, 1, 1, 0});
    EXPECT_EQ(keys_of(selected_columns(shape, Indices{0, 0, 1, 1, 1, 0}), 2), (Indices{2, 0, 1}));
    EXPECT_DOUBLE_EQ(f.output[2], 2);
    EXPECT_EQ(f.row_max[2], 0);
    EXPECT_EQ(f.row_sum[2], 3);
}

// The list (0, 0) counts twice; at position 0 only key 0 is visible, twice.
TEST(SelectedAttention, CountsADuplicateTwice) {
    const WorkedForward f = worked_forward(worked_shape(), {0, 0, 1, 1, 0, 0});
    EXPECT_DOUBLE_EQ(f.output[2], 1.5);
    EXPECT_EQ(f.row_sum[2], 4);
    EXPECT_EQ(f.output[0], 1);
    EXPECT_EQ(f.row_sum[0], 2);
}

// The list (1, 1) at position 1 lies in the future: the rule for rows without a key, not the mean
// of hidden values.
TEST(SelectedAttention, GivesARowWithoutVisibleKeysItsConstants) {
    const WorkedForward f = worked_forward(worked_shape(), {0, 0, 1, 1, 0, 0});
    EXPECT_EQ(f.output[1], 0);
    EXPECT_EQ(f.row_max[1], -FLT_MAX);
    EXPECT_EQ(f.row_sum[1], FLT_MAX);
}

// The worked gradient: only row 2 has a dO, and row 1, which sees nothing, must not contribute its
// own.
TEST(SelectedAttention, MatchesTheWorkedGradient) {
    const SelectedAttentionShape shape = worked_shape();
    const Indices topk = {0, 0, 1, 1, 0, 0};
    const WorkedForward f = worked_forward(shape, topk);
    const Values output_grad = {0, 5, 1};
    const ExpectedAttentionGrad grad = expected_attention_grad(
        {shape.dense(),
         selected_columns(shape, topk),
         {{kOnes, kKeys, kValues}, output_grad, f.output, f.row_max, f.row_sum}},
        Dtype::bf16);
    EXPECT_EQ(grad.query_grad.value, (Values{0, 0, 0}));
    EXPECT_EQ(grad.key_grad.value, (Values{-0.25, 0.25, 0, 0}));
    EXPECT_EQ(grad.value_grad.value, (Values{0.5, 0.5, 0, 0}));
    EXPECT_EQ(grad.value_grad.bound[2], 0);
    EXPECT_EQ(grad.key_grad.bound[3], 0);
}

/// Three sequences (3 queries on 8 keys, 2 on none, 2 on 4), one row behind the last, two kv heads
/// with a group of two.
SelectedAttentionShape packed_shape() {
    SelectedAttentionShape shape;
    shape.query_lengths = {3, 2, 2}, shape.kv_lengths = {8, 0, 4};
    shape.total_queries = 8, shape.total_keys = 14;
    shape.query_heads = 4, shape.kv_heads = 2;
    shape.block = 2, shape.count = 2;
    return shape;
}

/// Every list is (0, 1), but head 1 of row 1 has (3, 2); rows that are not looked at hold nonsense.
Indices packed_topk() {
    Indices topk;
    for (int i = 0; i < 16; ++i) topk.insert(topk.end(), {0, 1});
    topk[6] = 3, topk[7] = 2;
    for (const std::size_t row : {3, 4, 7})
        for (std::size_t i = 0; i < 4; ++i) topk[row * 4 + i] = row == 4 ? -7 : 1000000000;
    return topk;
}

// Keys are numbered from the start of their sequence; a group shares the list of its kv head.
TEST(SelectedColumns, CountFromTheStartOfTheSequence) {
    const SelectedAttentionShape shape = packed_shape();
    const Indices topk = packed_topk();
    const ColumnLister lister = selected_columns(shape, topk);
    EXPECT_EQ(keys_of(lister, 0), (Indices{0, 1, 2, 3}));
    EXPECT_EQ(keys_of(lister, 1, 1), (Indices{0, 1, 2, 3}));
    EXPECT_EQ(keys_of(lister, 1, 2), (Indices{6, 7, 4, 5}));
    EXPECT_EQ(keys_of(lister, 1, 3), (Indices{6, 7, 4, 5}));
    EXPECT_EQ(keys_of(lister, 5), (Indices{8, 9, 10, 11}));
    EXPECT_EQ(keys_of(lister, 6, 3), (Indices{8, 9, 10, 11}));
}

// A sequence without keys is a sequence: its rows see nothing. A row behind the last length is
// none.
TEST(SelectedColumns, TellEmptySequencesFromNoSequence) {
    const SelectedAttentionShape shape = packed_shape();
    const Indices topk = packed_topk();
    const ColumnLister lister = selected_columns(shape, topk);
    EXPECT_EQ(keys_of(lister, 3), Indices{});
    EXPECT_EQ(keys_of(lister, 4, 3), Indices{});
    EXPECT_EQ(keys_of(lister, 7), Indices{-1});
    const std::vector<PackedQuery> queries = selected_queries(shape);
    EXPECT_EQ(queries[4].sequence, 1);
    EXPECT_EQ(queries[4].position, 1);
    EXPECT_EQ(queries[5].first_key, 8);
    EXPECT_EQ(queries[7].sequence, -1);
}

// Causality compares positions inside their own sequences, aligned at the top left.
TEST(SelectedColumns, HideTheFutureOfTheirSequence) {
    SelectedAttentionShape shape = packed_shape();
    shape.mask = SelectedMask::causal;
    const Indices topk = packed_topk();
    const ColumnLister lister = selected_columns(shape, topk);
    EXPECT_EQ(keys_of(lister, 0), Indices{0});
    EXPECT_EQ(keys_of(lister, 1), (Indices{0, 1}));
    EXPECT_EQ(keys_of(lister, 2), (Indices{0, 1, 2}));
    EXPECT_EQ(keys_of(lister, 1, 2), Indices{});
    EXPECT_EQ(keys_of(lister, 5), Indices{8});
    EXPECT_EQ(keys_of(lister, 6), (Indices{8, 9}));
}

// The mask is read at [position of the query, position of the key], whatever non-zero value hides.
TEST(SelectedColumns, ReadTheMaskByPosition) {
    SelectedAttentionShape shape = packed_shape();
    shape.mask = SelectedMask::contents;
    shape.mask_columns = 8;
    std::vector<std::uint8_t> mask(3 * 8);
    mask[0 * 8 + 1] = 1;    // key 1 hidden from position 0 of every sequence
    mask[1 * 8 + 6] = 200;  // key 6 hidden from position 1
    const Indices topk = packed_topk();
    const ColumnLister lister = selected_columns(shape, topk, mask);
    EXPECT_EQ(keys_of(lister, 0), (Indices{0, 2, 3}));
    EXPECT_EQ(keys_of(lister, 1, 2), (Indices{7, 4, 5}));
    EXPECT_EQ(keys_of(lister, 2), (Indices{0, 1, 2, 3}));
    EXPECT_EQ(keys_of(lister, 5), (Indices{8, 10, 11}));
    // Too small a mask would be read out of bounds.
    mask.pop_back();
    EXPECT_THROW(selected_columns(shape, topk, mask), std::invalid_argument);
    shape.mask_columns = 7;
    EXPECT_THROW(selected_columns(shape, topk, mask), std::invalid_argument);
}

// Indices and sizes out of range are refused, never read.
TEST(SelectedColumns, RefuseWhatDoesNotFit) {
    const SelectedAttentionShape shape = packed_shape();
    for (const std::int64_t index : {std::int64_t{-1}, std::int64_t{4}}) {
        Indices topk = packed_topk();
        topk[0] = index;
        EXPECT_THROW(keys_of(selected_columns(shape, topk), 0), std::invalid_argument) << index;
        EXPECT_NO_THROW(keys_of(selected_columns(shape, topk), 1)) << index;
    }
    Indices topk = packed_topk();
    topk.pop_back();
    EXPECT_THROW(selected_columns(shape, topk), std::invalid_argument);
    SelectedAttentionShape long_keys = shape;
    long_keys.kv_lengths[2] = 8;
    EXPECT_THROW(selected_queries(long_keys), std::invalid_argument);
    SelectedAttentionShape long_queries = shape;
    long_queries.query_lengths[2] = 4;
    EXPECT_THROW(selected_queries(long_queries), std::invalid_argument);
    SelectedAttentionShape missing = shape;
    missing.kv_lengths.pop_back();
    EXPECT_THROW(selected_queries(missing), std::invalid_argument);
}

// The order of a list changes neither the values nor, beyond binary64, anything else.
TEST(SelectedAttention, DoesNotDependOnTheOrderOfTheList) {
    SelectedAttentionShape shape = packed_shape();
    shape.head_dim = shape.value_dim = 2;
    shape.mask = SelectedMask::causal;
    Values query(8 * 4 * 2), key(14 * 2 * 2), value(14 * 2 * 2);
    for (std::size_t i = 0; i < query.size(); ++i)
        query[i] = std::sin(1.0 + static_cast<double>(i));
    for (std::size_t i = 0; i < key.size(); ++i) key[i] = std::cos(3.0 * static_cast<double>(i));
    for (std::size_t i = 0; i < value.size(); ++i)
        value[i] = std::sin(7.0 * static_cast<double>(i));
    const Indices topk = packed_topk();
    Indices swapped = topk;
    for (std::size_t i = 0; i < topk.size(); i += 2) std::swap(swapped[i], swapped[i + 1]);
    const auto run = [&](const Indices& list) {
        return expected_attention(
            {shape.dense(), selected_columns(shape, list), {query, key, value, 0.5}}, Dtype::fp16);
    };
    const ExpectedAttention a = run(topk), b = run(swapped);
    for (std::size_t i = 0; i < a.output.size(); ++i) {
        EXPECT_NEAR(a.output.value[i], b.output.value[i], 1e-15) << i;
        // Blocks of two are shorter than the tiles of a kernel: their order shows in the count of
        // tiles.
        EXPECT_NEAR(a.output.bound[i], b.output.bound[i], 0.01 * a.output.bound[i]) << i;
    }
}

}  // namespace
}  // namespace attncheck::ref
