#include "ref/attention/row_noise.h"

#include "ref/attention/close_numbers.h"

#include <algorithm>
#include <cmath>

namespace attncheck::ref {

Array flushed_products(const Rows& a, const Rows& b, double flush) {
    if (flush == 0) return Array::Zero(a.rows(), b.rows());
    const auto lost = [&](const Rows& x) -> Eigen::VectorXd {
        return (x.array().abs() < flush).select(x.array().square(), 0.0).rowwise().sum().matrix();
    };
    const Eigen::VectorXd a_lost = lost(a), b_lost = lost(b), a_all = a.rowwise().squaredNorm(),
                          b_all = b.rowwise().squaredNorm();
    return (a_lost * b_all.transpose() + a_all * b_lost.transpose()).array();
}

Array as_relative_errors(Array omega) {
    constexpr double kSmall = 0.1, kLargest = 10;
    for (double& one : omega.reshaped())
        if (one > square(kSmall)) one *= std::exp(8 * (std::min(std::sqrt(one), kLargest) - kSmall));
    return omega;
}

ScoreNoise::ScoreNoise(const AttentionForward<double>& forward, const RoundingVariance& of)
    : scale_(forward.in.scale),
      dim_(static_cast<double>(forward.shape.head_dim)),
      cap_(forward.in.softcap),
      of_(of),
      key_squares_(view(forward.in.key, forward.shape.head_dim).rowwise().squaredNorm()) {}

Array ScoreNoise::of_sums(const SharedRows<double>& rows) const {
    const Eigen::VectorXd query = rows.query.rowwise().squaredNorm();
    Eigen::VectorXd key = Eigen::VectorXd::Zero(rows.count());  // 0 for a sink
    for (std::int64_t j = 0; j < key.size(); ++j)
        if (const std::int64_t at = rows.keys[static_cast<std::size_t>(j)]; at >= 0)
            key[j] = key_squares_[at];
    Array out = Array::Zero(query.size(), key.size());
    if (of_.flush > 0) out += square(scale_) * flushed_products(rows.query, rows.key(), of_.flush);
    if (of_.scaling_underflow > 0)
        out += of_.scaling_underflow * std::max(1.0, std::fabs(scale_)) *
               (query.replicate(1, key.size()) + key.transpose().replicate(query.size(), 1)).array();
    if (of_.cut > 0) out += of_.cut * (scale_ * product_transposed(rows.query, rows.key()).array()).square();
    return out + square(scale_) * of_.of_products(dim_) * 2 / dim_ * (query * key.transpose()).array();
}

Array ScoreNoise::of_stored(const SharedRows<double>& rows, const Array& scores, const Array& logits) const {
    Array out = of_caps(scores, logits.rows(), logits.cols());
    if (of_.score == 0) return out;
    return out + logits.binaryExpr(rows.bias, [&](double s, double b) { return of_.of_stored_score(s, b); });
}

Array ScoreNoise::of_caps(const Array& scores, std::int64_t rows, std::int64_t columns) const {
    if (cap_ == 0 || (of_.step == 0 && of_.tanh == 0)) return Array::Zero(rows, columns);
    return scores.unaryExpr([&](double s) { return of_.of_cap(s, 1 - square(std::tanh(s / cap_)), cap_); });
}

Array ScoreNoise::of_scaling(const SharedRows<double>& rows) const {
    return 2 * of_.scaling * square(scale_) *
           product_transposed(rows.query.cwiseAbs2(), rows.key().cwiseAbs2()).array();
}

Eigen::ArrayXd spreads_of(const Array& logits, const Array& probs) {
    const Mask counts = probs > 0 && probs < kDominant;
    const Array weight = counts.cast<double>();
    const Eigen::ArrayXd count = weight.rowwise().sum(),
                         mean = counts.select(logits, 0.0).rowwise().sum() / count.max(1.0),
                         squares = counts.select((logits.colwise() - mean).square(), 0.0)
                                       .rowwise()
                                       .sum();
    return (count < 2).select(1.0, (squares / count.max(1.0)).min(1.0).sqrt());
}

Eigen::ArrayXd sum_lost_alike(const Array& probs, const Eigen::ArrayXd& spreads,
                              const RoundingVariance& of) {
    Eigen::ArrayXd out = Eigen::ArrayXd::Zero(probs.rows());
    for (std::int64_t i = 0; i < probs.rows(); ++i) {
        if (!RoundingVariance::any_alike(probs.row(i), of.sum, spreads[i])) continue;
        for (std::int64_t j = 0; j < probs.cols(); ++j)
            out[i] += RoundingVariance::alike(probs(i, j), of.sum, spreads[i]);
    }
    return out;
}

std::vector<double> finite_squares(std::span<const double> values) {
    std::vector<double> squares;
    for (const double v : values) squares.push_back(std::isfinite(v) ? v * v : 0);
    return squares;
}

double kept_cast_error(const RoundingVariance& of, double keep_prob) {
    if (keep_prob == 1 || !of.rounds_prob) return 0;
    const double exact = 1 / keep_prob,
                 error = std::fabs(stored_on_grid(exact, half_ulp(of.cast_type, exact)) / exact - 1);
    return error > of.unit ? error : 0;
}

Array kept_alike(const Array& probs, const Eigen::ArrayXd& spreads, const RoundingVariance& of, double keep_prob,
                 bool normalised) {
    const double error = kept_cast_error(of, keep_prob);
    if (error == 0) return {};
    const double cast_unit = std::sqrt(3 * of.cast);
    Array out = Array::Zero(probs.rows(), probs.cols());
    for (std::int64_t i = 0; i < probs.rows(); ++i) {
        const auto row = probs.row(i);
        if (RoundingVariance::alike(1, cast_unit, spreads[i]) > 0) {
            out.row(i) = error * row;
            continue;
        }
        const auto take = [&](std::int64_t j, double& most) {
            if (!(row[j] > 0) || row[j] < most) return;
            most = row[j];
            if (!normalised || most >= 1 - 4 * cast_unit) out(i, j) = error * most;
        };
        double before = 0, behind = 0;
        for (std::int64_t j = 0; j < row.size(); ++j) take(j, before), take(row.size() - 1 - j, behind);
    }
    return out;
}

Eigen::ArrayXd delta_variances(const AttentionBackward& backward, const Eigen::ArrayXd& deltas,
                               const RoundingVariance& of) {
    const std::int64_t width = backward.shape.value_dim;
    const auto dout = view(backward.in.output_grad, width), o = view(backward.in.output, width);
    Eigen::ArrayXd out = of.of_sum(static_cast<double>(width)) * dout.cwiseProduct(o).rowwise().squaredNorm();
    if (of.delta > 0) out += of.delta * deltas.square() + of.underflow;
    return out;
}

}  // namespace attncheck::ref
