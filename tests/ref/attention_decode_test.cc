// The oracle of AttentionDecode: which rows of the cache a query sees, by hand, and the ruling on
// calls.
#include "ref/operators/attention_decode.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <stdexcept>
#include <vector>

#include "ref/constraints/attention_decode.h"

namespace attncheck::ref {
namespace {

using Int = std::int64_t;

/// Pages of 4; the first sequence has 6 positions on pages 2 and 0, the second 3 on page 2.
DecodeShape shape_of(Int queries, Int window = -1) {
    DecodeShape shape;
    shape.queries = queries;
    shape.kv_lengths = {6, 3};
    shape.pages = 3, shape.page_size = 4, shape.table_columns = 2;
    shape.window_left = window;
    return shape;
}

const std::vector<Int> kTable = {2, 0, 2, 999};

std::vector<Int> keys_of(const DecodeShape& shape, Int row) {
    std::vector<KeyColumn> columns;
    EXPECT_TRUE(decode_columns(shape, kTable)(row, 0, columns));
    std::vector<Int> keys;
    for (const KeyColumn& column : columns) keys.push_back(column.key);
    return keys;
}

TEST(AttentionDecode, PositionsLieOnThePagesOfTheTable) {
    EXPECT_EQ(keys_of(shape_of(1), 0), (std::vector<Int>{8, 9, 10, 11, 0, 1}));
    EXPECT_EQ(keys_of(shape_of(1), 1), (std::vector<Int>{8, 9, 10}));
}

TEST(AttentionDecode, QueriesAreTheLastPositions) {
    EXPECT_EQ(keys_of(shape_of(2), 0), (std::vector<Int>{8, 9, 10, 11, 0}));
    EXPECT_EQ(keys_of(shape_of(2), 1), (std::vector<Int>{8, 9, 10, 11, 0, 1}));
    EXPECT_EQ(keys_of(shape_of(5), 5), std::vector<Int>{});  // stands at -2
    EXPECT_EQ(keys_of(shape_of(5), 6), std::vector<Int>{});
    EXPECT_EQ(keys_of(shape_of(5), 7), std::vector<Int>{8});
}

TEST(AttentionDecode, WindowCountsBackFromTheQuery) {
    EXPECT_EQ(keys_of(shape_of(1, 0), 0), std::vector<Int>{1});
    EXPECT_EQ(keys_of(shape_of(2, 2), 0), (std::vector<Int>{10, 11, 0}));
    EXPECT_EQ(keys_of(shape_of(1, INT64_MAX), 0), keys_of(shape_of(1), 0));
}

TEST(AttentionDecode, RefusesTablesThatNameNoPage) {
    for (const Int wrong : {-1, 3})
        EXPECT_THROW(decode_columns(shape_of(1), {2, wrong, 2, 0}), std::invalid_argument);
    EXPECT_THROW(decode_columns(shape_of(1), {2, 0, 2}), std::invalid_argument);
    DecodeShape longer = shape_of(1);
    longer.kv_lengths[0] = 9;
    EXPECT_THROW(decode_columns(longer, kTable), std::invalid_argument);
}

// One channel, zero queries: the mean of the values that are seen, with a sink as one value 0 more.
TEST(AttentionDecode, EqualLogitsGiveTheMean) {
    const DecodeShape shape = shape_of(1);
    std::vector<double> keys(12, std::nan("")), values(12, std::nan("")), queries{0, 0};
    for (const Int row : {8, 9, 10, 11, 0, 1}) {
        keys[static_cast<std::size_t>(row)] = 1;
        values[static_cast<std::size_t>(row)] = static_cast<double>(row);
    }
    AttentionInputs<double> in{queries, keys, values};
    const auto plain =
        expected_attention({shape.dense(), decode_columns(shape, kTable), in}, Dtype::fp32);
    EXPECT_NEAR(plain.output.value[0], (8 + 9 + 10 + 11 + 0 + 1) / 6.0, 1e-12);
    EXPECT_NEAR(plain.output.value[1], 9, 1e-12);
    EXPECT_NEAR(plain.stored_lse.value[1], std::log(3.0), 1e-12);
    const std::vector<double> sink{0};
    in.sink = sink;
    const auto with_sink =
        expected_attention({shape.dense(), decode_columns(shape, kTable), in}, Dtype::fp32);
    EXPECT_NEAR(with_sink.output.value[1], 27 / 4.0, 1e-12);
    EXPECT_NEAR(with_sink.stored_lse.value[1], std::log(4.0), 1e-12);
}

// ---- the ruling ----

TensorArgument tensor(Dtype dtype, std::vector<Int> shape) {
    return {true, static_cast<std::int32_t>(dtype), static_cast<std::int32_t>(shape.size()),
            std::move(shape)};
}

AttentionDecodeArguments legal() {
    AttentionDecodeArguments a;
    a.query = tensor(Dtype::fp16, {2, 3, 4, 8});
    a.key_cache = tensor(Dtype::fp16, {5, 16, 2, 8});
    a.value_cache = tensor(Dtype::fp16, {5, 16, 2, 6});
    a.block_table = tensor(Dtype::int32, {2, 3});
    a.sink = tensor(Dtype::fp32, {4});
    a.out = tensor(Dtype::fp16, {2, 3, 4, 6});
    a.lse = tensor(Dtype::fp32, {2, 4, 3});
    a.kv_length = {true, 2, {48, 0}};
    return a;
}

TEST(AttentionDecodeConstraints, AcceptsWhatTheContractAllows) {
    using A = AttentionDecodeArguments;
    const std::vector<std::function<void(A&)>> changes = {
        [](A&) {}, [](A& a) { a.sink = {}, a.lse = {}; },
        [](A& a) { a.scale = 0, a.softcap = 30; }, [](A& a) { a.scale = -1; },
        [](A& a) { a.window_left = INT64_MAX; }, [](A& a) { a.kv_length.values = {0, 1}; }};
    for (std::size_t k = 0; k < changes.size(); ++k) {
        A a = legal();
        changes[k](a);
        EXPECT_TRUE(rule_attention_decode(a).accepted()) << k << rule_attention_decode(a).message;
    }
}

TEST(AttentionDecodeConstraints, RejectsEachBrokenRuleWithAnyStatus) {
    using A = AttentionDecodeArguments;
    const std::vector<std::function<void(A&)>> changes = {
        [](A& a) { a.query.present = false; },
        [](A& a) { a.block_table.present = false; },
        [](A& a) { a.kv_length = {}; },
        [](A& a) { a.out.rank = 3, a.out.shape.pop_back(); },
        [](A& a) { a.key_cache.dtype = static_cast<std::int32_t>(Dtype::bf16); },
        [](A& a) { a.block_table.dtype = static_cast<std::int32_t>(Dtype::fp32); },
        [](A& a) { a.sink.dtype = static_cast<std::int32_t>(Dtype::fp16); },
        [](A& a) { a.scale = std::nan(""); },
        [](A& a) { a.scale = 1e300; },
        [](A& a) { a.softcap = -1; },
        [](A& a) { a.window_left = -2; },
        [](A& a) { a.query.shape[1] = 17; },
        [](A& a) { a.key_cache.shape[1] = a.value_cache.shape[1] = 257; },
        [](A& a) { a.query.shape[2] = a.out.shape[2] = a.sink.shape[0] = a.lse.shape[1] = 5; },
        [](A& a) { a.value_cache.shape[0] = 4; },
        [](A& a) { a.key_cache.shape[3] = 7; },
        [](A& a) { a.out.shape[3] = 8; },
        [](A& a) { a.lse.shape = {2, 3, 4}; },
        [](A& a) { a.sink.shape[0] = 2; },
        [](A& a) { a.block_table.shape[0] = 3; },
        [](A& a) { a.kv_length = {true, 1, {48}}; },
        [](A& a) { a.kv_length.values[1] = -1; },
        [](A& a) { a.kv_length.values[0] = 49; },
        [](A& a) { a.kv_length.values[0] = INT64_MAX; }};
    for (std::size_t k = 0; k < changes.size(); ++k) {
        A a = legal();
        changes[k](a);
        const Ruling ruling = rule_attention_decode(a);
        EXPECT_FALSE(ruling.accepted()) << k;
        EXPECT_TRUE(ruling.any_status) << k;
    }
}

}  // namespace
}  // namespace attncheck::ref
