// The oracle of the neutral Attention and AttentionGrad: which keys a query sees, worked examples,
// derivatives by complex step, agreement with FlashAttention, and bounds and variances against
// kernels in fp32.
#include "ref/operators/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>

#include "ref/attention/chosen_attention.h"
#include "ref/attention/rounding_noise.h"
#include "ref/operators/flash_attention.h"

namespace attncheck::ref {
namespace {

using Values = std::vector<double>;
using Numbers = std::vector<std::int64_t>;
using Complex = std::complex<double>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

NeutralAttentionShape padded(std::int64_t batch, std::int64_t queries, std::int64_t keys,
                             std::int64_t heads = 1, std::int64_t kv_heads = 1) {
    NeutralAttentionShape s;
    s.query_lengths.assign(static_cast<std::size_t>(batch), queries);
    s.kv_lengths.assign(static_cast<std::size_t>(batch), keys);
    s.total_queries = batch * queries, s.total_keys = batch * keys;
    s.query_heads = heads, s.kv_heads = kv_heads;
    return s;
}

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
    return expected_attention(s.dense(), attention_columns(s), s.inputs(q, k, v), dtype, {}, grant);
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

// ---- random problems ----

struct Problem {
    NeutralAttentionShape shape;
    Values query, key, value, output_grad;

    /// Softcap, broadcast bias, mask, window, sinks, groups of two heads.
    Problem(unsigned seed, double softcap, bool has_sink, std::int64_t queries = 5,
            std::int64_t keys = 7, std::int64_t dim = 3, Dtype dtype = Dtype::fp32) {
        std::mt19937 random(seed);
        std::normal_distribution<double> normal;
        const auto draw = [&](std::int64_t count, double size = 1) {
            Values values(static_cast<std::size_t>(count));
            for (double& v : values) v = decode(dtype, encode(dtype, size * normal(random)));
            return values;
        };
        shape = padded(2, queries, keys, 4, 2);
        shape.head_dim = dim, shape.value_dim = dim + 1;
        shape.scale = 0.75, shape.softcap = softcap;
        shape.window_left = keys - 2, shape.window_right = 1, shape.bottom_right = true;
        shape.bias = {true, {1, 4, 1, keys}, draw(4 * keys)};
        shape.mask = {true, {2, 1, queries, keys}, {}};
        for (std::int64_t e = 0; e < 2 * queries * keys; ++e)
            shape.mask.values.push_back(random() % 8 != 0);
        if (has_sink) shape.sink = draw(4);
        query = draw(2 * queries * 4 * dim), key = draw(2 * keys * 2 * dim);
        value = draw(2 * keys * 2 * (dim + 1)), output_grad = draw(2 * queries * 4 * (dim + 1));
    }
    AttentionInputs<double> inputs() const { return shape.inputs(query, key, value); }
    ColumnLister columns() const { return attention_columns(shape); }

    struct Forward {
        Values output, row_max, row_sum;
    };
    Forward forward() const {
        Forward f{Values(output_grad.size()), {}, {}};
        f.row_max.resize(static_cast<std::size_t>(shape.total_queries * 4));
        f.row_sum.resize(f.row_max.size());
        dense_attention<double>(shape.dense(), columns(), inputs(), f.output, f.row_max, f.row_sum);
        return f;
    }
    AttentionGradInputs gradient(const Forward& f) const {
        AttentionGradInputs in{inputs(), output_grad, f.output, f.row_max, f.row_sum};
        in.bias_elements = shape.bias.values.size();
        return in;
    }
};

/// d <dO, O> / dx for one number, by complex step.
double derivative(const Problem& p, const char tensor, std::size_t index) {
    constexpr double kStep = 1e-100;
    const auto complex = [&](const Values& values, char name) {
        std::vector<Complex> out(values.begin(), values.end());
        if (name == tensor) out[index] += Complex(0, kStep);
        return out;
    };
    const auto q = complex(p.query, 'q'), k = complex(p.key, 'k'), v = complex(p.value, 'v'),
               bias = complex(p.shape.bias.values, 'b'), sink = complex(p.shape.sink, 's');
    std::vector<Complex> output(p.output_grad.size());
    dense_attention<Complex>(p.shape.dense(), p.columns(),
                             {q, k, v, p.shape.scale, 1, p.shape.softcap, sink, bias}, output);
    double sum = 0;
    for (std::size_t i = 0; i < output.size(); ++i) sum += p.output_grad[i] * output[i].imag();
    return sum / kStep;
}

class AttentionGradients : public testing::TestWithParam<std::tuple<double, bool>> {};

TEST_P(AttentionGradients, AreTheComplexStep) {
    const Problem p(3, std::get<0>(GetParam()), std::get<1>(GetParam()));
    const auto forward = p.forward();
    const auto grad =
        expected_attention_grad(p.shape.dense(), p.columns(), p.gradient(forward), Dtype::fp32);
    const struct {
        char name;
        const ExpectedTensor& of;
    } tensors[] = {{'q', grad.query_grad}, {'k', grad.key_grad}, {'v', grad.value_grad},
                   {'b', grad.bias_grad}, {'s', grad.sink_grad}};
    for (const auto& [name, of] : tensors) {
        ASSERT_EQ(of.size(), name == 'q'   ? p.query.size()
                             : name == 'k' ? p.key.size()
                             : name == 'v' ? p.value.size()
                             : name == 'b' ? p.shape.bias.values.size()
                                           : p.shape.sink.size());
        for (std::size_t i = 0; i < of.size(); ++i)
            ASSERT_NEAR(of.value[i], derivative(p, name, i), 1e-13) << name << i;
    }
}

// With the LSE instead of maximum and sum.
TEST_P(AttentionGradients, DependOnTheStatisticsByTheirLse) {
    const Problem p(4, std::get<0>(GetParam()), std::get<1>(GetParam()));
    const auto forward = p.forward();
    Values lse;
    for (std::size_t i = 0; i < forward.row_max.size(); ++i)
        lse.push_back(forward.row_max[i] + std::log(forward.row_sum[i]));
    const GradStatistics given = given_statistics(lse);
    AttentionGradInputs by_lse = p.gradient(forward);
    by_lse.row_max = given.row_max, by_lse.row_sum = given.row_sum;
    const auto a =
        expected_attention_grad(p.shape.dense(), p.columns(), p.gradient(forward), Dtype::fp32);
    const auto b = expected_attention_grad(p.shape.dense(), p.columns(), by_lse, Dtype::fp32);
    for (std::size_t i = 0; i < a.query_grad.size(); ++i)
        ASSERT_NEAR(a.query_grad.value[i], b.query_grad.value[i], 1e-13);
    for (std::size_t i = 0; i < a.sink_grad.size(); ++i)
        ASSERT_NEAR(a.sink_grad.value[i], b.sink_grad.value[i], 1e-13);
}

// Chosen rows, keys and elements have the numbers and bounds of the whole.
TEST_P(AttentionGradients, OfChosenRowsAreThoseOfAll) {
    const Problem p(5, std::get<0>(GetParam()), std::get<1>(GetParam()));
    const auto forward = p.forward();
    const AttentionGradInputs in = p.gradient(forward);
    const auto all = expected_attention_grad(p.shape.dense(), p.columns(), in, Dtype::fp32);
    const Numbers rows = {7, 2, 33}, keys = {5, 20};
    const auto dq = expected_query_grad_rows(p.shape.dense(), p.columns(), in, Dtype::fp32, rows);
    for (std::size_t r = 0; r < rows.size(); ++r)
        for (std::size_t d = 0; d < 3; ++d) {
            const auto at = static_cast<std::size_t>(rows[r]) * 3 + d;
            EXPECT_NEAR(dq.value[r * 3 + d], all.query_grad.value[at], 1e-14);
            EXPECT_NEAR(dq.bound[r * 3 + d], all.query_grad.bound[at], 1e-14);
        }
    const auto dk = expected_key_grad_of(p.shape.dense(), attention_columns_of(p.shape, keys), in,
                                         Dtype::fp32, keys);
    for (std::size_t r = 0; r < keys.size(); ++r)
        for (std::size_t d = 0; d < 3; ++d) {
            const auto at = static_cast<std::size_t>(keys[r]) * 3 + d;
            EXPECT_NEAR(dk.key_grad.value[r * 3 + d], all.key_grad.value[at], 1e-14);
            EXPECT_NEAR(dk.key_grad.bound[r * 3 + d], all.key_grad.bound[at], 1e-14);
        }
    const Numbers elements = {20, 3, 11};
    AttentionGradInputs few = in;
    few.bias_elements = elements.size();
    const auto dbias =
        expected_bias_grad(p.shape.dense(), attention_columns_of_bias(p.shape, elements), few,
                           Dtype::fp32);
    for (std::size_t e = 0; e < elements.size(); ++e) {
        const auto at = static_cast<std::size_t>(elements[e]);
        EXPECT_NEAR(dbias.value[e], all.bias_grad.value[at], 1e-14);
        EXPECT_NEAR(dbias.bound[e], all.bias_grad.bound[at], 1e-14);
    }
    const auto dsink = expected_sink_grad(p.shape.dense(), attention_columns_of(p.shape, {}), in,
                                          Dtype::fp32);
    EXPECT_EQ(dsink.value, all.sink_grad.value);
    EXPECT_EQ(dsink.bound, all.sink_grad.bound);

    // And the variances.
    const auto queries = sequence_places(p.shape.query_lengths, p.shape.total_queries),
               places = sequence_places(p.shape.kv_lengths, p.shape.total_keys);
    const auto noise = attention_grad_noise(p.shape.dense(), p.columns(), in, queries, places,
                                            Dtype::fp32, {});
    const auto few_noise =
        bias_grad_noise(p.shape.dense(), attention_columns_of_bias(p.shape, elements), few, queries,
                        places, Dtype::fp32, {});
    for (std::size_t e = 0; e < elements.size(); ++e)
        EXPECT_NEAR(few_noise.variance[e],
                    noise.bias_grad.variance[static_cast<std::size_t>(elements[e])],
                    1e-9 * few_noise.variance[e]);
    EXPECT_EQ(noise.sink_grad.size(), p.shape.sink.size());
}

INSTANTIATE_TEST_SUITE_P(Forms, AttentionGradients,
                         testing::Combine(testing::Values(0.0, 1.5, 30.0), testing::Bool()));

// Softcap and sink off, bias after the scale, causal: the problem is one of FlashAttention, and so
// are its numbers and bounds.
TEST(Attention, AgreesWithFlashAttention) {
    Problem p(6, 0, false);
    p.shape.mask = {}, p.shape.window_left = -1, p.shape.window_right = 0;
    FlashAttentionShape flash;
    flash.query_lengths = p.shape.query_lengths, flash.kv_lengths = p.shape.kv_lengths;
    flash.total_queries = p.shape.total_queries, flash.total_keys = p.shape.total_keys;
    flash.query_heads = 4, flash.kv_heads = 2, flash.head_dim = 3, flash.value_dim = 4;
    flash.scale = p.shape.scale;
    flash.mask = {true, 3, 0, 0, {2048, 2048}, {}, {}};
    flash.bias = {true, 0, {1, 4, 1, 7}, p.shape.bias.values};
    const auto ours = expected_attention(p.shape.dense(), p.columns(), p.inputs(), Dtype::bf16),
               theirs = expected_attention(flash.dense(), flash_columns(flash), p.inputs(), Dtype::bf16);
    EXPECT_EQ(ours.output.value, theirs.output.value);
    EXPECT_EQ(ours.output.bound, theirs.output.bound);
    const auto forward = p.forward();
    AttentionGradInputs in = p.gradient(forward);
    const auto grad = expected_attention_grad(p.shape.dense(), p.columns(), in, Dtype::bf16);
    in.bias_elements = 0;
    const auto other = expected_attention_grad(flash.dense(), flash_columns(flash), in, Dtype::bf16);
    EXPECT_EQ(grad.key_grad.value, other.key_grad.value);
    EXPECT_EQ(grad.key_grad.bound, other.key_grad.bound);
    EXPECT_EQ(grad.query_grad.bound, other.query_grad.bound);
}

// ---- kernels in fp32 ----

float rounded(Dtype dtype, double value) {
    return static_cast<float>(decode(dtype, encode(dtype, value)));
}

/// A straightforward kernel in fp32: P and dS are cast to `dtype` before their products, and so are
/// the results.
struct Kernel {
    const Problem& p;
    Dtype dtype;
    bool base_two;
    std::vector<float> output, lse, dq, dk, dv, dbias, dsink;

    float exponential(float x) const {
        return base_two ? std::exp2(x * 1.44269504f) : std::exp(x);
    }
    float logit(std::int64_t row, const KeyColumn& c, float* slope) const {
        const NeutralAttentionShape& s = p.shape;
        float dot = 0;
        for (std::int64_t d = 0; d < s.head_dim; ++d)
            dot += static_cast<float>(p.query[static_cast<std::size_t>(row * s.head_dim + d)]) *
                   static_cast<float>(p.key[key_at(row, c) * static_cast<std::size_t>(s.head_dim) +
                                            static_cast<std::size_t>(d)]);
        float x = dot * static_cast<float>(s.scale);
        *slope = 1;
        if (s.softcap > 0) {
            const auto cap = static_cast<float>(s.softcap);
            const float t = std::tanh(x / cap);
            x = cap * t, *slope = 1 - t * t;
        }
        return x + static_cast<float>(c.bias);
    }
    std::size_t key_at(std::int64_t row, const KeyColumn& c) const {
        return static_cast<std::size_t>(c.key * 2 + row % 4 / 2);
    }

    Kernel(const Problem& problem, Dtype storage, bool base2)
        : p(problem), dtype(storage), base_two(base2), output(p.output_grad.size()),
          lse(static_cast<std::size_t>(p.shape.total_queries * 4)) {
        for_rows([&](std::int64_t row, const std::vector<KeyColumn>& columns) { attend(row, columns); });
    }

    template <class Use>
    void for_rows(const Use& use) {
        const ColumnLister list = p.columns();
        for (std::int64_t row = 0; row < std::ssize(lse); ++row) {
            std::vector<KeyColumn> columns;
            list(row / 4, row % 4, columns);
            use(row, columns);
        }
    }
    float sink(std::int64_t row) const {
        return p.shape.sink.empty() ? -HUGE_VALF
                                    : static_cast<float>(p.shape.sink[static_cast<std::size_t>(row % 4)]);
    }
    void attend(std::int64_t row, const std::vector<KeyColumn>& columns) {
        float m = sink(row), slope = 0;
        for (const KeyColumn& c : columns) m = std::max(m, logit(row, c, &slope));
        float l = p.shape.sink.empty() ? 0 : exponential(sink(row) - m);
        const auto dv_dim = p.shape.value_dim;
        std::vector<float> o(static_cast<std::size_t>(dv_dim));
        for (const KeyColumn& c : columns) {
            const float e = exponential(logit(row, c, &slope) - m);
            l += e;
            for (std::int64_t d = 0; d < dv_dim; ++d)
                o[static_cast<std::size_t>(d)] +=
                    rounded(dtype, e) *
                    static_cast<float>(p.value[key_at(row, c) * static_cast<std::size_t>(dv_dim) +
                                               static_cast<std::size_t>(d)]);
        }
        const bool any = !columns.empty();
        lse[static_cast<std::size_t>(row)] =
            base_two ? (m * 1.44269504f + std::log2(l)) * 0.693147181f : m + std::log(l);
        for (std::int64_t d = 0; d < dv_dim; ++d)
            output[static_cast<std::size_t>(row * dv_dim + d)] =
                any ? rounded(dtype, o[static_cast<std::size_t>(d)] / l) : 0;
    }

    /// From the output and the LSE that are given.
    void differentiate(const Values& out, const Values& given_lse) {
        const NeutralAttentionShape& s = p.shape;
        const std::int64_t dim = s.head_dim, dv_dim = s.value_dim;
        dq.assign(p.query.size(), 0), dk.assign(p.key.size(), 0), dv.assign(p.value.size(), 0);
        dbias.assign(s.bias.values.size(), 0), dsink.assign(s.sink.size(), 0);
        for_rows([&](std::int64_t row, const std::vector<KeyColumn>& columns) {
            const auto r = static_cast<std::size_t>(row);
            float delta = 0;
            const auto dout = [&](std::int64_t d) {
                return static_cast<float>(p.output_grad[static_cast<std::size_t>(row * dv_dim + d)]);
            };
            for (std::int64_t d = 0; d < dv_dim; ++d)
                delta += dout(d) * static_cast<float>(out[static_cast<std::size_t>(row * dv_dim + d)]);
            const auto given = static_cast<float>(given_lse[r]);
            if (!s.sink.empty()) dsink[r % 4] -= exponential(sink(row) - given) * delta;
            for (const KeyColumn& c : columns) {
                float slope = 0, dp = 0;
                const float prob = exponential(logit(row, c, &slope) - given);
                const std::size_t key = key_at(row, c);
                const auto at = [](std::size_t first, std::int64_t width, std::int64_t d) {
                    return first * static_cast<std::size_t>(width) + static_cast<std::size_t>(d);
                };
                for (std::int64_t d = 0; d < dv_dim; ++d) {
                    dp += dout(d) * static_cast<float>(p.value[at(key, dv_dim, d)]);
                    dv[at(key, dv_dim, d)] += rounded(dtype, prob) * dout(d);
                }
                const float ds = prob * (dp - delta);
                dbias[static_cast<std::size_t>(c.place)] += ds;
                const float cast = rounded(dtype, ds * slope);
                for (std::int64_t d = 0; d < dim; ++d) {
                    dq[at(r, dim, d)] += cast * static_cast<float>(p.key[at(key, dim, d)]);
                    dk[at(key, dim, d)] += cast * static_cast<float>(p.query[at(r, dim, d)]);
                }
            }
        });
        const auto scale = static_cast<float>(s.scale);
        for (float& x : dq) x = rounded(dtype, x * scale);
        for (float& x : dk) x = rounded(dtype, x * scale);
        for (float& x : dv) x = rounded(dtype, x);
    }
};

/// The largest |error| / bound.
double worst(const char* what, const std::vector<float>& got, const ExpectedTensor& expected) {
    EXPECT_EQ(got.size(), expected.size()) << what;
    double most = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
        const double error = std::fabs(static_cast<double>(got[i]) - expected.value[i]);
        if (std::isinf(expected.value[i])) continue;
        EXPECT_LE(error, expected.bound[i]) << what << i;
        if (error > 0) most = std::max(most, error / expected.bound[i]);
    }
    return most;
}

Values widened(const std::vector<float>& values) { return {values.begin(), values.end()}; }

class AttentionBounds
    : public testing::TestWithParam<std::tuple<Dtype, double, bool, bool>> {};

// No kernel leaves its bound, and no bound is much too wide: one element at least comes within a
// factor of 20, in fp32 of 50.
TEST_P(AttentionBounds, HoldForKernelsInFp32) {
    const auto [dtype, softcap, has_sink, base_two] = GetParam();
    double worst_output = 0, worst_lse = 0, worst_dq = 0, worst_dk = 0, worst_bias = 0, worst_sink = 0;
    for (unsigned seed = 0; seed < 20; ++seed) {
        const Problem p(seed, softcap, has_sink, 5, 40, 4, dtype);
        Kernel kernel(p, dtype, base_two);
        const auto f = expected_attention(p.shape.dense(), p.columns(), p.inputs(), dtype);
        worst_output = std::max(worst_output, worst("o", kernel.output, f.output));
        worst_lse = std::max(worst_lse, worst("lse", kernel.lse, f.stored_lse));
        Values output = f.output.value, lse = f.stored_lse.value;
        for (double& x : output) x = rounded(dtype, x);
        for (double& x : lse) x = static_cast<float>(x);
        kernel.differentiate(output, lse);
        const GradStatistics given = given_statistics(lse);
        AttentionGradInputs in{p.inputs(), p.output_grad, output, given.row_max, given.row_sum};
        in.bias_elements = p.shape.bias.values.size();
        const auto g = expected_attention_grad(p.shape.dense(), p.columns(), in, dtype);
        worst_dq = std::max(worst_dq, worst("dq", kernel.dq, g.query_grad));
        worst_dk = std::max(worst_dk, worst("dk", kernel.dk, g.key_grad));
        worst("dv", kernel.dv, g.value_grad);
        worst_bias = std::max(worst_bias, worst("dbias", kernel.dbias, g.bias_grad));
        worst_sink = std::max(worst_sink, worst("dsink", kernel.dsink, g.sink_grad));

        // A kernel that forms its own statistics.
        const GradStatistics own =
            own_statistics(p.shape.dense(), p.columns(), p.inputs(), dtype, {});
        kernel.differentiate(output, widened(kernel.lse));
        in.row_max = own.row_max, in.row_sum = own.row_sum, in.statistics_error = own.error;
        const auto h = expected_attention_grad(p.shape.dense(), p.columns(), in, dtype);
        worst("dq", kernel.dq, h.query_grad), worst("dk", kernel.dk, h.key_grad);
        worst("dbias", kernel.dbias, h.bias_grad), worst("dsink", kernel.dsink, h.sink_grad);
    }
    const double near = dtype == Dtype::fp32 ? 0.02 : 0.05;
    EXPECT_GT(worst_output, near);
    EXPECT_GT(worst_lse, 0.02);
    EXPECT_GT(worst_dq, near);
    EXPECT_GT(worst_dk, near);
    if (dtype == Dtype::fp32) {
        EXPECT_GT(worst_bias, 0.005);
        if (has_sink) {
            EXPECT_GT(worst_sink, 0.005);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Forms, AttentionBounds,
                         testing::Combine(testing::Values(Dtype::bf16, Dtype::fp16, Dtype::fp32),
                                          testing::Values(0.0, 1.0, 30.0), testing::Bool(),
                                          testing::Bool()));

// Scores beyond a large cap: their own errors vanish behind the slope, those of tanh and of the LSE
// decide.
TEST(Attention, BoundsGrantTheErrorsOfTanhAndOfTheLse) {
    double worst_output = 0, worst_lse = 0, worst_dq = 0;
    for (unsigned seed = 0; seed < 10; ++seed)
        for (const bool base_two : {false, true}) {
            Problem p(seed, 1000, true, 5, 40, 1);
            p.shape.scale = 1;
            std::mt19937 random(seed);
            std::normal_distribution<double> normal;
            for (double& q : p.query) q = 1;
            for (double& k : p.key) k = static_cast<float>(2000 + 200 * normal(random));
            for (double& sink : p.shape.sink) sink += 965;
            for (double& bias : p.shape.bias.values) bias = 0;  // a bias is granted its own
            Kernel kernel(p, Dtype::fp32, base_two);
            const auto f = expected_attention(p.shape.dense(), p.columns(), p.inputs(), Dtype::fp32);
            worst_output = std::max(worst_output, worst("o", kernel.output, f.output));
            worst_lse = std::max(worst_lse, worst("lse", kernel.lse, f.stored_lse));

            // A kernel that forms its own statistics may be wrong by as much as its forward.
            const GradStatistics own =
                own_statistics(p.shape.dense(), p.columns(), p.inputs(), Dtype::fp32, {});
            Values lse = f.stored_lse.value;
            for (std::size_t i = 0; i < lse.size(); ++i)
                lse[i] = static_cast<float>(lse[i] + 0.9 * f.stored_lse.bound[i]);
            kernel.differentiate(f.output.value, lse);
            AttentionGradInputs in{p.inputs(), p.output_grad, f.output.value, own.row_max, own.row_sum};
            in.statistics_error = own.error, in.bias_elements = p.shape.bias.values.size();
            const auto g = expected_attention_grad(p.shape.dense(), p.columns(), in, Dtype::fp32);
            worst_dq = std::max(worst_dq, worst("dq", kernel.dq, g.query_grad));
            worst("dv", kernel.dv, g.value_grad), worst("dbias", kernel.dbias, g.bias_grad);
            worst("dsink", kernel.dsink, g.sink_grad);
        }
    EXPECT_GT(worst_output, 0.05);
    EXPECT_GT(worst_lse, 0.05);
    EXPECT_GT(worst_dq, 0.001);
}

/// rms(error / sigma).
double rms(const std::vector<float>& got, const RoundingNoise& noise) {
    double sum = 0, count = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
        if (!(noise.variance[i] > 0)) continue;
        const double z = (static_cast<double>(got[i]) - noise.value[i]) / std::sqrt(noise.variance[i]);
        EXPECT_LT(std::fabs(z), 8) << i;
        sum += z * z, ++count;
    }
    return std::sqrt(sum / count);
}

class AttentionVariance : public testing::TestWithParam<std::tuple<double, bool>> {};

// The variance predicts the errors of the declared class; those of LSE, dbias and dsink are upper
// estimates.
TEST_P(AttentionVariance, PredictsTheErrors) {
    const Problem p(11, std::get<0>(GetParam()), std::get<1>(GetParam()), 40, 60, 16, Dtype::bf16);
    Kernel kernel(p, Dtype::bf16, true);
    const auto keys = sequence_places(p.shape.kv_lengths, p.shape.total_keys),
               queries = sequence_places(p.shape.query_lengths, p.shape.total_queries);
    const auto noise = attention_noise(p.shape.dense(), p.columns(), p.inputs(), keys, Dtype::bf16, {});
    const double of_output = rms(kernel.output, noise.output);
    EXPECT_GT(of_output, 0.6);
    EXPECT_LT(of_output, 1.2);
    EXPECT_LT(rms(kernel.lse, noise.lse), 1.2);
    const auto f = expected_attention(p.shape.dense(), p.columns(), p.inputs(), Dtype::bf16);
    Values output = f.output.value, lse = f.stored_lse.value;
    for (double& x : output) x = rounded(Dtype::bf16, x);
    for (double& x : lse) x = static_cast<float>(x);
    kernel.differentiate(output, lse);
    const GradStatistics given = given_statistics(lse);
    AttentionGradInputs in{p.inputs(), p.output_grad, output, given.row_max, given.row_sum};
    in.bias_elements = p.shape.bias.values.size();
    const auto grad = attention_grad_noise(p.shape.dense(), p.columns(), in, queries, keys, Dtype::bf16, {});
    for (const double z : {rms(kernel.dq, grad.query_grad), rms(kernel.dk, grad.key_grad),
                           rms(kernel.dv, grad.value_grad)}) {
        EXPECT_GT(z, 0.6);
        EXPECT_LT(z, 1.2);
    }
    EXPECT_LT(rms(kernel.dbias, grad.bias_grad), 1.2);
    if (!p.shape.sink.empty()) {
        EXPECT_EQ(grad.sink_grad.size(), 4U);
        EXPECT_LT(rms(kernel.dsink, grad.sink_grad), 1.2);
    }
}

INSTANTIATE_TEST_SUITE_P(Forms, AttentionVariance,
                         testing::Combine(testing::Values(0.0, 2.0, 30.0), testing::Bool()));

}  // namespace
}  // namespace attncheck::ref
