// Chosen rows and keys have the values and bounds of the whole reference.
#include "ref/attention/chosen_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>
#include <stdexcept>

#include "ref/operators/flash_attention.h"

namespace attncheck::ref {
namespace {

using Values = std::vector<double>;
using Numbers = std::vector<std::int64_t>;

/// A flash attention problem with random data and the exact statistics of its forward.
struct Problem {
    FlashAttentionShape shape;
    Values query, key, value, output_grad, output, row_max, row_sum;
    Dtype dtype = Dtype::bf16;

    AttentionInputs<double> inputs() const {
        return {query, key, value, shape.scale, shape.dropout.keep_prob};
    }
    AttentionGradInputs grad_inputs() const {
        return {inputs(), output_grad, output, row_max, row_sum};
    }
    std::int64_t rows() const { return shape.total_queries * shape.query_heads; }
    std::int64_t keys() const { return shape.total_keys * shape.kv_heads; }
};

void fill(std::mt19937_64& random, Dtype dtype, std::int64_t size, Values& values) {
    std::normal_distribution<double> normal;
    values.resize(static_cast<std::size_t>(size));
    for (double& v : values) v = decode(dtype, encode(dtype, normal(random)));
}

Problem make_problem(FlashAttentionShape shape, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    Problem p;
    p.dtype = seed % 2 ? Dtype::bf16 : Dtype::fp16;
    shape.packed = true;
    shape.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(shape.head_dim)));
    for (const auto length : shape.query_lengths) shape.total_queries += length;
    for (const auto length : shape.kv_lengths) shape.total_keys += length;
    const AttentionShape s = shape.dense();
    fill(random, p.dtype, s.query_rows * s.query_heads * s.head_dim, p.query);
    fill(random, p.dtype, s.kv_rows * s.kv_heads * s.head_dim, p.key);
    fill(random, p.dtype, s.kv_rows * s.kv_heads * s.value_dim, p.value);
    fill(random, p.dtype, s.query_rows * s.query_heads * s.value_dim, p.output_grad);
    if (shape.dropout.present) {
        std::int64_t bits = 0;
        for (std::size_t b = 0; b < shape.query_lengths.size(); ++b)
            bits += shape.query_heads * shape.query_lengths[b] * shape.kv_lengths[b];
        shape.dropout.keep_prob = 0.5;
        shape.dropout.bytes.resize(static_cast<std::size_t>((bits + 7) / 8));
        for (auto& byte : shape.dropout.bytes) byte = static_cast<std::uint8_t>(random());
    }
    p.shape = shape;
    p.output.resize(p.output_grad.size());
    p.row_max.resize(static_cast<std::size_t>(p.rows()));
    p.row_sum.resize(p.row_max.size());
    dense_attention<double>({s, flash_columns(shape), p.inputs()}, p.output, p.row_max, p.row_sum);
    return p;
}

/// Several sequences, empty ones, rows beyond, groups, D != Dv, and every kind of range of keys.
std::vector<Problem> small_problems() {
    std::vector<Problem> out;
    std::uint64_t seed = 0;
    for (const std::int64_t mode : {-1, 2, 3, 4, 6, 8})
        for (const bool dropped : {false, true}) {
            FlashAttentionShape s;
            s.query_lengths = {5, 0, 33, 1};
            s.kv_lengths = {7, 3, 40, 0};
            s.total_queries = 2;  // beyond
            s.total_keys = 3;
            s.kv_heads = 2, s.query_heads = 6, s.head_dim = 9, s.value_dim = 5;
            s.mask = {mode >= 0, std::max<std::int64_t>(mode, 0), 4, 3, {2048, 2048}, {7, 3, 20, 0},
                      {}};
            s.dropout.present = dropped;
            out.push_back(make_problem(s, ++seed));
        }
    return out;
}

/// Every third number and the last one.
Numbers some(std::int64_t count) {
    Numbers numbers;
    for (std::int64_t k = 1; k < count; k += 3) numbers.push_back(k);
    if (numbers.back() != count - 1) numbers.push_back(count - 1);
    return numbers;
}

/// Row k of `chosen` against row numbers[k] of `whole`, to the rounding of sums in another order.
void expect_rows(const ExpectedTensor& whole, const ExpectedTensor& chosen, const Numbers& numbers,
                 std::int64_t width) {
    constexpr double kRelative = 1e-11;
    ASSERT_EQ(chosen.size(), numbers.size() * static_cast<std::size_t>(width));
    for (std::size_t i = 0; i < chosen.size(); ++i) {
        const auto row = i / static_cast<std::size_t>(width);
        const std::size_t from =
            static_cast<std::size_t>(numbers[row] * width) + i % static_cast<std::size_t>(width);
        const auto near = [&](double a, double b, double size) {
            return a == b || std::fabs(a - b) <= kRelative * size;
        };
        const double scale = std::fabs(whole.value[from]) + whole.bound[from];
        ASSERT_TRUE(near(whole.value[from], chosen.value[i], scale)) << numbers[row];
        ASSERT_TRUE(near(whole.bound[from], chosen.bound[i], scale)) << numbers[row];
        ASSERT_EQ(whole.overflow[from], chosen.overflow[i]);
    }
}

TEST(ChosenAttention, HasTheRowsOfTheWholeForward) {
    for (const Problem& p : small_problems()) {
        const auto columns = flash_columns(p.shape);
        const auto whole = expected_attention({p.shape.dense(), columns, p.inputs()}, p.dtype);
        const Numbers rows = some(p.rows());
        const auto chosen =
            expected_attention_rows({p.shape.dense(), columns, p.inputs()}, p.dtype, rows);
        expect_rows(whole.output, chosen.output, rows, p.shape.value_dim);
        expect_rows(whole.row_max, chosen.row_max, rows, 1);
        expect_rows(whole.row_sum, chosen.row_sum, rows, 1);
        expect_rows(whole.lse, chosen.lse, rows, 1);
    }
}

TEST(ChosenAttention, HasTheRowsAndKeysOfTheWholeGradient) {
    for (const Problem& p : small_problems()) {
        const auto columns = flash_columns(p.shape);
        const AttentionShape s = p.shape.dense();
        const auto whole = expected_attention_grad({s, columns, p.grad_inputs()}, p.dtype);
        const Numbers rows = some(p.rows()), keys = some(p.keys());
        expect_rows(whole.query_grad,
                    expected_query_grad_rows({s, columns, p.grad_inputs()}, p.dtype, rows), rows,
                    s.head_dim);
        for (const auto& lister : {columns, flash_columns_of(p.shape, keys)}) {
            const auto chosen = expected_key_grad_of({s, lister, p.grad_inputs()}, p.dtype, keys);
            expect_rows(whole.key_grad, chosen.key_grad, keys, s.head_dim);
            expect_rows(whole.value_grad, chosen.value_grad, keys, s.value_dim);
        }
    }
}

/// More than a million pairs: the whole reference adds its sums in four parts.
TEST(ChosenAttention, HasTheKeysOfALargeGradient) {
    FlashAttentionShape s;
    s.query_lengths = {1100}, s.kv_lengths = {1031};
    s.head_dim = s.value_dim = 4;
    const Problem p = make_problem(s, 5);
    const auto columns = flash_columns(p.shape);
    const auto whole =
        expected_attention_grad({p.shape.dense(), columns, p.grad_inputs()}, p.dtype);
    const Numbers keys = some(p.keys());
    const auto chosen = expected_key_grad_of(
        {p.shape.dense(), flash_columns_of(p.shape, keys), p.grad_inputs()}, p.dtype, keys);
    expect_rows(whole.key_grad, chosen.key_grad, keys, 4);
    expect_rows(whole.value_grad, chosen.value_grad, keys, 4);
    const Numbers rows = some(p.rows());
    expect_rows(
        whole.query_grad,
        expected_query_grad_rows({p.shape.dense(), columns, p.grad_inputs()}, p.dtype, rows), rows,
        4);
}

TEST(ChosenAttention, ListsTheColumnsOfChosenKeysAsTheWholeListDoes) {
    for (const Problem& p : small_problems()) {
        const Numbers keys = some(p.keys());
        const auto all = flash_columns(p.shape), chosen = flash_columns_of(p.shape, keys);
        for (std::int64_t t = 0; t < p.shape.total_queries; ++t)
            for (std::int64_t n = 0; n < p.shape.query_heads; ++n) {
                std::vector<KeyColumn> whole, part;
                ASSERT_EQ(all(t, n, whole), chosen(t, n, part));
                std::erase_if(whole, [&](const KeyColumn& c) {
                    const std::int64_t key = c.key * p.shape.kv_heads + n / 3;
                    return std::find(keys.begin(), keys.end(), key) == keys.end();
                });
                ASSERT_EQ(whole.size(), part.size());
                for (std::size_t j = 0; j < part.size(); ++j) {
                    EXPECT_EQ(whole[j].key, part[j].key);
                    EXPECT_EQ(whole[j].kept, part[j].kept);
                }
            }
    }
}

TEST(ChosenAttention, RefusesRowsAndKeysThatAreNone) {
    const Problem p = small_problems().front();
    const AttentionShape s = p.shape.dense();
    const auto columns = flash_columns(p.shape);
    EXPECT_THROW(expected_attention_rows({s, columns, p.inputs()}, p.dtype, Numbers{p.rows()}),
                 std::invalid_argument);
    EXPECT_THROW(expected_query_grad_rows({s, columns, p.grad_inputs()}, p.dtype, Numbers{-1}),
                 std::invalid_argument);
    EXPECT_THROW(expected_key_grad_of({s, columns, p.grad_inputs()}, p.dtype, Numbers{p.keys()}),
                 std::invalid_argument);
    EXPECT_THROW(expected_key_grad_of({s, columns, p.grad_inputs()}, p.dtype, Numbers{3, 3}),
                 std::invalid_argument);
}

}  // namespace
}  // namespace attncheck::ref
