// The gradients of the neutral Attention: derivatives by complex step, and those of chosen rows, keys,
// biases and sinks beside those of all.
#include <gtest/gtest.h>

#include <tuple>

#include "attention_problem.h"
#include "ref/attention/chosen_attention.h"
#include "ref/attention/rounding_noise.h"

namespace attncheck::ref {
namespace {

using Complex = std::complex<double>;

/// d <dO, O> / dx for one number, by complex step.
double derivative(const NeutralProblem& p, const char tensor, std::size_t index) {
    constexpr double kStep = 1e-100;
    const auto complex = [&](const Values& values, char name) {
        std::vector<Complex> out(values.begin(), values.end());
        if (name == tensor) out[index] += Complex(0, kStep);
        return out;
    };
    const auto q = complex(p.query, 'q'), k = complex(p.key, 'k'), v = complex(p.value, 'v'),
               bias = complex(p.shape.bias.values, 'b'), sink = complex(p.shape.sink, 's');
    std::vector<Complex> output(p.output_grad.size());
    dense_attention<Complex>(
        {p.shape.dense(), p.columns(), {q, k, v, p.shape.scale, 1, p.shape.softcap, sink, bias}},
        output);
    double sum = 0;
    for (std::size_t i = 0; i < output.size(); ++i) sum += p.output_grad[i] * output[i].imag();
    return sum / kStep;
}

class AttentionGradients : public testing::TestWithParam<std::tuple<double, bool>> {};

TEST_P(AttentionGradients, AreTheComplexStep) {
    const NeutralProblem p(3, std::get<0>(GetParam()), std::get<1>(GetParam()));
    const auto forward = p.forward();
    const auto grad =
        expected_attention_grad({p.shape.dense(), p.columns(), p.gradient(forward)}, Dtype::fp32);
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
    const NeutralProblem p(4, std::get<0>(GetParam()), std::get<1>(GetParam()));
    const auto forward = p.forward();
    Values lse;
    for (std::size_t i = 0; i < forward.row_max.size(); ++i)
        lse.push_back(forward.row_max[i] + std::log(forward.row_sum[i]));
    const GradStatistics given = given_statistics(lse);
    AttentionGradInputs by_lse = p.gradient(forward);
    by_lse.row_max = given.row_max, by_lse.row_sum = given.row_sum;
    const auto a =
        expected_attention_grad({p.shape.dense(), p.columns(), p.gradient(forward)}, Dtype::fp32);
    const auto b = expected_attention_grad({p.shape.dense(), p.columns(), by_lse}, Dtype::fp32);
    for (std::size_t i = 0; i < a.query_grad.size(); ++i)
        ASSERT_NEAR(a.query_grad.value[i], b.query_grad.value[i], 1e-13);
    for (std::size_t i = 0; i < a.sink_grad.size(); ++i)
        ASSERT_NEAR(a.sink_grad.value[i], b.sink_grad.value[i], 1e-13);
}

// Chosen rows, keys and elements have the numbers and bounds of the whole.
TEST_P(AttentionGradients, OfChosenRowsAreThoseOfAll) {
    const NeutralProblem p(5, std::get<0>(GetParam()), std::get<1>(GetParam()));
    const auto forward = p.forward();
    const AttentionGradInputs in = p.gradient(forward);
    const auto all = expected_attention_grad({p.shape.dense(), p.columns(), in}, Dtype::fp32);
    const Numbers rows = {7, 2, 33}, keys = {5, 20};
    const auto dq = expected_query_grad_rows({p.shape.dense(), p.columns(), in}, Dtype::fp32, rows);
    for (std::size_t r = 0; r < rows.size(); ++r)
        for (std::size_t d = 0; d < 3; ++d) {
            const auto at = static_cast<std::size_t>(rows[r]) * 3 + d;
            EXPECT_NEAR(dq.value[r * 3 + d], all.query_grad.value[at], 1e-14);
            EXPECT_NEAR(dq.bound[r * 3 + d], all.query_grad.bound[at], 1e-14);
        }
    const auto dk = expected_key_grad_of({p.shape.dense(), attention_columns_of(p.shape, keys), in},
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
    const auto dbias = expected_bias_grad(
        {p.shape.dense(), attention_columns_of_bias(p.shape, elements), few}, Dtype::fp32);
    for (std::size_t e = 0; e < elements.size(); ++e) {
        const auto at = static_cast<std::size_t>(elements[e]);
        EXPECT_NEAR(dbias.value[e], all.bias_grad.value[at], 1e-14);
        EXPECT_NEAR(dbias.bound[e], all.bias_grad.bound[at], 1e-14);
    }
    const auto dsink =
        expected_sink_grad({p.shape.dense(), attention_columns_of(p.shape, {}), in}, Dtype::fp32);
    EXPECT_EQ(dsink.value, all.sink_grad.value);
    EXPECT_EQ(dsink.bound, all.sink_grad.bound);

    // And the variances.
    const SequencePlaces places{sequence_places(p.shape.query_lengths, p.shape.total_queries),
                                sequence_places(p.shape.kv_lengths, p.shape.total_keys)};
    const auto noise =
        attention_grad_noise({p.shape.dense(), p.columns(), in}, places, Dtype::fp32);
    const auto few_noise = bias_grad_noise(
        {p.shape.dense(), attention_columns_of_bias(p.shape, elements), few}, places, Dtype::fp32);
    for (std::size_t e = 0; e < elements.size(); ++e)
        EXPECT_NEAR(few_noise.variance[e],
                    noise.bias_grad.variance[static_cast<std::size_t>(elements[e])],
                    1e-9 * few_noise.variance[e]);
    EXPECT_EQ(noise.sink_grad.size(), p.shape.sink.size());
}

/// P of a sink of -infinity is 0, and 0 times a delta that leaves fp32 is NaN.
TEST(AttentionSinkGradient, IsNotJudgedWhereDeltaOverflows) {
    NeutralProblem p(5, 0, false);
    p.shape.sink.assign(4, -HUGE_VAL);
    auto forward = p.forward();
    const ExpectedTensor small =
        expected_sink_grad({p.shape.dense(), p.columns(), p.gradient(forward)}, Dtype::fp32);
    for (std::size_t h = 0; h < small.size(); ++h) {
        EXPECT_EQ(small.value[h], 0);
        EXPECT_EQ(small.bound[h], 0);
    }
    p.output_grad[0] = 0x1.fffffep127, forward.output[0] = 2;
    const AttentionGradInputs large = p.gradient(forward);
    const ExpectedTensor of =
        expected_sink_grad({p.shape.dense(), p.columns(), large}, Dtype::fp32);
    EXPECT_EQ(of.overflow[0], Overflow::any);
    for (std::size_t h = 1; h < of.size(); ++h) EXPECT_EQ(of.overflow[h], Overflow::none);
}

// With forward=own delta may be the sum of P dP: dP can leave fp32 where <dO, O> does not.
TEST(AttentionSinkGradient, OfAnOwnForwardCountsItsKeys) {
    NeutralProblem p(5, 0, false);
    p.shape.sink.assign(4, 0.5);
    const auto forward = p.forward();
    const RoundingClass own{.own_forward = true};
    const auto sinks = [&](const RoundingClass& rounding) {
        return expected_sink_grad({p.shape.dense(), p.columns(), p.gradient(forward)}, {Dtype::fp32, rounding});
    };
    const ExpectedTensor given = sinks({}), formed = sinks(own);
    for (std::size_t h = 0; h < given.size(); ++h) EXPECT_GT(formed.bound[h], given.bound[h]);
    std::ranges::fill(p.value, 0x1.8p127);
    p.output_grad[0] = 4;
    EXPECT_EQ(sinks({}).overflow[0], Overflow::none);
    EXPECT_EQ(sinks(own).overflow[0], Overflow::any);
}

// Of no keys sum P dP is 0, and <dO, O> with an infinite dO no number.
TEST(AttentionSinkGradient, OfAnOwnForwardWithoutKeys) {
    NeutralProblem p(5, 0, false);
    p.shape.sink.assign(4, 0.5);
    p.output_grad[0] = HUGE_VAL;
    const ColumnLister none = [](std::int64_t, std::int64_t, std::vector<KeyColumn>&) { return true; };
    auto forward = p.forward();
    std::ranges::fill(forward.output, 0);
    const AttentionGradInputs in = p.gradient(forward);
    EXPECT_TRUE(std::isnan(expected_sink_grad({p.shape.dense(), none, in}, Dtype::fp32).value[0]));
    const ExpectedTensor formed =
        expected_sink_grad({p.shape.dense(), none, in}, {Dtype::fp32, RoundingClass{.own_forward = true}});
    EXPECT_EQ(formed.overflow[0], Overflow::any);
}

INSTANTIATE_TEST_SUITE_P(Forms, AttentionGradients,
                         testing::Combine(testing::Values(0.0, 1.5, 30.0), testing::Bool()));

}  // namespace
}  // namespace attncheck::ref
