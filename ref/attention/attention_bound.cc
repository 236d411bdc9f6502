// The forward of dense attention with the bound of every element (verification.md 4.3).
#include <algorithm>

#include "ref/attention/attention_roundoff.h"
#include "ref/attention/chosen_attention.h"
#include "ref/attention/parts.h"
#include "ref/attention/shared_rows.h"
#include "ref/attention/weighted_distances.h"
#include "ref/numbers/dtype.h"

namespace attncheck::ref {
namespace {

/// The weight a column may gain is capped here: beyond, the hull of the values decides.
constexpr double kLargestGain = 1e100;

/// p e^eps - p without inf * 0, from the logit relative to the maximum.
double gained_weight(double relative_logit, double error, double row_sum, double prob) {
    return std::clamp(std::exp(relative_logit + error) / row_sum - prob, 0.0, kLargestGain);
}

class ForwardBound {
public:
    ForwardBound(const AttentionForward<double>& forward, const Precision& precision, Grant grant)
        : keep_(1 / forward.in.keep_prob),
          is_kept_exactly_(is_stored_exactly(keep_, precision.dtype)),
          softcap_(forward.in.softcap),
          dtype_(precision.dtype),
          roundoff_(precision),
          score_error_(forward.shape, forward.in, roundoff_),
          value_(forward.in.value),
          grant_(grant) {}

    void write(const SharedRows<double>& rows, const AttendedRows<double>& exact,
               ExpectedAttention& out) const {
        const Matrix<double> magnitude = magnitudes_with_keys(rows);
        const std::int64_t g = magnitude.rows(), c = magnitude.cols();
        // An output that is finite has finite values in all columns that are kept.
        const Array value = finite_part(rows.value());
        Pairs pairs{Array(g, c), Array(g, c), Array(g, c), {}, {}};
        std::vector<Row> state;
        for (std::int64_t i = 0; i < g; ++i) {
            state.push_back(statistics(rows, exact, magnitude, i, pairs, out));
            weigh(exact, i, state.back(), pairs);
        }
        const Matrix<double> size = value.matrix().cwiseAbs();
        pairs.size = product((pairs.weight * rows.gain).matrix(), size);
        pairs.lost = (pairs.loss == 0).all() ? Matrix<double>::Zero(g, value.cols())
                                             : product((pairs.loss * rows.gain).matrix(), size);
        Values y{Array(c, value.cols()), {}, {}, {}};
        for (std::int64_t i = 0; i < g; ++i) {
            const bool same = i > 0 && (rows.gain.row(i) == rows.gain.row(i - 1)).all();
            if (!same) {
                y.of_keys = value.colwise() * rows.gain.row(i).transpose();
                y.low = y.of_keys.colwise().minCoeff();
                y.high = y.of_keys.colwise().maxCoeff();
                y.largest = y.low.abs().max(y.high.abs());
            }
            values(rows.place(i), exact.output.row(i), i, state[static_cast<std::size_t>(i)], pairs,
                   y, out.output);
            leave_lost_keys(rows, exact, i, out.output);
        }
    }

private:
    /// An online softmax skips the tiles in front of its first logit above -infinity, from whichever
    /// end it begins: exp(-infinity + infinity) is no number. A part whose logits are all -infinity
    /// has LSE = -infinity and counts for nothing. One sum over all keys has 0 times the values: an
    /// infinity or NaN of such keys alone may be there or not.
    void leave_lost_keys(const SharedRows<double>& rows, const AttendedRows<double>& exact,
                         std::int64_t i, ExpectedTensor& out) const {
        const std::int64_t count = rows.count();
        const auto is_lost = [&](std::int64_t j) { return exact.logits(i, j) == -kInfinity; };
        std::int64_t first = 0, last = count;  // of the keys that no such tile has
        while (first < count && is_lost(first)) ++first;
        while (last > first && is_lost(last - 1)) --last;
        if (roundoff_.lse_split) first = count;
        if (first == 0 && last == count) return;
        const auto value = rows.value();
        for (std::int64_t d = 0; d < value.cols(); ++d) {
            bool lost = false, kept = false;
            for (std::int64_t j = 0; j < count; ++j)
                if (rows.gain(i, j) != 0 && !std::isfinite(value(j, d)))
                    (is_lost(j) && (j < first || j >= last) ? lost : kept) = true;
            if (lost && !kept)
                leave_unjudged(out, static_cast<std::size_t>(rows.place(i) * value.cols() + d));
        }
    }

    /// The numbers of a row that its bound needs.
    struct Row {
        bool unjudged = false, lattice = false, coarse = false;
        bool plain_top = true;  ///< the largest logit is a score alone, which is exact on a lattice
        double split = 0;  ///< sum p split_error: where parts are merged by stored LSE
        double growth = 0, sum_growth = 0;  ///< relative errors of the sums of P v, and of row_sum
        double gained = 0, kept = 0;        ///< sum p (e^eps - 1), sum p e^-eps
        double row_sum = 0, count = 0;
    };
    /// And of its columns.
    struct Pairs {
        Array theta, weight, loss;  ///< [g,c]: |P^ - P|, P + theta, what a P near zero loses
        Matrix<double> size, lost;  ///< [g,Dv]: sums of weight |y| and loss |y|
    };
    /// y = g v of a row.
    struct Values {
        Array of_keys;             ///< [c,Dv]
        Array low, high, largest;  ///< [1,Dv]: the ends of their hull, the largest |y|
    };

    /// row_max, row_sum and their pair. C = exp(m^ - m) is common to the row: it moves row_sum, not
    /// P. 2 u |m| is the conversion of m to base e.
    ///
    /// The exponent of the maximum itself need not be 0: exp2(fma(<q,k>, scale log2 e, -m)) leaves
    /// the rounding of m, and constants of two bases differ. residue bounds it; l^ lies in
    /// [e^-residue, count e^residue].
    Row statistics(const SharedRows<double>& rows, const AttendedRows<double>& exact,
                   const Matrix<double>& magnitude, std::int64_t i, Pairs& pairs,
                   ExpectedAttention& out) const {
        const auto columns = rows.columns_of(i);
        const auto logits = exact.logits.row(i);
        const double m = exact.row_max[i], l = exact.row_sum[i];
        const double count = static_cast<double>(columns.size());
        const double u = roundoff_.unit, tiles = roundoff_.tiles(columns);
        const std::span<const double> all(logits.data(), columns.size());
        Row row;
        row.row_sum = l, row.count = count;
        row.unjudged = m == -kInfinity || is_dropped_nan_row(columns, all) || roundoff_.factor_overflows(value_);
        row.lattice = grant_ == Grant::lattice && roundoff_.sum <= kLatticeRoundoff &&
                      roundoff_.exp_of_zero_is_one &&
                      is_lattice_row(all, m) &&
                      count * value_.largest < exact_sum_limit(value_.lowest_bit) &&
                      roundoff_.factor_of(value_) == 0 &&
                      (roundoff_.tiny == 0 || value_.smallest >= roundoff_.tiny * count) &&
                      has_equal_tops(rows, exact, i, row.plain_top);
        double low = -kInfinity, high = -kInfinity;
        auto error = pairs.theta.row(i);
        for (std::int64_t j = 0; j < logits.size(); ++j) {
            const double s = logits[j], bias = rows.bias(i, j), size = magnitude(i, j);
            row.unjudged = row.unjudged ||
                           score_error_.may_overflow(
                               finite_magnitude(rows.query.row(i).data(), rows.key().row(j).data(),
                                                rows.query.cols(), size),
                               bias, m - s);
            row.lattice = row.lattice && score_error_.is_exact(size);
            error[j] = !std::isfinite(s) ? 0
                       : softcap_ > 0
                           ? score_error_.capped(exact.scores(i, j), s, bias, size, softcap_)
                           : score_error_(s, bias, size);
            if (!std::isfinite(s)) continue;
            low = std::max(low, s - error[j]);
            high = std::max(high, s + error[j]);
        }
        const double residue = 4 * u * std::fabs(m);
        row.coarse = residue > kCoarse;
        const double rescale = row.lattice ? 0 : roundoff_.rescale_error(tiles);
        const double slack = row.lattice ? kLatticeSlack : 0;
        // Additions, and per tile one more and a product; P v of an fp32 P is rounded as well.
        const double summands =
            roundoff_.row_sum > 0 && !row.lattice
                ? roundoff_.row_sum + count * roundoff_.cast_eta / std::min(1.0, l)
                : 0;
        // Parts that are merged in the end add once more and are multiplied once more, each.
        const double steps = count + (roundoff_.lse_split ? 4 : 2) * tiles;
        const double lse = m + std::log(l);
        const double sum_growth = (1 + gamma(steps - 3, roundoff_.sum)) * (1 + summands) - 1;
        row.growth = gamma(steps - 1, roundoff_.sum) + slack;
        row.sum_growth = (1 + row.growth) * (1 + summands) - 1;
        // P that is formed again for its product with V is another exponential than the one in l, which
        // online softmax has rescaled: errors of exp=N do not cancel then.
        if (!roundoff_.exp_of_zero_is_one) row.growth += 2 * roundoff_.exp + rescale;
        for (std::int64_t j = 0; j < logits.size(); ++j) {
            const double s = logits[j], p = exact.probs(i, j);
            if (!std::isfinite(s)) continue;  // its error is 0
            const double split = roundoff_.split_error(s, lse, count, tiles);
            const double eps = split + (row.lattice ? 0
                                                    : error[j] + roundoff_.exponent_error(s - m) +
                                                          roundoff_.shift_error() + rescale);
            row.split += p * split;
            pairs.theta(i, j) = gained_weight(s - m, eps, l, p);
            row.gained += pairs.theta(i, j);
            row.kept += p * std::exp(-eps);
        }
        const double shift = std::max(high - m, m - low);
        const double max_error = shift + (row.lattice ? residue : 2 * u * std::fabs(m));
        // P and its sum, relative; where the errors of the logits are beyond exp, by the largest
        // logit that is possible.
        const double stored_lse = (roundoff_.lse_split ? 6 * u * (std::fabs(lse) + std::fabs(m)) +
                                                                 roundoff_.merging_error(std::max(std::fabs(lse), std::fabs(m)), tiles)
                                                           : 0) +
                                  (roundoff_.lse_statistics
                                       ? 3 * u * std::fabs(lse) +
                                             4 * u * (std::log(count) + kLargestShift + 1)
                                       : 0);
        const double relative = (1 + row.gained) * (1 + sum_growth) *
                                (1 + (row.lattice ? kLatticeSlack : u)) * (1 + stored_lse);
        const double log_gain =
            row.gained < kLargestGain ? std::log1p(row.gained) : shift + std::log(count) + 1;
        // The largest term is exp(0), which exp=N may have wrong, at first and at every rescaling.
        const double largest = residue + (roundoff_.exp_of_zero_is_one ? 0 : roundoff_.exp + rescale);
        const double hull = std::max(count * std::exp(largest) * (1 + sum_growth + 8 * u) - l,
                                     l - std::exp(-largest) * (1 - 8 * u) / (1 + sum_growth));
        const double sum_error = std::min(l * (std::exp(max_error) * relative - 1), hull);
        const double factor = roundoff_.oracle;
        const auto at = static_cast<std::size_t>(rows.place(i));
        finish(m, max_error * factor, 0, kLargestFp32, Dtype::fp32, out.row_max, at);
        finish(l, sum_error * factor, 0, kLargestFp32, Dtype::fp32, out.row_sum, at);
        out.lse.value[at] = m + std::log(l);
        // Of exact scores one that is stored as S log2 e has an error all the same, and so have a tanh and a sum with a bias.
        const double stored_top = !row.lattice ? 0 : row.plain_top ? roundoff_.base_2_score * std::fabs(m) : shift;
        out.lse.bound[at] = (log_gain + std::log1p(sum_growth) + (max_error - shift) + stored_top +
                             (row.lattice ? kLatticeSlack : 2 * u) + stored_lse) *
                            factor;
        // 4 u |log l| for the log, 3 u |LSE| for the sum and its way to base e.
        finish(lse,
               (out.lse.bound[at] +
                roundoff_.unit * (4 * std::fabs(std::log(l)) + 3 * std::fabs(lse) + 4)) *
                   factor,
               0, kLargestFp32, Dtype::fp32, out.stored_lse, at);
        if (row.coarse) leave_unjudged(out.row_sum, at);
        if (roundoff_.lse_statistics)  // their LSE is
            for (ExpectedTensor* statistic : {&out.row_max, &out.row_sum})
                leave_unjudged(*statistic, at);
        if (row.unjudged)
            for (ExpectedTensor* statistic :
                 {&out.row_max, &out.row_sum, &out.lse, &out.stored_lse})
                leave_unjudged(*statistic, at);
        return row;
    }

    /// Numbers that are equal are computed equal if they are computed in the same way: a tanh, a bias and a sink are not as
    /// a plain score is; fma(<q,k>, scale log2 e, bias log2 e) rounds where their sum does not.
    bool has_equal_tops(const SharedRows<double>& rows, const AttendedRows<double>& exact, std::int64_t i,
                        bool& plain_top) const {
        std::int64_t top = -1;
        for (std::int64_t j = 0; j < rows.count(); ++j) {
            if (exact.logits(i, j) != exact.row_max[i]) continue;
            if (top >= 0 && (rows.bias(i, j) != rows.bias(i, top) ||
                             (softcap_ > 0 && exact.scores(i, j) != exact.scores(i, top))))
                return false;
            top = j;
        }
        plain_top = top >= 0 && rows.bias(i, top) == 0 && (softcap_ == 0 || exact.scores(i, top) == 0);
        return true;
    }

    /// P as it may be, and what a P near zero may lose to exp and to its cast.
    void weigh(const AttendedRows<double>& exact, std::int64_t i, const Row& row,
               Pairs& pairs) const {
        for (std::int64_t j = 0; j < exact.probs.cols(); ++j) {
            const double p = exact.probs(i, j), weight = p + pairs.theta(i, j);
            double loss = weight * row.row_sum < kSafeExp ? kExpFloor : 0;
            if (!row.lattice && weight > 0) loss += roundoff_.cast_loss(p * (p / weight) * 0.99);
            pairs.weight(i, j) = weight, pairs.loss(i, j) = loss;
        }
    }

    /// O, element by element:
    ///
    ///   o^ - o = [ sum p theta (y - o) + sum p (1 + theta) ((pi + rho) y - lambda o) ]
    ///            / sum p (1 + theta)(1 + lambda)
    ///
    /// with y = g v, |pi| <= u_P, |rho|, |lambda| <= growth, and u_P more where the row sum adds up
    /// the rounded P; and o^ lies in the hull of the y. Outputs o_p of parts that are stored err by
    /// u sum w_p |o_p| <= u sum p |y|: that is part of rho.
    void values(std::int64_t place, const Eigen::RowVectorXd& output, std::int64_t i,
                const Row& row, const Pairs& pairs, const Values& y, ExpectedTensor& out) const {
        const Eigen::RowVectorXd moved = weighted_distances(pairs.theta.row(i), y.of_keys, output);
        const Array farthest =
            (y.low - output.array()).abs().max((y.high - output.array()).abs());
        // With steps=half a dropout stores P, too. P = 1 / l of a lattice is cast without an error, P / keep_prob may not be.
        const double prob = row.lattice && is_kept_exactly_ ? 0 : roundoff_.prob + (keep_ > 1 ? roundoff_.step : 0),
                     unit = row.lattice ? 0 : roundoff_.unit;
        const double value = roundoff_.factor_of(value_);
        const double rho =
            (1 + prob + row.growth + prob * row.growth + (keep_ > 1 ? 2 * unit : 0)) *
                (1 + value) * (1 + roundoff_.part) -
            1;
        const double low = row.kept / (1 + row.sum_growth);
        for (std::int64_t d = 0; d < output.size(); ++d) {
            const auto index = static_cast<std::size_t>(place * output.size() + d);
            out.value[index] = output[d];
            if (row.unjudged || row.coarse) {
                leave_unjudged(out, index);
                continue;
            }
            const double o = std::fabs(output[d]), most = y.largest(0, d);
            if (std::isnan(o) || most == 0) continue;
            // The stored output of a part may be any value over keep_prob, which the type may not hold.
            if (roundoff_.part > 0 && keep_ > 1 && most >= max_finite(dtype_)) {
                leave_unjudged(out, index);
                continue;
            }
            const double formula = (moved[d] + rho * pairs.size(i, d) +
                                    (row.sum_growth + row.split) * (1 + row.gained) * o) /
                                       low +
                                   3 * unit * o;
            const double hull =
                farthest(0, d) +
                ((1 + rho) * (1 + row.sum_growth) * (1 + row.split) * (1 + 4 * unit) - 1) *
                    (most + o);
            // Products, partial sums and rescalings near zero; flushed values of V and the result.
            const double floor =
                pairs.lost(i, d) + 2 * roundoff_.part_eta * (1 + rho) + (row.lattice ? 0
                                                : (2 * row.count + 4) * keep_ *
                                                          (roundoff_.sum_floor + roundoff_.tiny_sum) +
                                                      2 * keep_ * roundoff_.tiny +
                                                      roundoff_.factor_floor * keep_);
            finish(output[d], (std::min(formula, hull) + floor) * roundoff_.oracle,
                   row.count * most * (1 + rho) * late_rescale(), roundoff_.largest, dtype_, out, index);
        }
    }

    /// Online softmax in fp32 may wait with rescaling until the maximum has grown by a factor of 2^8: partial sums are
    /// as much larger until then.
    double late_rescale() const { return roundoff_.largest >= kLargestFp32 ? 0x1p8 : 1; }

    /// But for the rounding of keep_prob itself: 1 / 0.1f is 10 in fp32.
    static bool is_stored_exactly(double keep, Dtype dtype) {
        return std::fabs(decode(dtype, encode(dtype, keep)) - keep) <= 0x1p-22 * keep;
    }

    double keep_;
    bool is_kept_exactly_;  ///< 1 / keep_prob is a number of the storage type
    double softcap_;
    Dtype dtype_;
    AttentionRoundoff roundoff_;
    ScoreError score_error_;
    TensorRange value_;
    Grant grant_;
};

ExpectedAttention expected_rows(const AttentionForward<double>& forward,
                                std::span<const WantedRow> wanted, const ForwardBound& bound) {
    const std::size_t rows = wanted.size();
    ExpectedAttention out{ExpectedTensor(rows * static_cast<std::size_t>(forward.shape.value_dim)),
                          ExpectedTensor(rows), ExpectedTensor(rows), ExpectedTensor(rows),
                          ExpectedTensor(rows)};
    constexpr std::int64_t kManyRows = 8192, kManyPairs = std::int64_t{1} << 22;
    const std::int64_t count = std::ssize(wanted);
    const bool is_large =
        count >= kManyRows || (count >= 8 && forward.shape.kv_rows > kManyPairs / count);
    const std::int64_t parts = is_large ? kMostParts : 1;
    for_each_part(parts, [&](std::int64_t part) {
        for_shared_rows(
            forward, part_of(wanted, part, parts),
            [&](const SharedRows<double>& group) {
                bound.write(group, attend(group, forward.in), out);
            },
            [&](const WantedRow& row, bool in_sequence) {
                if (!in_sequence) return;
                const auto at = static_cast<std::size_t>(row.place);
                out.row_max.value[at] = kEmptyRowMax;
                out.row_sum.value[at] = kEmptyRowSum;
                out.stored_lse.value[at] = -kInfinity;
                leave_unjudged(out.lse, at);
            });
    });
    return out;
}

}  // namespace

ExpectedAttention expected_attention(const AttentionForward<double>& forward,
                                     const Precision& precision, Grant grant) {
    require_attention_shape(forward.shape, forward.in);
    return expected_rows(forward, all_rows(forward.shape), ForwardBound(forward, precision, grant));
}

ExpectedAttention expected_attention_rows(const AttentionForward<double>& forward,
                                          const Precision& precision,
                                          std::span<const std::int64_t> rows) {
    require_attention_shape(forward.shape, forward.in);
    return expected_rows(forward, chosen_rows(forward.shape, rows),
                         ForwardBound(forward, precision, Grant::rounding));
}

}  // namespace attncheck::ref
