#include "ref/bounds/gradient_bound.h"

#include <limits>

namespace attncheck::ref {
namespace {

void add_finite(double& sum, double term) {
    if (std::isfinite(term)) sum += term;
}

}  // namespace

void GradientBound::measure(std::int64_t t, std::int64_t n, std::span<const KeyColumn> columns) {
    const auto at = static_cast<std::size_t>(t * shape_.query_heads + n);
    q_ = in_.forward.query.data() + at * static_cast<std::size_t>(shape_.head_dim);
    dout_ = in_.output_grad.data() + at * static_cast<std::size_t>(shape_.value_dim);
    unjudged_ = false;
    measure_delta(at);
    measure_columns(n, at, columns);
}

void GradientBound::write_query_grad(std::size_t at, ExpectedTensor& query_grad) {
    const auto width = static_cast<std::size_t>(shape_.head_dim);
    value_sum_.assign(width, 0);
    error_sum_.assign(width, 0);
    prob_key_.assign(width, 0);
    const double count = static_cast<double>(columns_.size());
    double peak = 0;
    for (const GradColumn& c : columns_) {
        const double* k = in_.forward.key.data() + c.key * shape_.head_dim;
        const double error = sum_error(c, count);
        add_finite(peak, std::fabs(c.score_grad) + error + c.prob * delta_error_);
        for (std::size_t d = 0; d < width; ++d) {
            value_sum_[d] += c.score_grad * k[d];
            error_sum_[d] += error * std::fabs(k[d]);
            prob_key_[d] += c.prob * k[d];
        }
    }
    for (std::size_t d = 0; d < width; ++d) {
        const std::size_t index = at * width + d;
        const double common = delta_error_ * std::fabs(prob_key_[d]);
        finish(in_.forward.scale * value_sum_[d],
               with_floor(scale_ * (error_sum_[d] + common),
                          floor_of(count, key_, peak) * (scale_ + 1)),
               peak_of(peak, key_), roundoff_.largest, dtype_, query_grad, index);
        if (unjudged_) leave_unjudged(query_grad, index);
    }
}

void GradientBound::add_to_keys(const KeySlots& slots,
                                const std::vector<std::int64_t>& contributions,
                                KeySums& sums) const {
    const auto width = static_cast<std::size_t>(shape_.head_dim),
               value_width = static_cast<std::size_t>(shape_.value_dim);
    for (const GradColumn& c : columns_) {
        const std::size_t key = slots.of(c.key);
        const double count = static_cast<double>(contributions[key]);
        const double error = sum_error(c, count) + c.prob * delta_error_;
        double* const dk = sums.key_value.data() + key * width;
        double* const dk_error = sums.key_error.data() + key * width;
        for (std::size_t d = 0; d < width; ++d) {
            dk[d] += c.score_grad * q_[d];
            dk_error[d] += error * std::fabs(q_[d]);
        }
        add_finite(sums.peak[key], std::fabs(c.score_grad) + error);
        sums.unjudged[key] |= unjudged_;
        if (!c.kept) continue;
        double* const dv = sums.value_value.data() + key * value_width;
        double* const dv_error = sums.value_error.data() + key * value_width;
        const double growth = gamma(count, roundoff_.sum);
        const double prob_error = c.prob_error + growth * (c.weight + c.prob_error);
        add_finite(sums.weight[key], c.weight + prob_error);
        for (std::size_t d = 0; d < value_width; ++d) {
            dv[d] += c.weight * dout_[d];
            dv_error[d] += prob_error * std::fabs(dout_[d]);
        }
    }
}

void GradientBound::finish_keys(const KeySums& sums, const std::vector<std::int64_t>& contributions,
                                ExpectedTensor& key_grad, ExpectedTensor& value_grad) const {
    const auto width = static_cast<std::size_t>(shape_.head_dim),
               value_width = static_cast<std::size_t>(shape_.value_dim);
    for (std::size_t key = 0; key < sums.peak.size(); ++key) {
        if (contributions[key] == 0) continue;
        const double count = static_cast<double>(contributions[key]);
        for (std::size_t i = key * width; i < (key + 1) * width; ++i) {
            finish(in_.forward.scale * sums.key_value[i],
                   with_floor(scale_ * sums.key_error[i],
                              floor_of(count, query_, sums.peak[key]) * (scale_ + 1)),
                   peak_of(sums.peak[key], query_), roundoff_.largest, dtype_, key_grad, i);
            if (sums.unjudged[key]) leave_unjudged(key_grad, i);
        }
        for (std::size_t i = key * value_width; i < (key + 1) * value_width; ++i) {
            finish(sums.value_value[i],
                   with_floor(sums.value_error[i], floor_of(count, output_grad_, sums.weight[key])),
                   sums.weight[key] * output_grad_.largest, roundoff_.largest, dtype_, value_grad,
                   i);
            if (sums.unjudged[key]) leave_unjudged(value_grad, i);
        }
    }
}

double GradientBound::floor_of(double count, const TensorRange& x, double coefficients) const {
    return (count + 2) * (roundoff_.sum_floor + roundoff_.tiny * (2 + x.largest)) +
           (x.bf16_subnormals ? roundoff_.tiny * coefficients : 0);
}

void GradientBound::measure_delta(std::size_t at) {
    const double* o = in_.output.data() + at * static_cast<std::size_t>(shape_.value_dim);
    const auto dim = static_cast<double>(shape_.value_dim);
    const double growth = gamma(dim, roundoff_.sum) + roundoff_.narrow;
    delta_ = inner_product(dout_, o, shape_.value_dim);
    delta_size_ = magnitude_product(dout_, o, shape_.value_dim);
    delta_error_ = growth * delta_size_;
    if (delta_size_ > 0)
        delta_error_ +=
            dim * roundoff_.sum_floor + roundoff_.flush_loss(dout_, o, shape_.value_dim);
    given_error_ = 0;
    if (!in_.output_error.empty()) {
        const double* e = in_.output_error.data() + at * static_cast<std::size_t>(shape_.value_dim);
        for (std::int64_t d = 0; d < shape_.value_dim; ++d)
            if (dout_[d] != 0) given_error_ += std::fabs(dout_[d]) * e[d];
    }
    delta_error_ += given_error_;
    check_range(finite_magnitude(dout_, o, shape_.value_dim, delta_size_) * (1 + growth));
}

void GradientBound::measure_columns(std::int64_t n, std::size_t at,
                                    std::span<const KeyColumn> columns) {
    const double m = in_.row_max[at], l = in_.row_sum[at];
    const std::int64_t kv_head = n / shape_.group();
    columns_.resize(columns.size());
    logits_.resize(columns.size());
    score_errors_.resize(columns.size());
    double largest = -std::numeric_limits<double>::infinity();
    bool exact_scores = true;
    for (std::size_t j = 0; j < columns.size(); ++j) {
        columns_[j].key = columns[j].key * shape_.kv_heads + kv_head;
        columns_[j].kept = columns[j].kept;
        const double* k = in_.forward.key.data() + columns_[j].key * shape_.head_dim;
        const double magnitude = magnitude_product(q_, k, shape_.head_dim);
        logits_[j] = in_.forward.scale * inner_product(q_, k, shape_.head_dim) + columns[j].bias;
        score_errors_[j] =
            std::isfinite(logits_[j]) ? score_error_(logits_[j], columns[j].bias, magnitude) : 0;
        unjudged_ = unjudged_ ||
                    score_error_.may_overflow(finite_magnitude(q_, k, shape_.head_dim, magnitude),
                                              columns[j].bias, m - logits_[j]);
        exact_scores = exact_scores && score_error_.is_exact(magnitude);
        largest = logits_[j] > largest ? logits_[j] : largest;
    }
    if (!columns.empty() && m == -std::numeric_limits<double>::infinity()) unjudged_ = true;
    if (is_dropped_nan_row(columns, logits_)) unjudged_ = true;
    lattice_ = grant_ == Grant::lattice && roundoff_.sum <= kLatticeRoundoff && exact_scores &&
               is_lattice_row(logits_, largest);
    for (std::size_t j = 0; j < columns.size(); ++j) measure_products(j, m, l);
    lattice_ = lattice_ && are_products_exact() && exact_in_storage();
    if (lattice_) delta_error_ = given_error_;
    for (std::size_t j = 0; j < columns.size(); ++j) measure_errors(j, m, l);
}

void GradientBound::measure_products(std::size_t j, double m, double l) {
    GradColumn& c = columns_[j];
    const double keep = c.kept ? 1 / in_.forward.keep_prob : 0;
    const double* v = in_.forward.value.data() + c.key * shape_.value_dim;
    c.prob = std::exp(logits_[j] - m) / l;
    c.weight = c.prob * keep;
    prob_grad_size_.resize(columns_.size());
    centred_.resize(columns_.size());
    prob_grad_size_[j] = 0;
    if (c.kept) {
        const double size = magnitude_product(dout_, v, shape_.value_dim);
        prob_grad_size_[j] = keep * size;
        if (std::isinf(size))
            check_range(keep * finite_magnitude(dout_, v, shape_.value_dim, size) * 1.1);
    }
    centred_[j] = (c.kept ? keep * inner_product(dout_, v, shape_.value_dim) : 0) - delta_;
    c.score_grad = c.prob * centred_[j];
}

bool GradientBound::are_products_exact() const {
    const double limit =
        exact_sum_limit(output_grad_.lowest_bit + std::min(value_.lowest_bit, output_.lowest_bit));
    return std::all_of(prob_grad_size_.begin(), prob_grad_size_.end(), [&](double size) {
        return size + delta_size_ == 0 || size + delta_size_ < limit;
    });
}

bool GradientBound::exact_in_storage() const {
    return std::all_of(columns_.begin(), columns_.end(), [&](const GradColumn& c) {
        const auto exact = [&](double v) {
            return std::fabs(v) < 0x1p-200 || decode(dtype_, encode(dtype_, v)) == v;
        };
        return exact(c.weight) && exact(c.score_grad);
    });
}

/// |dS^ - dS| without the part p delta-error that is common to the row, and |P^ - P|.
///
///   P^ = p (1 + theta), |theta| <= e^eps - 1,
///   eps = |s^ - s| + 3 u (|s - m| + |m| + |log l|) + 16 u     either form: exp(s-m)/l or
///   exp(s-(m+log l))
void GradientBound::measure_errors(std::size_t j, double m, double l) {
    GradColumn& c = columns_[j];
    const double size = std::fabs(c.score_grad), keep = 1 / in_.forward.keep_prob;
    if (lattice_) {  // P that is not cast keeps the rounding of its exponent, exp(s - (m + log
                     // l))
        const double slack = kLatticeSlack +
                             3 * roundoff_.unit * (std::fabs(m) + std::fabs(std::log(l))) +
                             in_.prob_error;
        c.score_grad_error = slack * c.prob * (prob_grad_size_[j] + delta_size_);
        c.prob_error = slack * c.weight;
        return;
    }
    const double u = roundoff_.unit;
    const double eps = score_errors_[j] +
                       3 * u * (std::fabs(logits_[j] - m) + std::fabs(m) + std::fabs(std::log(l))) +
                       16 * u + in_.prob_error;
    const bool finite = std::isfinite(logits_[j]);
    const double raised = finite ? std::min(std::exp(logits_[j] - m + eps) / l, 1e100) : c.prob;
    const double gained = std::max(0.0, raised - c.prob);
    const double lowered = raised > 0 ? c.prob * (c.prob / raised) * 0.99 : 0;
    const double floor = raised * l < 0x1p-100 ? kExpFloor / std::min(1.0, l) : 0;
    const double prob_grad_error = prob_grad_error_of(c, prob_grad_size_[j]);
    check_range(prob_grad_size_[j] + prob_grad_error + delta_size_ + delta_error_);
    check_range(raised * std::max(1.0, l), kLargestFp32);
    const double x = std::fabs(centred_[j]);
    const double x_error = prob_grad_error + u * (x + prob_grad_error + delta_error_);
    const double cast = (1 + u) * (1 + roundoff_.score_grad);
    // p [(1 + theta) cast - 1] X + p (1 + theta) cast xi, and theta's share of the common part.
    c.score_grad_error = (gained * cast + c.prob * (cast - 1)) * (x + delta_error_) +
                         raised * cast * x_error + floor * (x + x_error + delta_error_);
    // The largest dS that may be cast, before or after the scale.
    check_range((size + c.score_grad_error + c.prob * delta_error_) * std::max(1.0, scale_),
                roundoff_.score_grad > 0 ? roundoff_.cast_max : kLargestFp32);
    const double scaled = scale_ > 0 && scale_ < 1 ? scale_ : 1;
    const double least = std::max(0.0, size - c.score_grad_error - c.prob * delta_error_);
    if (x > 0 || delta_error_ > 0)
        c.score_grad_error += (roundoff_.cast_loss(least * scaled * 0.99) + 2 * kSumFloor) / scaled;
    c.prob_error = ((gained + floor) * (1 + roundoff_.prob) + c.prob * roundoff_.prob) * keep +
                   roundoff_.cast_loss(lowered) * keep + (keep > 1 ? 2 * u * c.weight : 0);
    if (!c.kept) c.prob_error = 0;
    if (roundoff_.prob > 0) check_range(c.weight + c.prob_error, roundoff_.cast_max);
}

double GradientBound::prob_grad_error_of(const GradColumn& c, double size) const {
    if (!(size > 0)) return 0;
    const double* v = in_.forward.value.data() + c.key * shape_.value_dim;
    const auto dim = static_cast<double>(shape_.value_dim);
    const double keep = 1 / in_.forward.keep_prob;
    const double flushed = value_.bf16_subnormals || output_grad_.bf16_subnormals
                               ? roundoff_.flush_loss(dout_, v, shape_.value_dim)
                               : 2 * roundoff_.tiny * dim;
    const double relative =
        gamma(dim, roundoff_.sum) + roundoff_.narrow + (keep > 1 ? 2 * roundoff_.unit : 0);
    return relative * size + (dim * roundoff_.sum_floor + flushed) * keep;
}

double GradientBound::sum_error(const GradColumn& c, double count) const {
    const double own = c.score_grad_error;
    const double common = c.prob * delta_error_;
    return own + gamma(count + 2, roundoff_.sum) * (std::fabs(c.score_grad) + own + common);
}

}  // namespace attncheck::ref
