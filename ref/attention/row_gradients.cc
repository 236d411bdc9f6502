#include "ref/attention/row_gradients.h"
#include "ref/attention/rounding_variance.h"
#include "ref/numbers/dtype.h"

#include <algorithm>
#include <cmath>

namespace attncheck::ref {
namespace {

/// u of P beside its exponent: log l (4 u), or a reciprocal (4 u) and its product (1 u), and as
/// much again for the statistics being in another base.
constexpr double kQuotient = 12;

}  // namespace

RowGradientBound::RowGradientBound(const AttentionBackward& backward, const Precision& precision,
                                   Grant grant)
    : shape_(backward.shape),
      in_(backward.in),
      dtype_(precision.dtype),
      roundoff_(precision),
      score_error_(shape_, in_.forward, roundoff_),
      value_(in_.forward.value),
      output_grad_(in_.output_grad),
      output_(in_.output),
      grant_(grant),
      scale_(std::fabs(in_.forward.scale)),
      keep_(1 / in_.forward.keep_prob),
      softcap_(in_.forward.softcap) {}

const RowGradients& RowGradientBound::measure(const SharedRows<double>& rows) {
    rows_ = &rows;
    const std::int64_t g = rows.query.rows(), c = rows.count();
    out_.output_grad.resize(g, shape_.value_dim);
    for (std::int64_t i = 0; i < g; ++i)
        out_.output_grad.row(i) = view(in_.output_grad, shape_.value_dim).row(rows.row(i));
    const Matrix<double>& dout = out_.output_grad;
    out_.key_size = rows.key().cwiseAbs();
    logits_ = in_.forward.scale * products_with_keys(rows).array();
    if (softcap_ > 0) {
        scores_ = logits_;
        logits_ = softcapped<double>(scores_.matrix(), softcap_).array();
        out_.slope = 1 - (logits_ / softcap_).square();
    }
    logits_ += rows.bias;
    magnitude_ = magnitudes_with_keys(rows, out_.key_size);
    const Mask dropped = rows.gain == 0;
    prob_grad_ =
        dropped.select(0.0, rows.gain * product_transposed(dout, rows.value()).array());
    prob_grad_size_ = dropped.select(
        0.0, rows.gain * product_transposed(dout.cwiseAbs(), rows.value().cwiseAbs()).array());
    for (Array* each : {&out_.prob, &out_.score_grad, &out_.weight, &out_.score_grad_error,
                        &out_.prob_error})
        each->resize(g, c);
    if (out_.has_slope())
        for (Array* each : {&out_.slope_prob, &out_.logit_grad, &out_.logit_grad_error})
            each->resize(g, c);
    out_.delta_error.resize(g);
    out_.unjudged.assign(static_cast<std::size_t>(g), false);
    for (row_ = 0; row_ < g; ++row_) measure_row();
    return out_;
}

void RowGradientBound::measure_row() {
    measure_delta();
    // sum P dP has no infinite dO that dropout took; <dO, O> is NaN where O is 0.
    if (roundoff_.own_forward && !std::isfinite(delta_) && (rows_->gain.row(row_) == 0).any()) leave_row();
    const auto at = static_cast<std::size_t>(rows_->row(row_));
    const double m = in_.row_max[at], l = in_.row_sum[at];
    prob_error_ =
        in_.prob_error + (in_.statistics_error.empty() ? 0 : in_.statistics_error[at]);
    if (!std::isfinite(prob_error_) || roundoff_.factor_overflows(value_) || roundoff_.factor_overflows(output_grad_))
        leave_row();
    const auto columns = rows_->columns_of(row_);
    const std::span<const double> logits(&logits_(row_, 0), columns.size());
    const double* q = rows_->query.row(row_).data();
    bool exact_scores = true;
    double largest = -kInfinity;
    for (std::int64_t j = 0; j < rows_->count(); ++j) {
        const double s = logits_(row_, j), size = magnitude_(row_, j);
        const double finite_size =
            finite_magnitude(q, rows_->key().row(j).data(), shape_.head_dim, size);
        if (score_error_.may_overflow(finite_size, rows_->bias(row_, j), m - s)) leave_row();
        exact_scores = exact_scores && score_error_.is_exact(size);
        largest = s > largest ? s : largest;
    }
    if (m == -kInfinity || is_dropped_nan_row(columns, logits)) leave_row();
    out_.prob.row(row_) = exponential(logits_.row(row_) - m) / l;
    out_.weight.row(row_) = (rows_->gain.row(row_) == 0)
                            .select(0.0, out_.prob.row(row_) * rows_->gain.row(row_));
    out_.score_grad.row(row_) = out_.prob.row(row_) * (prob_grad_.row(row_) - delta_);
    if (out_.has_slope()) {
        out_.logit_grad.row(row_) = out_.score_grad.row(row_);
        out_.score_grad.row(row_) *= out_.slope.row(row_);
        out_.slope_prob.row(row_) = out_.prob.row(row_) * out_.slope.row(row_);
    }
    const bool lattice = grant_ == Grant::lattice && roundoff_.sum <= kLatticeRoundoff &&
                         roundoff_.exp_of_zero_is_one &&
                         exact_scores && is_lattice_row(logits, largest) && has_equal_tops(largest) &&
                         are_products_exact() && exact_in_storage() &&
                         (!out_.has_slope() || (scores_.row(row_) == 0).all());
    for (std::int64_t j = 0; j < rows_->count(); ++j)
        if (std::isinf(prob_grad_size_(row_, j)))
            check_range(rows_->gain(row_, j) * 1.1 *
                        finite_magnitude(out_.output_grad.row(row_).data(),
                                         rows_->value().row(j).data(), shape_.value_dim,
                                         kInfinity));
    const double log_sum = std::fabs(std::log(l));
    // With forward=own P may be exp(s - LSE): on a lattice all P have the rounding of that LSE, 3 u (|m| + |log l|) as
    // below, and delta = sum P dP has it, too. Else it has all that P may be off, for an LSE that is given does not
    // make the sum of P one (verification.md 4.5).
    const double own_error =
        !roundoff_.own_forward ? 0
        : lattice ? 3 * roundoff_.unit * (std::fabs(m) + log_sum) * prob_grad_weight()
                  : prob_grad_of_errors(m, l, log_sum);
    if (roundoff_.own_forward && !lattice) {
        out_.delta_error[row_] += delta_error_of_products() + own_error;
        // And of P that are stored.
        if (roundoff_.kept_prob > 0)
            out_.delta_error[row_] += roundoff_.kept_prob * prob_grad_weight() + roundoff_.kept_prob_eta * finite_prob_grads();
    }
    if (lattice) {
        out_.delta_error[row_] = given_error_ + own_error;
        // P that is not cast keeps the rounding of its exponent, exp(s - (m + log l)).
        const double slack = kLatticeSlack + 3 * roundoff_.unit * (std::fabs(m) + log_sum) + prob_error_ +
                             std::expm1(roundoff_.base_2_score * std::fabs(m)) + bias_error(largest);
        // The cast leaves P and dS alone where they are exact but for roundings of fp32.
        const auto with_cast = [&](double roundoff) { return slack + (slack > roundoff / 4 ? roundoff * (1 + slack) : 0); };
        out_.score_grad_error.row(row_) =
            with_cast(roundoff_.score_grad + roundoff_.kept_prob) * out_.prob.row(row_) * (prob_grad_size_.row(row_) + delta_size_);
        if (out_.has_slope()) out_.logit_grad_error.row(row_) = out_.score_grad_error.row(row_);
        out_.prob_error.row(row_) = with_cast(roundoff_.prob) * out_.weight.row(row_);
    } else {
        for (std::int64_t j = 0; j < rows_->count(); ++j) measure_errors(j, m, l, log_sum);
    }
}

void RowGradientBound::measure_delta() {
    const double* dout = out_.output_grad.row(row_).data();
    const auto width = static_cast<std::size_t>(shape_.value_dim),
               first = static_cast<std::size_t>(rows_->row(row_)) * width;
    const double* o = in_.output.data() + first;
    const auto dim = static_cast<double>(shape_.value_dim);
    const double growth = gamma(dim, roundoff_.sum) + roundoff_.narrow;
    delta_ = inner_product(dout, o, shape_.value_dim);
    delta_size_ = magnitude_product(dout, o, shape_.value_dim);
    double error = delta_size_ > 0 ? growth * delta_size_ : 0;
    if (delta_size_ > 0)
        error += dim * roundoff_.sum_floor + roundoff_.flush_loss(dout, o, shape_.value_dim);
    if (keep_ > 1) error += 2 * roundoff_.unit * (std::fabs(delta_) + error);  // times keep_prob
    if (delta_size_ > 0 && roundoff_.delta > 0) {
        error += roundoff_.delta * (std::fabs(delta_) + error) + roundoff_.storage_eta;
        check_range(std::fabs(delta_) + error, roundoff_.cast_max);
    }
    given_error_ = 0;
    for (std::size_t d = 0; d < width && !in_.output_error.empty(); ++d)
        if (dout[d] != 0) given_error_ += std::fabs(dout[d]) * in_.output_error[first + d];
    out_.delta_error[row_] = error + given_error_;
    check_range(finite_magnitude(dout, o, shape_.value_dim, delta_size_) * (1 + growth));
}

double RowGradientBound::prob_grad_weight() const {
    double sum = 0;
    for (std::int64_t j = 0; j < rows_->count(); ++j)
        if (const double size = prob_grad_size_(row_, j); size > 0 && std::isfinite(size)) sum += out_.prob(row_, j) * size;
    return sum;
}

double RowGradientBound::finite_prob_grads() const {
    double sum = 0;
    for (std::int64_t j = 0; j < rows_->count(); ++j)
        if (std::isfinite(prob_grad_size_(row_, j))) sum += prob_grad_size_(row_, j);
    return sum;
}

double RowGradientBound::delta_error_of_products() const {
    const double growth = gamma(static_cast<double>(rows_->count()), roundoff_.sum);
    double error = 0;
    for (std::int64_t j = 0; j < rows_->count(); ++j) {
        const double size = prob_grad_size_(row_, j);
        if (size > 0 && std::isfinite(size))
            error += out_.prob(row_, j) * (prob_grad_error_of(j, size) * (1 + growth) + growth * size);
    }
    return error;
}

/// P of logits with different biases are not computed in the same way, though the logits are equal.
bool RowGradientBound::has_equal_tops(double largest) const {
    double bias = kInfinity;
    for (std::int64_t j = 0; j < rows_->count(); ++j) {
        if (logits_(row_, j) != largest) continue;
        if (bias != kInfinity && rows_->bias(row_, j) != bias) return false;
        bias = rows_->bias(row_, j);
    }
    return true;
}

double RowGradientBound::bias_error(double largest) const {
    for (std::int64_t j = 0; j < rows_->count(); ++j)
        if (logits_(row_, j) == largest) return rows_->bias(row_, j) == 0 ? 0 : std::expm1(score_error_of(j));
    return 0;
}

bool RowGradientBound::are_products_exact() const {
    if (roundoff_.product_of(value_, output_grad_) > 0) return false;
    if (roundoff_.delta > 0 && decode(dtype_, encode(dtype_, delta_)) != delta_) return false;
    if (std::min({value_.smallest, output_grad_.smallest, output_.smallest}) < roundoff_.tiny)
        return false;
    const double limit = exact_sum_limit(output_grad_.lowest_bit +
                                         std::min(value_.lowest_bit, output_.lowest_bit));
    const auto size = prob_grad_size_.row(row_) + delta_size_;
    return (size == 0 || size < limit).all();
}

bool RowGradientBound::exact_in_storage() const {
    const auto exact = [&](double v) {
        return std::fabs(v) < 0x1p-200 ||
               (decode(roundoff_.cast_type, encode(roundoff_.cast_type, v)) == v &&
                std::fabs(v) >= roundoff_.tiny);
    };
    // dS may be cast with its scale.
    if (roundoff_.step > 0 && (out_.has_slope() || !prob_grad_.row(row_).unaryExpr(exact).all())) return false;
    return out_.weight.row(row_).unaryExpr(exact).all() &&
           out_.score_grad.row(row_).unaryExpr(exact).all() &&
           (roundoff_.score_grad == 0 ||
            (scale_ * out_.score_grad.row(row_)).unaryExpr(exact).all());
}

/// P^ = p (1 + theta), |theta| <= e^eps - 1,
///   eps = |s^ - s| + 3 u (|s - m| + |m| + |log l|) + 16 u
///
/// in either form, exp(s - m) / l or exp(s - (m + log l)).
double RowGradientBound::raised_prob(std::int64_t j, double m, double l, double log_sum) const {
    const double s = logits_(row_, j), u = roundoff_.unit;
    if (!std::isfinite(s)) return out_.prob(row_, j);
    const double eps = score_error_of(j) + 3 * u * (std::fabs(s - m) + std::fabs(m) + log_sum) + roundoff_.exp +
                       kQuotient * u + prob_error_;
    return std::min(std::exp(s - m + eps) / l, 1e100);
}

double RowGradientBound::prob_grad_of_errors(double m, double l, double log_sum) const {
    double sum = 0;
    for (std::int64_t j = 0; j < rows_->count(); ++j)
        if (const double size = prob_grad_size_(row_, j); size > 0 && std::isfinite(size))
            sum += std::max(0.0, raised_prob(j, m, l, log_sum) - out_.prob(row_, j)) * size;
    return sum;
}

void RowGradientBound::measure_errors(std::int64_t j, double m, double l, double log_sum) {
    const double u = roundoff_.unit, delta_error = out_.delta_error[row_];
    const double prob = out_.prob(row_, j), weight = out_.weight(row_, j);
    const double prob_grad_size = prob_grad_size_(row_, j);
    const double size = std::fabs(out_.bias_grad()(row_, j));
    const bool kept = rows_->gain(row_, j) != 0;
    const double raised = raised_prob(j, m, l, log_sum);
    const double gained = std::max(0.0, raised - prob);
    const double lowered = raised > 0 ? prob * (prob / raised) * 0.99 : 0;
    const double floor = raised * l < kSafeExp ? kExpFloor / std::min(1.0, l) : 0;
    const double prob_grad_error = prob_grad_error_of(j, prob_grad_size);
    if (roundoff_.step > 0) check_range(prob_grad_size + prob_grad_error, roundoff_.cast_max);
    check_range(prob_grad_size + prob_grad_error + delta_size_ + delta_error);
    check_range(raised * std::max(1.0, l), kLargestFp32);
    const double x = std::fabs(prob_grad_(row_, j) - delta_);
    const double x_error = prob_grad_error + u * (x + prob_grad_error + delta_error);
    // P may be stored, and with steps=half dS as it takes its scale.
    const double cast = (1 + u) * (1 + roundoff_.score_grad) * (1 + roundoff_.kept_prob) * (1 + roundoff_.step);
    // p [(1 + theta) cast - 1] X + p (1 + theta) cast xi, and theta's share of the common part.
    double error = (gained * cast + prob * (cast - 1)) * (x + delta_error) +
                   raised * cast * x_error + floor * (x + x_error + delta_error);
    // The largest dS that may be cast, before or after the scale, or the softcap of a composition, whose slope comes later.
    check_range((size + error + prob * delta_error) * std::max({1.0, scale_, roundoff_.step > 0 ? softcap_ : 0}),
                roundoff_.score_grad > 0 ? roundoff_.cast_max : kLargestFp32);
    // What a stored P loses near zero, and with steps=half dS before its scale.
    const double step_loss =
        x > 0 || delta_error > 0 ? roundoff_.kept_prob_eta * (x + x_error + delta_error) + roundoff_.step_eta : 0;
    error += step_loss;
    if (x > 0 || delta_error > 0) error += score_grad_loss(size - error - prob * delta_error);
    if (out_.has_slope()) {
        out_.logit_grad_error(row_, j) = error;
        measure_slope_error(j,
                            (gained * (1 + u) + prob * u) * (x + delta_error) +
                                raised * (1 + u) * x_error + floor * (x + x_error + delta_error) + step_loss,
                            x);
    } else {
        out_.score_grad_error(row_, j) = error;
    }
    // A stored P is stored by dropout, too.
    const bool twice = keep_ > 1 && roundoff_.kept_prob > 0;
    const double cast_prob = roundoff_.prob + (twice ? roundoff_.kept_prob : 0);
    const double prob_error =
        kept ? ((gained + floor) * (1 + cast_prob) + prob * cast_prob) * keep_ +
                   roundoff_.cast_loss(lowered) * keep_ + (twice ? roundoff_.cast_loss(lowered * keep_) : 0) +
                   (keep_ > 1 ? 2 * u * weight : 0)
             : 0;
    out_.prob_error(row_, j) = prob_error;
    if (roundoff_.prob > 0) check_range(weight + prob_error, roundoff_.cast_max);
}

double RowGradientBound::score_error_of(std::int64_t j) const {
    const double s = logits_(row_, j), bias = rows_->bias(row_, j), size = magnitude_(row_, j);
    return softcap_ > 0 ? score_error_.capped(scores_(row_, j), s, bias, size, softcap_)
                        : score_error_(s, bias, size);
}

/// dS' = dS t with t^ = t + tau:
///
///   |dS'^ - dS'| <= before (t + tau)(1 + 2 u) + |P| (x + delta-error)(tau + 2 u (t + tau)), then its cast
void RowGradientBound::measure_slope_error(std::int64_t j, double before, double x) {
    const double u = roundoff_.unit, delta_error = out_.delta_error[row_];
    const double slope = out_.slope(row_, j), prob = out_.prob(row_, j);
    const double size = std::fabs(out_.score_grad(row_, j));
    const double tau = score_error_.slope_error(scores_(row_, j), magnitude_(row_, j), softcap_);
    const double common = prob * slope * delta_error;
    double error = before * (slope + tau) * (1 + 2 * u) +
                   prob * (x + delta_error) * (tau + 2 * u * (slope + tau));
    // A stored P; steps=half: products with the softcap, the slope and its reciprocal, and with the scale, each stored.
    error += (roundoff_.score_grad + roundoff_.kept_prob + 4 * roundoff_.step) * (size + error + common);
    check_range((size + error + common) * std::max({1.0, scale_, roundoff_.step > 0 ? softcap_ : 0}),
                roundoff_.score_grad > 0 ? roundoff_.cast_max : kLargestFp32);
    if (x > 0 || delta_error > 0)
        error += score_grad_loss(size - error - common) + roundoff_.step_eta * 2 * (1 + std::max(1.0, 1 / softcap_));
    out_.score_grad_error(row_, j) = error;
}

double RowGradientBound::score_grad_loss(double least) const {
    // Before the scale or behind it, and before what a dropout divides by: P (dP - keep_prob delta) of a dP that is not scaled.
    const double scaled = (scale_ > 0 && scale_ < 1 ? scale_ : 1) / std::max(1.0, keep_);
    return (roundoff_.cast_loss(std::max(0.0, least) * scaled * 0.99) + 2 * kSumFloor +
            roundoff_.tiny_sum) /
           scaled;
}

double RowGradientBound::prob_grad_error_of(std::int64_t j, double size) const {
    if (!(size > 0)) return 0;
    const auto dim = static_cast<double>(shape_.value_dim);
    const double flushed =
        value_.smallest < roundoff_.tiny || output_grad_.smallest < roundoff_.tiny
            ? roundoff_.flush_loss(out_.output_grad.row(row_).data(),
                                   rows_->value().row(j).data(), shape_.value_dim)
            : 2 * roundoff_.tiny_sum * dim;
    const double sums =
        gamma(dim, roundoff_.sum) + roundoff_.narrow + (keep_ > 1 ? 2 * roundoff_.unit : 0);
    const double relative = (1 + sums) * (1 + roundoff_.product_of(value_, output_grad_)) - 1;
    const double read =
        roundoff_.factor > 0 ? roundoff_.factor_floor * dim * (value_.largest + output_grad_.largest)
                             : 0;
    const double error = relative * size + (dim * roundoff_.sum_floor + flushed + read) * keep_;
    const double stores = keep_ > 1 ? 2 : 1;
    return error + stores * (roundoff_.step * (size + error) + roundoff_.step_eta * keep_);
}

}  // namespace attncheck::ref
