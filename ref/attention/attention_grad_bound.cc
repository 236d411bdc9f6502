// The backward of dense attention from given statistics and output, with the bound of every
// element (verification.md 4.5): dQ row by row, dK and dV summed over rows.
#include <algorithm>

#include "ref/attention/chosen_attention.h"
#include "ref/attention/key_slots.h"
#include "ref/attention/logit_gradients.h"
#include "ref/attention/parts.h"

namespace attncheck::ref {
namespace {

/// The sums for dK, or for dV, of every wanted key.
struct GradientSum {
    Matrix<double> sum, error;  ///< [keys,width]
    Matrix<double> heads;       ///< group=half: [keys G,width], by query head; else empty

    GradientSum(std::int64_t keys, std::int64_t width, std::int64_t rounded_heads)
        : sum(Matrix<double>::Zero(keys, width)),
          error(sum),
          heads(Matrix<double>::Zero(keys * rounded_heads, width)) {}
    void add(const GradientSum& other) {
        sum += other.sum, error += other.error, heads += other.heads;
    }
};

struct KeySums {
    GradientSum key, value;       ///< of dS q, and of P g dO
    Eigen::ArrayXd peak, weight;  ///< [keys]: sums of |dS| and of P g as computed
    std::vector<char> unjudged;   ///< [keys]

    KeySums(std::int64_t keys, const AttentionShape& shape, bool by_head)
        : key(keys, shape.head_dim, by_head ? shape.group() : 0),
          value(keys, shape.value_dim, by_head ? shape.group() : 0),
          peak(Eigen::ArrayXd::Zero(keys)),
          weight(peak),
          unjudged(static_cast<std::size_t>(keys)) {}
    void add(const KeySums& other) {
        key.add(other.key), value.add(other.value);
        peak += other.peak, weight += other.weight;
        for (std::size_t i = 0; i < unjudged.size(); ++i) unjudged[i] |= other.unjudged[i];
    }
};

double finite(double term) { return std::isfinite(term) ? term : 0; }

/// The gradients, summed up from their rows.
class GradientBound {
public:
    GradientBound(const AttentionBackward& backward, const Precision& precision)
        : shape_(backward.shape),
          scale_(backward.in.forward.scale),
          size_(std::fabs(scale_)),
          dtype_(precision.dtype),
          roundoff_(precision),
          query_(backward.in.forward.query),
          key_(backward.in.forward.key),
          output_grad_(backward.in.output_grad) {}

    /// True if dK and dV of every query head are rounded before they are summed over its group.
    bool rounds_heads() const { return roundoff_.group > 0 && shape_.group() > 1; }

    /// dQ = scale dS K. The error of delta is one number for the whole row. All columns of the rows
    /// must have been visited.
    void write_query_grad(const SharedRows<double>& rows, const RowGradients& of,
                          ExpectedTensor& query_grad) const {
        const double count = static_cast<double>(rows.count());
        const double growth = as_scaled(gamma(count + 2, roundoff_.sum), key_);
        const Array error =
            of.score_grad_error + growth * (of.score_grad.abs() + of.score_grad_error +
                                            of.delta_weight().colwise() * of.delta_error);
        const Array peaks =
            of.score_grad.abs() + error + of.delta_weight().colwise() * of.delta_error;
        const Matrix<double> sum = product(of.score_grad.matrix(), rows.key()),
                             error_sum = product(error.matrix(), of.key_size),
                             prob_key = product(of.delta_weight().matrix(), rows.key());
        for (std::int64_t i = 0; i < sum.rows(); ++i) {
            const double peak = peaks.row(i).unaryExpr(&finite).sum();
            const double floor =
                floor_of(count, key_, peak, roundoff_.factor_of_scaled(key_)) * (size_ + 1) + scaling_floor() * peak;
            for (std::int64_t d = 0; d < sum.cols(); ++d) {
                const auto index = static_cast<std::size_t>(rows.place(i) * sum.cols() + d);
                const double common = of.delta_error[i] * std::fabs(prob_key(i, d));
                finish(scale_ * sum(i, d),
                       with_floor(size_ * (error_sum(i, d) + common), floor), peak_of(peak, key_),
                       roundoff_.largest, dtype_, query_grad, index);
                if (of.unjudged[static_cast<std::size_t>(i)]) leave_unjudged(query_grad, index);
            }
        }
    }

    /// Adds the rows to dK = scale dS^T Q and dV = (g P)^T dO.
    void add_to_keys(const SharedRows<double>& rows, const RowGradients& of, const KeySlots& slots,
                     const std::vector<double>& contributions, KeySums& sums) const {
        const Matrix<double>& q = rows.query;
        const std::int64_t c = rows.count();
        Eigen::ArrayXd growth(c), score_growth(c);
        std::vector<std::int64_t> slot;
        for (std::int64_t j = 0; j < c; ++j) {
            slot.push_back(slots.of(rows.keys[static_cast<std::size_t>(j)]));
            const double count = contributions[static_cast<std::size_t>(slot.back())];
            growth[j] = with_factor(gamma(count, roundoff_.sum), output_grad_);
            score_growth[j] = as_scaled(gamma(count + 2, roundoff_.sum), query_);
        }
        const Array common = of.delta_weight().colwise() * of.delta_error;
        const Array error = of.score_grad_error + common +
                            (of.score_grad.abs() + of.score_grad_error + common).rowwise() *
                                score_growth.transpose();
        const Mask kept = rows.kept();
        const Array prob_error = kept.select(
            of.prob_error + (of.weight + of.prob_error).rowwise() * growth.transpose(), 0.0);
        const Matrix<double>& dout = of.output_grad;
        const Matrix<double> q_size = q.cwiseAbs(),
                             dout_size = finite_part(dout).matrix().cwiseAbs();
        const bool plain = kept.all() || all_finite(dout);  // else 0 times NaN
        const Array peaks = of.score_grad.abs() + error, weights = of.weight + prob_error;
        const Eigen::ArrayXd peak = peaks.unaryExpr(&finite).colwise().sum(),
                             weight = weights.unaryExpr(&finite).colwise().sum();
        const bool unjudged = std::ranges::find(of.unjudged, true) != of.unjudged.end();
        for (std::int64_t j = 0; j < c; ++j) {
            const std::int64_t to = slot[static_cast<std::size_t>(j)];
            add_product(sums.key.sum.row(to), of.score_grad, j, q);
            add_product(sums.key.error.row(to), error, j, q_size);
            add_product(sums.value.error.row(to), prob_error, j, dout_size);
            if (plain) add_product(sums.value.sum.row(to), of.weight, j, dout);
            for (std::int64_t i = 0; i < dout.rows() && !plain; ++i)
                if (kept(i, j)) sums.value.sum.row(to) += of.weight(i, j) * dout.row(i);
            add_to_heads(rows, of, kept, j, to, sums);
            sums.peak[to] += peak[j];
            sums.weight[to] += weight[j];
            sums.unjudged[static_cast<std::size_t>(to)] |= unjudged;
        }
    }

    void finish_keys(const KeySums& sums, const std::vector<double>& contributions,
                     ExpectedTensor& key_grad, ExpectedTensor& value_grad) const {
        for (std::int64_t key = 0; key < sums.peak.size(); ++key) {
            const double count = contributions[static_cast<std::size_t>(key)];
            const double peak = sums.peak[key], weight = sums.weight[key];
            if (count == 0) continue;
            const auto write = [&](const GradientSum& of, double scale, double floor, double most,
                                   ExpectedTensor& out) {
                for (std::int64_t d = 0; d < of.sum.cols(); ++d) {
                    const auto i = static_cast<std::size_t>(key * of.sum.cols() + d);
                    bool leaves_range = false;
                    const double error = of_heads(of, key, d, std::fabs(scale), leaves_range);
                    finish(scale * of.sum(key, d), with_floor(error, floor), most,
                           roundoff_.largest, dtype_, out, i);
                    if (sums.unjudged[static_cast<std::size_t>(key)] || leaves_range)
                        leave_unjudged(out, i);
                }
            };
            write(sums.key, scale_,
                  floor_of(count, query_, peak, roundoff_.factor_of_scaled(query_)) * (size_ + 1) + scaling_floor() * peak,
                  peak_of(peak, query_), key_grad);
            write(sums.value, 1, floor_of(count, output_grad_, weight, roundoff_.factor_of(output_grad_)),
                  weight * output_grad_.largest, value_grad);
        }
    }

private:
    /// What a sum of `count` products c_j x_j loses near zero: every product and partial sum; where
    /// subnormals are flushed also c_j and x_j. coefficients = sum |c_j|.
    double floor_of(double count, const TensorRange& x, double coefficients, double relative) const {
        return (count + 2) * (roundoff_.sum_floor + roundoff_.tiny_sum * (2 + x.largest)) +
               roundoff_.read_loss(x, coefficients, relative) + roundoff_.tiny;
    }

    /// (1 + growth)(1 + u_in) - 1 for sums with elements of x.
    double with_factor(double growth, const TensorRange& x) const {
        return (1 + growth) * (1 + roundoff_.factor_of(x)) - 1;
    }

    /// The same of sums with q or k, which may be as they were scaled for the logits (scale=).
    double as_scaled(double growth, const TensorRange& x) const {
        return (1 + growth) * (1 + roundoff_.factor_of_scaled(x)) * (1 + roundoff_.scaling) - 1;
    }

    /// What scale^(1/2) q, or scale q, loses near zero, in units of scale q.
    double scaling_floor() const { return roundoff_.scaling_floor * std::max(1.0, std::sqrt(size_)); }

    /// group=half: what column j of the rows adds to dK and dV of their query heads.
    void add_to_heads(const SharedRows<double>& rows, const RowGradients& of, const Mask& kept,
                      std::int64_t j, std::int64_t to, KeySums& sums) const {
        if (sums.key.heads.size() == 0) return;
        const std::int64_t group = shape_.group();
        for (std::int64_t i = 0; i < rows.query.rows(); ++i) {
            const std::int64_t at = to * group + rows.row(i) % shape_.query_heads % group;
            sums.key.heads.row(at) += of.score_grad(i, j) * rows.query.row(i);
            if (kept(i, j)) sums.value.heads.row(at) += of.weight(i, j) * of.output_grad.row(i);
        }
    }

    /// The error of a sum over the heads of a group, each rounded first: u_group (|x_h| + E) and
    /// what rounding near zero loses.
    double of_heads(const GradientSum& of, std::int64_t key, std::int64_t d, double factor,
                    bool& leaves_range) const {
        const double error = factor * of.error(key, d);
        if (of.heads.size() == 0) return error;
        double sum = 0, most = 0;
        for (std::int64_t h = 0; h < shape_.group(); ++h) {
            const double x = std::fabs(factor * of.heads(key * shape_.group() + h, d));
            sum += x, most = std::max(most, x);
        }
        leaves_range = most + error >= roundoff_.cast_max * (1 - 0x1p-8);
        if (!(sum + error > 0)) return error;
        return error * (1 + roundoff_.group) + roundoff_.group * sum +
               static_cast<double>(shape_.group()) * roundoff_.storage_eta * std::max(1.0, factor);
    }

    /// Bound on the partial sums of scale sum dS_j x_j, the scale applied at any point.
    double peak_of(double coefficients, const TensorRange& x) const {
        return coefficients * std::max(1.0, x.largest) * std::max(1.0, size_);
    }

    /// Zero stays zero: no error, no floor.
    double with_floor(double error, double floor) const {
        return error == 0 ? 0 : (error + floor) * roundoff_.oracle;
    }

    const AttentionShape& shape_;
    double scale_, size_;  ///< and |scale|
    Dtype dtype_;
    AttentionRoundoff roundoff_;
    TensorRange query_, key_, output_grad_;
};

void require_gradient_inputs(const AttentionBackward& backward) {
    const AttentionShape& s = backward.shape;
    const AttentionGradInputs& in = backward.in;
    require_attention_shape(s, in.forward);
    const std::int64_t rows = s.query_rows * s.query_heads;
    require_elements("output_grad", in.output_grad.size(), rows * s.value_dim);
    require_elements("output", in.output.size(), rows * s.value_dim);
    require_elements("row_max", in.row_max.size(), rows);
    require_elements("row_sum", in.row_sum.size(), rows);
    if (!in.output_error.empty())
        require_elements("output_error", in.output_error.size(), rows * s.value_dim);
}

/// How many columns of all rows refer to each wanted key: the length of the sums dK and dV.
std::vector<double> count_contributions(const AttentionShape& shape,
                                        const ColumnLister& list_columns, const KeySlots& slots,
                                        std::int64_t& total) {
    std::vector<double> count(static_cast<std::size_t>(slots.count()));
    std::vector<KeyColumn> columns;
    total = 0;
    for (std::int64_t t = 0; t < shape.query_rows; ++t)
        for (std::int64_t n = 0; n < shape.query_heads; ++n) {
            columns.clear();
            if (!list_columns(t, n, columns)) continue;
            total += std::ssize(columns);
            for (const KeyColumn& c : columns)
                ++count[static_cast<std::size_t>(
                    slots.of(c.key * shape.kv_heads + n / shape.group()))];
        }
    return count;
}

/// dK and dV of the wanted keys; dQ of all rows and dbias where they are given.
ExpectedKeyGrad sum_over_rows(const AttentionBackward& backward, const GradientBound& bound,
                              const RowGradientBound& of_rows, const KeySlots& slots,
                              ExpectedTensor* query_grad, LogitSums* bias_sums) {
    const AttentionShape& shape = backward.shape;
    const std::size_t bias_elements = bias_sums ? backward.in.bias_elements : 0;
    std::int64_t total = 0;
    const ColumnLister list_wanted = slots.only(shape, backward.list_columns);
    const auto contributions = count_contributions(shape, list_wanted, slots, total);
    // Parts by the size of the problem alone, summed in order: the result is the same everywhere.
    constexpr std::int64_t kLarge = std::int64_t{1} << 20;
    const std::int64_t parts = total < kLarge ? 1 : kMostParts;
    std::vector<KeySums> sums(static_cast<std::size_t>(parts),
                              KeySums(slots.count(), shape, bound.rounds_heads()));
    std::vector<LogitSums> bias(static_cast<std::size_t>(parts), LogitSums(bias_elements));
    for_each_part(parts, [&](std::int64_t part) {
        RowGradientBound row_bound = of_rows;
        for_shared_rows<double>(
            {shape, list_wanted, backward.in.forward},
            all_rows(shape, shape.query_rows * part / parts, shape.query_rows * (part + 1) / parts),
            [&](const SharedRows<double>& rows) {
                const RowGradients& of = row_bound.measure(rows);
                if (query_grad) bound.write_query_grad(rows, of, *query_grad);
                bound.add_to_keys(rows, of, slots, contributions,
                                  sums[static_cast<std::size_t>(part)]);
                if (bias_elements > 0) bias[static_cast<std::size_t>(part)].add_bias(rows, of);
            });
    });
    for (std::size_t part = 1; part < sums.size(); ++part) sums[0].add(sums[part]);
    for (std::size_t part = 0; bias_sums && part < bias.size(); ++part) bias_sums->add(bias[part]);
    ExpectedKeyGrad out{ExpectedTensor(static_cast<std::size_t>(slots.count() * shape.head_dim)),
                        ExpectedTensor(static_cast<std::size_t>(slots.count() * shape.value_dim))};
    bound.finish_keys(sums[0], contributions, out.key_grad, out.value_grad);
    return out;
}

}  // namespace

ExpectedAttentionGrad expected_attention_grad(const AttentionBackward& backward,
                                              const Precision& precision, Grant grant) {
    require_gradient_inputs(backward);
    const AttentionBackward plain = backward.without_sink();
    const AttentionShape& shape = plain.shape;
    const AttentionGradInputs& in = backward.in;
    LogitSums bias(in.bias_elements);
    ExpectedAttentionGrad out;
    out.query_grad = ExpectedTensor(
        static_cast<std::size_t>(shape.query_rows * shape.query_heads * shape.head_dim));
    ExpectedKeyGrad of_keys = sum_over_rows(
        plain, GradientBound(plain, precision), RowGradientBound(plain, precision, grant),
        KeySlots(shape.kv_rows * shape.kv_heads), &out.query_grad, &bias);
    out.key_grad = std::move(of_keys.key_grad);
    out.value_grad = std::move(of_keys.value_grad);
    out.bias_grad = bias.finish(in.bias_dtype, AttentionRoundoff(precision));
    if (!in.forward.sink.empty()) out.sink_grad = expected_sink_grad(backward, precision, grant);
    return out;
}

ExpectedKeyGrad expected_key_grad_of(const AttentionBackward& backward, const Precision& precision,
                                     std::span<const std::int64_t> keys) {
    require_gradient_inputs(backward);
    const std::int64_t all = backward.shape.kv_rows * backward.shape.kv_heads;
    require_numbers("key", keys, all);
    const AttentionBackward plain = backward.without_sink();
    return sum_over_rows(plain, GradientBound(plain, precision),
                         RowGradientBound(plain, precision, Grant::rounding), KeySlots(all, keys),
                         nullptr, nullptr);
}

ExpectedTensor expected_query_grad_rows(const AttentionBackward& backward,
                                        const Precision& precision,
                                        std::span<const std::int64_t> rows) {
    require_gradient_inputs(backward);
    const auto wanted = chosen_rows(backward.shape, rows);
    ExpectedTensor out(rows.size() * static_cast<std::size_t>(backward.shape.head_dim));
    const AttentionBackward plain = backward.without_sink();
    const GradientBound bound(plain, precision);
    const RowGradientBound of_rows(plain, precision, Grant::rounding);
    const std::int64_t parts = std::clamp<std::int64_t>(std::ssize(wanted), 1, kMostParts);
    for_each_part(parts, [&](std::int64_t part) {
        RowGradientBound row_bound = of_rows;
        for_shared_rows(plain.forward(), part_of(std::span(wanted), part, parts),
                        [&](const SharedRows<double>& group) {
                            bound.write_query_grad(group, row_bound.measure(group), out);
                        });
    });
    return out;
}

}  // namespace attncheck::ref
