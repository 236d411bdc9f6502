// Errors that elements share: the variance of a sum of results agrees with difference quotients. The errors are those of Q
// and K as they are scaled, of the LSE that a row of a gradient reads, and of its delta.
#include "ref/attention/common_errors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <tuple>

#include "attention_problem.h"
#include "ref/attention/rounding_variance.h"

namespace attncheck::ref {
namespace {

const RoundingClass kHalf = parse_rounding_class("scale=half");

Values drawn(std::size_t count, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    Values values(count);
    for (double& v : values) v = normal(random);
    return values;
}

double sum_of(const Values& weights, const Values& values) {
    return inner_product(weights.data(), values.data(), std::ssize(weights));
}

/// sum over all x of Q and K of (u^2 x^2 / 3 + eta^2 / scale^2) (d f / d x)^2.
/// (d f / d x)^2.
double square_slope(double& x, const std::function<double()>& f) {
    constexpr double kStep = 1e-5;
    const double at = x;
    x = at + kStep;
    const double above = f();
    x = at - kStep;
    const double slope = (above - f()) / (2 * kStep);
    x = at;
    return square(slope);
}

double by_differences(NeutralProblem& p, const std::function<double()>& f) {
    const RoundingVariance of({Dtype::fp16, kHalf});
    double sum = 0;
    for (Values* values : {&p.query, &p.key})
        for (double& x : *values)
            sum += (of.scaling * square(x) + of.scaling_underflow / square(p.shape.scale)) * square_slope(x, f);
    return sum;
}

/// The same in fp32, without an absolute part; and over the rows 4 u^2 (m^2 + (log l)^2) (d f / d LSE)^2 and
/// var(delta) (d f / d delta)^2.
double of_rows_by_differences(NeutralProblem& p, NeutralProblem::Forward& forward, const std::function<double()>& f) {
    const RoundingVariance of({Dtype::fp32, {}});
    double sum = 0;
    for (Values* values : {&p.query, &p.key})
        for (double& x : *values) sum += square(of.unit * x) * square_slope(x, f);
    const std::size_t width = forward.output.size() / forward.row_max.size();
    for (std::size_t row = 0; row < forward.row_max.size(); ++row) {
        if (forward.row_max[row] == kEmptyRowMax) continue;
        double lse = 0, squares = 0, of_delta = 0;
        const double log_sum = std::log(forward.row_sum[row]), *dout = p.output_grad.data() + row * width;
        double* out = forward.output.data() + row * width;
        for (std::size_t c = 0; c < width; ++c) squares += square(dout[c]), of_delta += square(dout[c] * out[c]);
        sum += 4 * square(of.unit) * (square(forward.row_max[row]) + square(log_sum)) * square_slope(lse, [&] {
                   const double l = forward.row_sum[row];
                   forward.row_sum[row] = l * std::exp(lse);
                   const double at = f();
                   forward.row_sum[row] = l;
                   return at;
               });
        double delta = 0;
        const Values before(out, out + width);
        sum += of.of_sum(static_cast<double>(width)) * of_delta * square_slope(delta, [&] {
                   for (std::size_t c = 0; c < width; ++c) out[c] = before[c] + delta * dout[c] / squares;
                   const double at = f();
                   std::ranges::copy(before, out);
                   return at;
               });
    }
    return sum;
}

class ScaledInputs : public testing::TestWithParam<std::tuple<double, bool>> {
protected:
    NeutralProblem p_{7, std::get<0>(GetParam()), std::get<1>(GetParam())};

    double variance(const AttentionGradInputs& in, Result result, const Values& weights,
                    const RoundingClass& rounding = kHalf, Dtype dtype = Dtype::fp16) const {
        return common_error_variance({p_.shape.dense(), p_.columns(), in}, {dtype, rounding}, {result, weights});
    }
    ExpectedAttentionGrad gradient(const NeutralProblem::Forward& forward) const {
        return expected_attention_grad({p_.shape.dense(), p_.columns(), p_.gradient(forward)},
                                       Dtype::fp16);
    }
};

TEST_P(ScaledInputs, OfTheForwardAreTheDifferenceQuotients) {
    const auto forward = p_.forward();
    const struct {
        Result result;
        std::function<Values(const NeutralProblem::Forward&)> values;
    } results[] = {{Result::output, [](const auto& f) { return f.output; }},
                   {Result::row_max, [](const auto& f) { return f.row_max; }},
                   {Result::row_sum, [](const auto& f) { return f.row_sum; }},
                   {Result::lse, [](const auto& f) {
                        Values lse(f.row_max);
                        for (std::size_t i = 0; i < lse.size(); ++i) lse[i] += std::log(f.row_sum[i]);
                        return lse;
                    }}};
    for (const auto& [result, values] : results) {
        // Statistics of rows that see nothing are constants too large for a difference.
        Values weights = drawn(values(forward).size(), 3);
        for (std::size_t i = 0; i < weights.size() && result != Result::output; ++i)
            if (forward.row_max[i] == kEmptyRowMax) weights[i] = 0;
        const double want = by_differences(p_, [&] { return sum_of(weights, values(p_.forward())); });
        EXPECT_GT(want, 0);
        EXPECT_NEAR(variance(p_.gradient(forward), result, weights) / want, 1, 1e-5) << static_cast<int>(result);
    }
}

TEST_P(ScaledInputs, OfTheGradientAreTheDifferenceQuotients) {
    const auto forward = p_.forward();
    const struct {
        Result result;
        ExpectedTensor ExpectedAttentionGrad::* tensor;
    } results[] = {{Result::query_grad, &ExpectedAttentionGrad::query_grad},
                   {Result::key_grad, &ExpectedAttentionGrad::key_grad},
                   {Result::value_grad, &ExpectedAttentionGrad::value_grad},
                   {Result::bias_grad, &ExpectedAttentionGrad::bias_grad}};
    for (const auto& [result, tensor] : results) {
        const Values weights = drawn((gradient(forward).*tensor).size(), 4);
        const auto sum = [&](const NeutralProblem::Forward& f) { return sum_of(weights, (gradient(f).*tensor).value); };
        const double want = by_differences(p_, [&] { return sum(forward); });
        EXPECT_GT(want, 0);
        EXPECT_NEAR(variance(p_.gradient(forward), result, weights) / want, 1, 1e-5) << static_cast<int>(result);
        // A forward of its own that has the same roundings.
        const double own = by_differences(p_, [&] { return sum(p_.forward()); });
        EXPECT_GE(variance(p_.gradient(forward), result, weights, parse_rounding_class("scale=half forward=own")),
                  own * (1 - 1e-5));
    }
}

TEST_P(ScaledInputs, OfRowsOfTheGradientAreTheDifferenceQuotients) {
    auto forward = p_.forward();
    const struct {
        Result result;
        ExpectedTensor ExpectedAttentionGrad::* tensor;
    } results[] = {{Result::key_grad, &ExpectedAttentionGrad::key_grad},
                   {Result::value_grad, &ExpectedAttentionGrad::value_grad}};
    for (const auto& [result, tensor] : results) {
        const Values weights = drawn((gradient(forward).*tensor).size(), 4);
        const double got = variance(p_.gradient(forward), result, weights, {}, Dtype::fp32),
                     want = of_rows_by_differences(
                         p_, forward, [&] { return sum_of(weights, (gradient(forward).*tensor).value); });
        EXPECT_GT(want, 0);
        EXPECT_NEAR(got / want, 1, 1e-4) << static_cast<int>(result);
    }
}

TEST_P(ScaledInputs, OfChosenRowsAreThoseOfAll) {
    const auto forward = p_.forward();
    const AttentionGradInputs in = p_.gradient(forward);
    const Numbers rows = {7, 2, 33}, keys = {5, 20};
    const auto compare = [&](Result result, const Numbers& chosen, std::size_t width, std::size_t size) {
        const Values weights = drawn(chosen.size() * width, 5);
        Values all(size);
        for (std::size_t r = 0; r < chosen.size(); ++r)
            for (std::size_t d = 0; d < width; ++d)
                all[static_cast<std::size_t>(chosen[r]) * width + d] = weights[r * width + d];
        WeightedResult sum{result, weights};
        sum.chosen = chosen;
        const double want = variance(in, result, all);
        EXPECT_GT(want, 0);
        EXPECT_NEAR(common_error_variance({p_.shape.dense(), p_.columns(), in},
                                           {Dtype::fp16, kHalf}, sum) /
                        want,
                    1, 1e-12)
            << static_cast<int>(result);
    };
    compare(Result::output, rows, 4, forward.output.size());
    compare(Result::query_grad, rows, 3, p_.query.size());
    compare(Result::key_grad, keys, 3, p_.key.size());
    compare(Result::value_grad, keys, 4, p_.value.size());
}

INSTANTIATE_TEST_SUITE_P(, ScaledInputs, testing::Combine(testing::Values(0.0, 1.5), testing::Bool()),
                         [](const auto& of) {
                             return std::string(std::get<0>(of.param) > 0 ? "Softcap" : "Plain") +
                                    (std::get<1>(of.param) ? "Sink" : "");
                         });

TEST(CommonScalingError, IsThatOfTheFactor) {
    const double u = unit_roundoff(Dtype::fp16);
    Values values = drawn(4000, 6);
    for (double& x : values) x = decode(Dtype::fp16, encode(Dtype::fp16, x));
    // An exact factor, whose root is one, too; log2 e alone rounds: nothing in common but the least.
    EXPECT_EQ(common_scaling_error(values, 0.25, Dtype::fp16), u / 32);
    // 1 + u / 2 is lost by every number.
    EXPECT_GT(common_scaling_error(values, 1 + u / 2, Dtype::fp16), 0.45 * u);
}

}  // namespace
}  // namespace attncheck::ref
