// The backward of dense attention from given statistics and output, with the bound of every
// element (verification.md 4.5): dQ row by row, dK and dV summed over rows.
#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>

#include "ref/bounds/attention_roundoff.h"
#include "ref/operators/chosen_attention.h"
#include "ref/operators/shared_rows.h"

namespace attncheck::ref {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Which keys dK and dV are wanted of: all, or some, which are then numbered in the order given.
/// A key is its row of K and V times N2, plus head.
class KeySlots {
public:
    explicit KeySlots(std::int64_t all) : count_(all) {}
    KeySlots(std::int64_t all, std::span<const std::int64_t> chosen)
        : count_(std::ssize(chosen)), slots_(static_cast<std::size_t>(all), kNone) {
        for (std::size_t k = 0; k < chosen.size(); ++k) {
            std::int64_t& slot = slots_[static_cast<std::size_t>(chosen[k])];
            if (slot != kNone)
                throw std::invalid_argument("dense attention: key " + std::to_string(chosen[k]) +
                                            " is chosen twice");
            slot = static_cast<std::int64_t>(k);
        }
    }
    std::int64_t count() const { return count_; }
    std::int64_t of(std::int64_t key) const {
        return slots_.empty() ? key : slots_[static_cast<std::size_t>(key)];
    }
    /// Lists the columns whose key is wanted.
    ColumnLister only(const AttentionShape& shape, const ColumnLister& list_columns) const {
        if (slots_.empty()) return list_columns;
        return [this, shape, list_columns](std::int64_t t, std::int64_t n,
                                           std::vector<KeyColumn>& columns) {
            const bool in_sequence = list_columns(t, n, columns);
            std::erase_if(columns, [&](const KeyColumn& c) {
                return of(c.key * shape.kv_heads + n / shape.group()) == kNone;
            });
            return in_sequence;
        };
    }

private:
    static constexpr std::int64_t kNone = -1;
    std::int64_t count_;
    std::vector<std::int64_t> slots_;  ///< by key; empty: all, in their own order
};

/// What is summed up for dK and dV of every wanted key.
struct KeySums {
    Matrix<double> key, key_error;      ///< [keys,D]: sum dS q, and its error
    Matrix<double> value, value_error;  ///< [keys,Dv]: sum P g dO
    Eigen::ArrayXd peak, weight;        ///< [keys]: sums of |dS| and of P g as computed
    std::vector<char> unjudged;         ///< [keys]

    KeySums(std::int64_t keys, const AttentionShape& shape)
        : key(Matrix<double>::Zero(keys, shape.head_dim)),
          key_error(key),
          value(Matrix<double>::Zero(keys, shape.value_dim)),
          value_error(value),
          peak(Eigen::ArrayXd::Zero(keys)),
          weight(peak),
          unjudged(static_cast<std::size_t>(keys)) {}

    void add(const KeySums& other) {
        key += other.key, key_error += other.key_error;
        value += other.value, value_error += other.value_error;
        peak += other.peak, weight += other.weight;
        for (std::size_t i = 0; i < unjudged.size(); ++i) unjudged[i] |= other.unjudged[i];
    }
};

double finite(double term) { return std::isfinite(term) ? term : 0; }

/// The gradient of some rows that share their keys, and what each number may be wrong by.
class GradientBound {
public:
    GradientBound(const AttentionShape& shape, const AttentionGradInputs& in, Dtype dtype,
                  const RoundingClass& rounding, Grant grant)
        : shape_(shape),
          in_(in),
          dtype_(dtype),
          roundoff_(dtype, rounding),
          score_error_(shape, in.forward, roundoff_),
          query_(in.forward.query),
          key_(in.forward.key),
          value_(in.forward.value),
          output_grad_(in.output_grad),
          output_(in.output),
          grant_(grant),
          scale_(std::fabs(in.forward.scale)),
          keep_(1 / in.forward.keep_prob) {}

    /// P, dS and their errors; what follows is about these rows.
    ///
    ///   S = scale Q K^T + bias   P = exp(S - m) / l   dP = g (dO V^T)   delta = sum dO O
    ///   dS = P (dP - delta)
    void measure(const SharedRows<double>& rows) {
        rows_ = &rows;
        const std::int64_t g = rows.query.rows(), c = rows.count();
        output_grad_rows_.resize(g, shape_.value_dim);
        for (std::int64_t i = 0; i < g; ++i)
            output_grad_rows_.row(i) = view(in_.output_grad, shape_.value_dim).row(rows.row(i));
        const Matrix<double>&dout = output_grad_rows_, &q = rows.query;
        key_size_ = rows.key().cwiseAbs();
        logits_ = (in_.forward.scale * (q * rows.key().transpose())).array() + rows.bias;
        magnitude_ = q.cwiseAbs() * key_size_.transpose();
        const Mask dropped = rows.gain == 0;
        prob_grad_ =
            dropped.select(0.0, rows.gain * (dout * rows.value().transpose()).array());
        prob_grad_size_ = dropped.select(
            0.0, rows.gain * (dout.cwiseAbs() * rows.value().cwiseAbs().transpose()).array());
        for (Array* each : {&prob_, &score_grad_, &weight_, &score_grad_error_, &prob_error_})
            each->resize(g, c);
        delta_error_.resize(g);
        unjudged_.assign(static_cast<std::size_t>(g), false);
        for (row_ = 0; row_ < g; ++row_) measure_row();
    }

    /// dQ = scale dS K. The error of delta is one number for the whole row. All columns of the rows
    /// must have been looked at.
    void write_query_grad(ExpectedTensor& query_grad) const {
        const double count = static_cast<double>(rows_->count());
        const Array error = score_grad_error_ + gamma(count + 2, roundoff_.sum) *
                                                    (score_grad_.abs() + score_grad_error_ +
                                                     prob_.colwise() * delta_error_);
        const Array peaks = score_grad_.abs() + error + prob_.colwise() * delta_error_;
        const Matrix<double> sum = score_grad_.matrix() * rows_->key(),
                             error_sum = error.matrix() * key_size_,
                             prob_key = prob_.matrix() * rows_->key();
        for (std::int64_t i = 0; i < sum.rows(); ++i) {
            const double peak = peaks.row(i).unaryExpr(&finite).sum();
            const double floor = floor_of(count, key_, peak) * (scale_ + 1);
            for (std::int64_t d = 0; d < sum.cols(); ++d) {
                const auto index = static_cast<std::size_t>(rows_->place(i) * sum.cols() + d);
                const double common = delta_error_[i] * std::fabs(prob_key(i, d));
                finish(in_.forward.scale * sum(i, d),
                       with_floor(scale_ * (error_sum(i, d) + common), floor), peak_of(peak, key_),
                       roundoff_.largest, dtype_, query_grad, index);
                if (unjudged_[static_cast<std::size_t>(i)]) leave_unjudged(query_grad, index);
            }
        }
    }

    /// Adds the rows to dK = scale dS^T Q and dV = (g P)^T dO.
    void add_to_keys(const KeySlots& slots, const std::vector<double>& contributions,
                     KeySums& sums) const {
        const Matrix<double>& q = rows_->query;
        const std::int64_t c = rows_->count();
        Eigen::ArrayXd growth(c), score_growth(c);
        std::vector<std::int64_t> slot;
        for (std::int64_t j = 0; j < c; ++j) {
            slot.push_back(slots.of(rows_->keys[static_cast<std::size_t>(j)]));
            const double count = contributions[static_cast<std::size_t>(slot.back())];
            growth[j] = gamma(count, roundoff_.sum);
            score_growth[j] = gamma(count + 2, roundoff_.sum);
        }
        const Array common = prob_.colwise() * delta_error_;
        const Array error = score_grad_error_ + common +
                            (score_grad_.abs() + score_grad_error_ + common).rowwise() *
                                score_growth.transpose();
        const Mask kept = rows_->kept();
        const Array prob_error = kept.select(
            prob_error_ + (weight_ + prob_error_).rowwise() * growth.transpose(), 0.0);
        const Matrix<double>& dout = output_grad_rows_;
        const Matrix<double> q_size = q.cwiseAbs(),
                             dout_size = finite_part(dout).matrix().cwiseAbs();
        const bool plain = kept.all() || all_finite(dout);  // else 0 times NaN
        const Eigen::ArrayXd peak = (score_grad_.abs() + error).unaryExpr(&finite).colwise().sum(),
                             weight = (weight_ + prob_error).unaryExpr(&finite).colwise().sum();
        const bool unjudged = std::ranges::find(unjudged_, true) != unjudged_.end();
        for (std::int64_t j = 0; j < c; ++j) {
            const std::int64_t to = slot[static_cast<std::size_t>(j)];
            add_product(sums.key.row(to), score_grad_, j, q);
            add_product(sums.key_error.row(to), error, j, q_size);
            add_product(sums.value_error.row(to), prob_error, j, dout_size);
            if (plain) add_product(sums.value.row(to), weight_, j, dout);
            for (std::int64_t i = 0; i < dout.rows() && !plain; ++i)
                if (kept(i, j)) sums.value.row(to) += weight_(i, j) * dout.row(i);
            sums.peak[to] += peak[j];
            sums.weight[to] += weight[j];
            sums.unjudged[static_cast<std::size_t>(to)] |= unjudged;
        }
    }

    void finish_keys(const KeySums& sums, const std::vector<double>& contributions,
                     ExpectedTensor& key_grad, ExpectedTensor& value_grad) const {
        for (std::int64_t key = 0; key < sums.peak.size(); ++key) {
            const auto at = static_cast<std::size_t>(key);
            const double count = contributions[at];
            const double peak = sums.peak[key], weight = sums.weight[key];
            if (count == 0) continue;
            const double floor = floor_of(count, query_, peak) * (scale_ + 1),
                         value_floor = floor_of(count, output_grad_, weight);
            for (std::int64_t d = 0; d < shape_.head_dim; ++d) {
                const auto i = static_cast<std::size_t>(key * shape_.head_dim + d);
                finish(in_.forward.scale * sums.key(key, d),
                       with_floor(scale_ * sums.key_error(key, d), floor), peak_of(peak, query_),
                       roundoff_.largest, dtype_, key_grad, i);
                if (sums.unjudged[at]) leave_unjudged(key_grad, i);
            }
            for (std::int64_t d = 0; d < shape_.value_dim; ++d) {
                const auto i = static_cast<std::size_t>(key * shape_.value_dim + d);
                finish(sums.value(key, d), with_floor(sums.value_error(key, d), value_floor),
                       weight * output_grad_.largest, roundoff_.largest, dtype_, value_grad, i);
                if (sums.unjudged[at]) leave_unjudged(value_grad, i);
            }
        }
    }

private:
    /// What a sum of `count` products c_j x_j loses near zero: every product and partial sum; where
    /// subnormals are flushed also c_j and x_j. coefficients = sum |c_j|.
    double floor_of(double count, const TensorRange& x, double coefficients) const {
        return (count + 2) * (roundoff_.sum_floor + roundoff_.tiny * (2 + x.largest)) +
               (x.bf16_subnormals ? roundoff_.tiny * coefficients : 0);
    }

    /// Bound on the partial sums of scale sum dS_j x_j, the scale applied at any point.
    double peak_of(double coefficients, const TensorRange& x) const {
        return coefficients * std::max(1.0, x.largest) * std::max(1.0, scale_);
    }

    /// Zero stays zero: no error, no floor.
    double with_floor(double error, double floor) const {
        return error == 0 ? 0 : (error + floor) * roundoff_.oracle;
    }

    /// A finite number out of range in the middle of a row: nothing can be said about the row.
    /// 2^-8 pays for the errors that `magnitude` leaves out.
    void check_range(double magnitude, double largest) {
        if (std::isfinite(magnitude) && magnitude >= largest * (1 - 0x1p-8)) leave_row();
    }
    void check_range(double magnitude) { check_range(magnitude, roundoff_.largest); }
    void leave_row() { unjudged_[static_cast<std::size_t>(row_)] = true; }

    void measure_row() {
        measure_delta();
        const auto at = static_cast<std::size_t>(rows_->row(row_));
        const double m = in_.row_max[at], l = in_.row_sum[at];
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
        prob_.row(row_) = exponential(logits_.row(row_) - m) / l;
        weight_.row(row_) = (rows_->gain.row(row_) == 0)
                                .select(0.0, prob_.row(row_) * rows_->gain.row(row_));
        score_grad_.row(row_) = prob_.row(row_) * (prob_grad_.row(row_) - delta_);
        const bool lattice = grant_ == Grant::lattice && roundoff_.sum <= kLatticeRoundoff &&
                             exact_scores && is_lattice_row(logits, largest) &&
                             are_products_exact() && exact_in_storage();
        for (std::int64_t j = 0; j < rows_->count(); ++j)
            if (std::isinf(prob_grad_size_(row_, j)))
                check_range(rows_->gain(row_, j) * 1.1 *
                            finite_magnitude(output_grad_rows_.row(row_).data(),
                                             rows_->value().row(j).data(), shape_.value_dim,
                                             kInfinity));
        const double log_sum = std::fabs(std::log(l));
        if (lattice) {
            delta_error_[row_] = given_error_;
            // P that is not cast keeps the rounding of its exponent, exp(s - (m + log l)).
            const double slack =
                kLatticeSlack + 3 * roundoff_.unit * (std::fabs(m) + log_sum) + in_.prob_error;
            score_grad_error_.row(row_) =
                slack * prob_.row(row_) * (prob_grad_size_.row(row_) + delta_size_);
            prob_error_.row(row_) = slack * weight_.row(row_);
        } else {
            for (std::int64_t j = 0; j < rows_->count(); ++j) measure_errors(j, m, l, log_sum);
        }
    }

    /// delta = <dO, O> with the output as given.
    void measure_delta() {
        const double* dout = output_grad_rows_.row(row_).data();
        const auto width = static_cast<std::size_t>(shape_.value_dim),
                   first = static_cast<std::size_t>(rows_->row(row_)) * width;
        const double* o = in_.output.data() + first;
        const auto dim = static_cast<double>(shape_.value_dim);
        const double growth = gamma(dim, roundoff_.sum) + roundoff_.narrow;
        delta_ = inner_product(dout, o, shape_.value_dim);
        delta_size_ = magnitude_product(dout, o, shape_.value_dim);
        double error = growth * delta_size_;
        if (delta_size_ > 0)
            error += dim * roundoff_.sum_floor + roundoff_.flush_loss(dout, o, shape_.value_dim);
        given_error_ = 0;
        for (std::size_t d = 0; d < width && !in_.output_error.empty(); ++d)
            if (dout[d] != 0) given_error_ += std::fabs(dout[d]) * in_.output_error[first + d];
        delta_error_[row_] = error + given_error_;
        check_range(finite_magnitude(dout, o, shape_.value_dim, delta_size_) * (1 + growth));
    }

    /// A lattice row needs dP and delta that fp32 leaves alone, in any order.
    bool are_products_exact() const {
        const double limit = exact_sum_limit(output_grad_.lowest_bit +
                                             std::min(value_.lowest_bit, output_.lowest_bit));
        const auto size = prob_grad_size_.row(row_) + delta_size_;
        return (size == 0 || size < limit).all();
    }

    /// And P and dS that their cast leaves alone.
    bool exact_in_storage() const {
        const auto exact = [&](double v) {
            return std::fabs(v) < 0x1p-200 || decode(dtype_, encode(dtype_, v)) == v;
        };
        return weight_.row(row_).unaryExpr(exact).all() &&
               score_grad_.row(row_).unaryExpr(exact).all();
    }

    /// |dS^ - dS| without the part p delta-error that is common to the row, and |P^ - P|.
    ///
    ///   P^ = p (1 + theta), |theta| <= e^eps - 1,
    ///   eps = |s^ - s| + 3 u (|s - m| + |m| + |log l|) + 16 u
    ///
    /// in either form, exp(s - m) / l or exp(s - (m + log l)).
    void measure_errors(std::int64_t j, double m, double l, double log_sum) {
        const double u = roundoff_.unit, delta_error = delta_error_[row_];
        const double s = logits_(row_, j), prob = prob_(row_, j), weight = weight_(row_, j);
        const double prob_grad_size = prob_grad_size_(row_, j);
        const double size = std::fabs(score_grad_(row_, j));
        const bool is_finite = std::isfinite(s), kept = rows_->gain(row_, j) != 0;
        const double score_error =
            is_finite ? score_error_(s, rows_->bias(row_, j), magnitude_(row_, j)) : 0;
        const double eps = score_error + 3 * u * (std::fabs(s - m) + std::fabs(m) + log_sum) +
                           roundoff_.exp + kQuotient * u + in_.prob_error;
        const double raised = is_finite ? std::min(std::exp(s - m + eps) / l, 1e100) : prob;
        const double gained = std::max(0.0, raised - prob);
        const double lowered = raised > 0 ? prob * (prob / raised) * 0.99 : 0;
        const double floor = raised * l < kSafeExp ? kExpFloor / std::min(1.0, l) : 0;
        const double prob_grad_error = prob_grad_error_of(j, prob_grad_size);
        check_range(prob_grad_size + prob_grad_error + delta_size_ + delta_error);
        check_range(raised * std::max(1.0, l), kLargestFp32);
        const double x = std::fabs(prob_grad_(row_, j) - delta_);
        const double x_error = prob_grad_error + u * (x + prob_grad_error + delta_error);
        const double cast = (1 + u) * (1 + roundoff_.score_grad);
        // p [(1 + theta) cast - 1] X + p (1 + theta) cast xi, and theta's share of the common part.
        double error = (gained * cast + prob * (cast - 1)) * (x + delta_error) +
                       raised * cast * x_error + floor * (x + x_error + delta_error);
        // The largest dS that may be cast, before or after the scale.
        check_range((size + error + prob * delta_error) * std::max(1.0, scale_),
                    roundoff_.score_grad > 0 ? roundoff_.cast_max : kLargestFp32);
        const double scaled = scale_ > 0 && scale_ < 1 ? scale_ : 1;
        const double least = std::max(0.0, size - error - prob * delta_error);
        if (x > 0 || delta_error > 0)
            error += (roundoff_.cast_loss(least * scaled * 0.99) + 2 * kSumFloor) / scaled;
        score_grad_error_(row_, j) = error;
        const double prob_error =
            kept ? ((gained + floor) * (1 + roundoff_.prob) + prob * roundoff_.prob) * keep_ +
                       roundoff_.cast_loss(lowered) * keep_ + (keep_ > 1 ? 2 * u * weight : 0)
                 : 0;
        prob_error_(row_, j) = prob_error;
        if (roundoff_.prob > 0) check_range(weight + prob_error, roundoff_.cast_max);
    }

    /// |dP^ - dP| where size = g sum |dO v|.
    double prob_grad_error_of(std::int64_t j, double size) const {
        if (!(size > 0)) return 0;
        const auto dim = static_cast<double>(shape_.value_dim);
        const double flushed =
            value_.bf16_subnormals || output_grad_.bf16_subnormals
                ? roundoff_.flush_loss(output_grad_rows_.row(row_).data(),
                                       rows_->value().row(j).data(), shape_.value_dim)
                : 2 * roundoff_.tiny * dim;
        const double relative =
            gamma(dim, roundoff_.sum) + roundoff_.narrow + (keep_ > 1 ? 2 * roundoff_.unit : 0);
        return relative * size + (dim * roundoff_.sum_floor + flushed) * keep_;
    }

    /// u of P beside its exponent: log l (4 u), or a reciprocal (4 u) and its product (1 u), and as
    /// much again for the statistics being in another base.
    static constexpr double kQuotient = 12;

    const AttentionShape& shape_;
    const AttentionGradInputs& in_;
    Dtype dtype_;
    AttentionRoundoff roundoff_;
    ScoreError score_error_;
    TensorRange query_, key_, value_, output_grad_, output_;
    Grant grant_;
    double scale_, keep_;

    const SharedRows<double>* rows_ = nullptr;
    std::int64_t row_ = 0;  ///< of the group
    double delta_ = 0, delta_size_ = 0, given_error_ = 0;
    std::vector<char> unjudged_;                          ///< [g]
    Eigen::ArrayXd delta_error_;                          ///< [g]
    Matrix<double> output_grad_rows_, key_size_;          ///< [g,Dv], [c,D]: dO, |K|
    Array logits_, prob_grad_, prob_grad_size_;           ///< [g,c]: S, dP, and its sum of |dO v|
    Matrix<double> magnitude_;                            ///< [g,c]: sum |q k|
    Array prob_, score_grad_, weight_;                    ///< [g,c]: P, dS, P g
    Array score_grad_error_, prob_error_;                 ///< [g,c]: the column's own; of P g in dV
};

void require_gradient_inputs(const AttentionShape& s, const AttentionGradInputs& in) {
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

/// Runs run(part) for every part, on threads of their own if there are several.
template <class Run>
void run_parts(std::int64_t parts, const Run& run) {
    if (parts == 1) return run(0);
    std::vector<std::thread> threads;
    for (std::int64_t part = 0; part < parts; ++part) threads.emplace_back(run, part);
    for (auto& thread : threads) thread.join();
}

/// dK and dV of the wanted keys; dQ of all rows where query_grad is given.
ExpectedKeyGrad sum_over_rows(const AttentionShape& shape, const ColumnLister& list_columns,
                              const AttentionGradInputs& in, const GradientBound& prototype,
                              const KeySlots& slots, ExpectedTensor* query_grad) {
    std::int64_t total = 0;
    const ColumnLister list_wanted = slots.only(shape, list_columns);
    const auto contributions = count_contributions(shape, list_wanted, slots, total);
    // Parts by the size of the problem alone, summed in order: the result is the same everywhere.
    constexpr std::int64_t kLarge = std::int64_t{1} << 20;
    const std::int64_t parts = total < kLarge ? 1 : 4;
    std::vector<KeySums> sums(static_cast<std::size_t>(parts), KeySums(slots.count(), shape));
    run_parts(parts, [&](std::int64_t part) {
        GradientBound bound = prototype;
        for_shared_rows(
            shape, list_wanted, in.forward,
            all_rows(shape, shape.query_rows * part / parts, shape.query_rows * (part + 1) / parts),
            [&](const SharedRows<double>& rows) {
                bound.measure(rows);
                if (query_grad) bound.write_query_grad(*query_grad);
                bound.add_to_keys(slots, contributions, sums[static_cast<std::size_t>(part)]);
            },
            skip_row);
    });
    for (std::size_t part = 1; part < sums.size(); ++part) sums[0].add(sums[part]);
    ExpectedKeyGrad out{ExpectedTensor(static_cast<std::size_t>(slots.count() * shape.head_dim)),
                        ExpectedTensor(static_cast<std::size_t>(slots.count() * shape.value_dim))};
    prototype.finish_keys(sums[0], contributions, out.key_grad, out.value_grad);
    return out;
}

}  // namespace

ExpectedAttentionGrad expected_attention_grad(const AttentionShape& shape,
                                              const ColumnLister& list_columns,
                                              const AttentionGradInputs& in, Dtype dtype,
                                              const RoundingClass& rounding, Grant grant) {
    require_gradient_inputs(shape, in);
    ExpectedAttentionGrad out;
    out.query_grad = ExpectedTensor(
        static_cast<std::size_t>(shape.query_rows * shape.query_heads * shape.head_dim));
    ExpectedKeyGrad of_keys =
        sum_over_rows(shape, list_columns, in, GradientBound(shape, in, dtype, rounding, grant),
                      KeySlots(shape.kv_rows * shape.kv_heads), &out.query_grad);
    out.key_grad = std::move(of_keys.key_grad);
    out.value_grad = std::move(of_keys.value_grad);
    return out;
}

ExpectedKeyGrad expected_key_grad_of(const AttentionShape& shape, const ColumnLister& list_columns,
                                     const AttentionGradInputs& in, Dtype dtype,
                                     std::span<const std::int64_t> keys,
                                     const RoundingClass& rounding) {
    require_gradient_inputs(shape, in);
    const std::int64_t all = shape.kv_rows * shape.kv_heads;
    require_numbers("key", keys, all);
    return sum_over_rows(shape, list_columns, in,
                         GradientBound(shape, in, dtype, rounding, Grant::rounding),
                         KeySlots(all, keys), nullptr);
}

ExpectedTensor expected_query_grad_rows(const AttentionShape& shape,
                                        const ColumnLister& list_columns,
                                        const AttentionGradInputs& in, Dtype dtype,
                                        std::span<const std::int64_t> rows,
                                        const RoundingClass& rounding) {
    require_gradient_inputs(shape, in);
    const auto wanted = chosen_rows(shape, rows);
    ExpectedTensor out(rows.size() * static_cast<std::size_t>(shape.head_dim));
    const GradientBound prototype(shape, in, dtype, rounding, Grant::rounding);
    const std::int64_t count = std::ssize(wanted), parts = std::clamp<std::int64_t>(count, 1, 4);
    run_parts(parts, [&](std::int64_t part) {
        GradientBound bound = prototype;
        const std::int64_t begin = count * part / parts, end = count * (part + 1) / parts;
        for_shared_rows(
            shape, list_columns, in.forward,
            std::span(wanted).subspan(static_cast<std::size_t>(begin),
                                      static_cast<std::size_t>(end - begin)),
            [&](const SharedRows<double>& group) {
                bound.measure(group);
                bound.write_query_grad(out);
            },
            skip_row);
    });
    return out;
}

}  // namespace attncheck::ref
