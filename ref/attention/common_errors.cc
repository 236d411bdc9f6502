#include "ref/attention/common_errors.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "ref/attention/close_numbers.h"
#include "ref/attention/key_slots.h"
#include "ref/attention/rounding_variance.h"
#include "ref/attention/row_noise.h"
#include "ref/attention/score_gradients.h"

namespace attncheck::ref {
namespace {

/// What a sum has of the elements of Q and K: its derivatives, and the variance of all roundings.
class InputDerivatives {
public:
    InputDerivatives(const AttentionShape& shape, double scale, const RoundingVariance& of)
        : scale_(scale),
          relative_(of.scaling),
          absolute_(of.scaling_underflow * std::max(1.0, std::fabs(scale)) / square(scale)),
          keys_(Matrix<double>::Zero(shape.kv_rows * shape.kv_heads, shape.head_dim)) {}

    /// of_logits [g,c]: derivatives by scale Q K^T; with_keys [g,D] and share [g,c]: sum_ij share_ij <with_keys_i, k_j>
    /// is part of the sum; with_queries [c,D] likewise.
    void add(const SharedRows<double>& rows, const Array& of_logits, const Array& share = {},
             const Matrix<double>& with_keys = {}, const Matrix<double>& with_queries = {}) {
        const Matrix<double> h = scale_ * of_logits.isFinite().select(of_logits, 0.0).matrix();
        Matrix<double> queries = product(h, rows.key()),
                       keys = product(Matrix<double>(h.transpose()), rows.query);
        if (with_queries.size() > 0) queries += product(share.matrix(), with_queries);
        if (with_keys.size() > 0) keys += product(Matrix<double>(share.matrix().transpose()), with_keys);
        variance_ += of(rows.query, queries);
        for (std::int64_t j = 0; j < rows.count(); ++j) {
            const std::int64_t key = rows.keys[static_cast<std::size_t>(j)];
            if (key >= 0) keys_.row(key) += keys.row(j);  // not a sink
        }
    }

    double variance(std::span<const double> key) const { return variance_ + of(view(key, keys_.cols()), keys_); }

private:
    template <class Inputs>
    double of(const Inputs& x, const Matrix<double>& derivatives) const {
        return ((relative_ * x.array().square() + absolute_) * derivatives.array().square()).sum();
    }

    double scale_, relative_, absolute_, variance_ = 0;
    Matrix<double> keys_;  ///< [T2,N2,D]
};

/// A row of weights for each of the numbers, 0 for one that has none.
template <class Numbers>
Matrix<double> weights_of(const WeightedResult& sum, std::int64_t width, std::int64_t count, const Numbers& number) {
    Matrix<double> out = Matrix<double>::Zero(count, width);
    for (std::int64_t k = 0; k < count; ++k)
        if (const std::int64_t at = number(k); at >= 0) out.row(k) = view(sum.weight, width).row(at);
    return out;
}

/// d sum / d (scale Q K^T) of the forward.
Array forward_derivatives(const SharedRows<double>& rows, const AttentionInputs<double>& in, std::int64_t value_dim,
                          const WeightedResult& sum) {
    const AttendedRows<double> exact = attend(rows, in);
    const Array p = exact.probs.array();
    const Matrix<double> w = weights_of(sum, sum.result == Result::output ? value_dim : 1, p.rows(),
                                        [&](std::int64_t i) { return rows.place(i); });
    Array out = p;
    if (sum.result == Result::output) {
        const Array values = product_transposed(w, finite_part(rows.value()).matrix()).array();
        const Eigen::ArrayXd own = w.cwiseProduct(exact.output).rowwise().sum();
        out *= (rows.gain * values).colwise() - own;
    } else {
        Eigen::ArrayXd by = w.col(0).array();
        if (sum.result == Result::row_sum) by *= exact.row_sum.array();
        if (sum.result == Result::row_max) out.setZero();
        for (std::int64_t i = 0; i < p.rows() && sum.result != Result::lse; ++i) {
            Eigen::Index largest = 0;
            exact.logits.row(i).maxCoeff(&largest);
            out(i, largest) += sum.result == Result::row_max ? 1 : -1;
        }
        out.colwise() *= by;
    }
    if (in.softcap > 0) out *= 1 - ((exact.logits.array() - rows.bias) / in.softcap).square();
    return out;
}

/// The same of a gradient, and its products with Q or K.
class GradientDerivatives {
public:
    GradientDerivatives(const AttentionBackward& backward, const WeightedResult& sum,
                        const RoundingVariance& of, const KeySlots& slots)
        : backward_(backward),
          sum_(sum),
          own_forward_(of.own_forward),
          statistic_(4 * square(of.unit)),
          slots_(slots),
          deltas_(row_deltas(backward)),
          delta_variances_(delta_variances(backward, deltas_, of)),
          given_(shape_, in_.forward.scale, of),
          own_(given_) {}

    void add(const SharedRows<double>& rows) {
        const ScoreGradients exact = score_gradients(backward_, rows, deltas_);
        const bool caps = in_.forward.softcap > 0;
        const double scale = in_.forward.scale;
        const bool of_queries = sum_.result == Result::query_grad;
        Array slope = caps ? exact.slope : Array::Ones(exact.prob.rows(), exact.prob.cols());
        if (sum_.result == Result::value_grad) {
            const Array by_prob = rows.gain * product_transposed(exact.output_grad, of_keys(rows, shape_.value_dim)).array(),
                        of_prob = by_prob * exact.prob;
            given_.add(rows, of_prob * slope);
            add_rows(rows, exact, of_prob.rowwise().sum(), Eigen::ArrayXd::Zero(of_prob.rows()), slope);
            return;
        }
        if (sum_.result == Result::bias_grad) {
            const Array by = of_places(rows);
            given_.add(rows, by * exact.score_grad * slope);
            add_rows(rows, exact, (by * exact.score_grad).rowwise().sum(), (by * exact.prob).rowwise().sum(), slope);
            return;
        }
        // d sum / d dS', which dQ = scale dS' K and dK = scale dS'^T Q have.
        const Matrix<double> w = of_queries ? weights_of(sum_, shape_.head_dim, rows.query.rows(),
                                                         [&](std::int64_t i) { return rows.place(i); })
                                            : of_keys(rows, shape_.head_dim);
        const Array by = scale * (of_queries ? product_transposed(w, rows.key()) : product_transposed(rows.query, w)).array(),
                    share = scale * slope * exact.score_grad;
        Array of_logits = by * exact.score_grad * slope.square();
        if (caps)
            of_logits -= by * exact.score_grad * slope * 2 * exact.capped / square(in_.forward.softcap);
        if (of_queries)
            given_.add(rows, of_logits, share, w);
        else
            given_.add(rows, of_logits, share, {}, w);
        add_rows(rows, exact, (by * slope * exact.score_grad).rowwise().sum(), (by * slope * exact.prob).rowwise().sum(), slope);
    }

    double variance() const {
        const double given = given_.variance(in_.forward.key);
        return own_forward_ ? 2 * (given + own_.variance(in_.forward.key)) : given + of_rows_;
    }

private:
    /// d sum / d LSE = -by_lse and d sum / d delta = -by_delta of the rows. The errors of these numbers, or those of Q and K
    /// in an own forward: d LSE = sum_j P_j dS_j and d delta = sum_j P_j (dP_j - delta) dS_j.
    void add_rows(const SharedRows<double>& rows, const ScoreGradients& exact, const Eigen::ArrayXd& by_lse,
                  const Eigen::ArrayXd& by_delta, const Array& slope) {
        if (own_forward_) {
            own_.add(rows, -(exact.prob.colwise() * by_lse + exact.score_grad.colwise() * by_delta) * slope);
            return;
        }
        const Eigen::ArrayXd of_lse = statistic_ * (exact.row_max.square() + exact.log_sum.square());
        for (std::int64_t i = 0; i < by_lse.size(); ++i) {
            if (by_lse[i] != 0) of_rows_ += of_lse[i] * square(by_lse[i]);
            if (by_delta[i] != 0) of_rows_ += delta_variances_[rows.row(i)] * square(by_delta[i]);
        }
    }
    Matrix<double> of_keys(const SharedRows<double>& rows, std::int64_t width) const {
        return weights_of(sum_, width, rows.count(), [&](std::int64_t j) {
            const std::int64_t key = rows.keys[static_cast<std::size_t>(j)];
            return key < 0 ? key : slots_.of(key);
        });
    }
    Array of_places(const SharedRows<double>& rows) const {
        Array out = Array::Zero(rows.query.rows(), rows.count());
        for (std::int64_t i = 0; i < out.rows(); ++i)
            for (std::int64_t j = 0; j < out.cols(); ++j)
                if (const std::int64_t place = rows.columns_of(i)[static_cast<std::size_t>(j)].place; place >= 0)
                    out(i, j) = sum_.weight[static_cast<std::size_t>(place)];
        return out;
    }

    const AttentionBackward& backward_;
    const AttentionShape& shape_ = backward_.shape;
    const AttentionGradInputs& in_ = backward_.in;
    const WeightedResult& sum_;
    bool own_forward_;
    double statistic_, of_rows_ = 0;
    const KeySlots& slots_;
    Eigen::ArrayXd deltas_, delta_variances_;
    InputDerivatives given_, own_;
};

}  // namespace

double common_error_variance(const AttentionBackward& given, const Precision& precision,
                              const WeightedResult& sum) {
    const AttentionShape& shape = given.shape;
    const AttentionInputs<double>& in = given.in.forward;
    RoundingVariance of(precision);
    if (in.scale == 0) return 0;
    of.scaling = std::max(of.scaling, square(of.unit));
    const bool is_of_keys = sum.result == Result::key_grad || sum.result == Result::value_grad;
    const std::vector<WantedRow> wanted =
        sum.chosen && !is_of_keys ? chosen_rows(shape, *sum.chosen) : all_rows(shape);
    const std::int64_t all_keys = shape.kv_rows * shape.kv_heads;
    const KeySlots slots = sum.chosen && is_of_keys ? KeySlots(all_keys, *sum.chosen) : KeySlots(all_keys);
    if (sum.result <= Result::lse) {
        InputDerivatives derivatives(shape, in.scale, of);
        for_shared_rows(given.forward(), wanted, [&](const SharedRows<double>& rows) {
            derivatives.add(rows, forward_derivatives(rows, in, shape.value_dim, sum));
        });
        return derivatives.variance(in.key);
    }
    const AttentionBackward plain = given.without_sink();
    GradientDerivatives derivatives(plain, sum, of, slots);
    const ColumnLister list_wanted = slots.only(shape, given.list_columns);
    for_shared_rows<double>({shape, list_wanted, plain.in.forward}, wanted,
                            [&](const SharedRows<double>& rows) { derivatives.add(rows); });
    return derivatives.variance();
}

double common_scaling_error(std::span<const double> values, double scale, Dtype dtype) {
    const double size = std::fabs(scale), root = std::sqrt(size);
    double most = unit_roundoff(dtype) / 32;
    for (const double factor : {size, root, size * std::numbers::log2e, root * std::numbers::log2e,
                                std::sqrt(size * std::numbers::log2e)}) {
        double errors = 0, squares = 0;
        for (const double x : values) {
            const double exact = x * static_cast<float>(factor);
            if (!std::isfinite(exact) || exact == 0) continue;
            squares += square(x);
            errors += square(x) * (stored_on_grid(exact, half_ulp(dtype, std::fabs(exact))) / exact - 1);
        }
        if (squares > 0) most = std::max(most, std::fabs(errors) / squares);
    }
    return std::min(most, unit_roundoff(dtype));
}

}  // namespace attncheck::ref
