// Predicted rounding errors of dense attention and the directions of its defects.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "ref/attention/common_errors.h"
#include "ref/attention/parts.h"
#include "ref/attention/probes.h"
#include "ref/attention/row_noise.h"

namespace attncheck::ref {
namespace {

/// The forward, group by group of rows that share their keys.
class ForwardNoise {
public:
    ForwardNoise(const AttentionForward<double>& forward, const SequencePlaces& places,
                 const Precision& precision, AttentionNoise& out)
        : shape_(forward.shape),
          in_(forward.in),
          places_(places),
          dtype_(precision.dtype),
          of_(precision),
          scores_(forward, of_),
          value_squares_(finite_squares(in_.value)),
          out_(out) {
        if (of_.truncating || of_.stores_scaled) out.output.truncated.resize(out.output.size());
    }

    void add(const SharedRows<double>& rows) {
        const AttendedRows<double> exact = attend(rows, in_);
        const Array s = exact.logits.array(), p = exact.probs.array();
        // Variance of a logit as computed: its score, log2 e, bias, the difference to the maximum, and exp.
        const double unit = square(of_.unit);
        Array scored = scores_.of_sums(rows);
        Array scaled = Array::Zero(s.rows(), s.cols());
        if (of_.scaling > 0) scaled = scores_.of_scaling(rows);  // K for all rows
        if (in_.softcap > 0) {
            const Array capped = s - rows.bias, slope = 1 - (capped / in_.softcap).square();
            scored = slope.square() * scored + 16 * unit * capped.square();
            scaled *= slope.square();
        }
        const double tiles = count_tiles(rows.columns_of(0), of_.least_tile);
        scored += scores_.of_stored(rows, exact.scores.array(), s) + merged_parts(exact, tiles);
        const double exponential = of_.exponential * square(1 + tiles);
        const Array omega = as_relative_errors(
            scored +
            unit * (4 * ((s.square() + rows.bias.square()).colwise() +
                         exact.row_max.array().square()) +
                    8) +
            exponential);
        Squares of;
        of.largest = omega.isNaN().select(0.0, omega).rowwise().maxCoeff();
        if (of_.scaling > 0) of.scaled = p.square() * scaled.isNaN().select(0.0, scaled);
        of.weighted = (p.square() * (omega + scaled)).rowwise().sum();
        of.of_max = (omega + scaled).isNaN().select(0.0, omega + scaled).rowwise().maxCoeff();
        of.probs = p.square().rowwise().sum();
        const double count = static_cast<double>(rows.count());
        of.exponential = exponential + (in_.softcap > 0 ? of_.tanh * square(in_.softcap) : 0);
        of.row_sum = of_.of_own_sum(count, tiles);
        for (std::int64_t i = 0; of_.lse_split && i < s.rows(); ++i)
            if (const double lse = lse_of(exact, i); std::isfinite(lse))
                of.row_sum = std::max(of.row_sum, of_.of_own_sum(count, tiles) + of_.of_merging(lse, tiles));
        measure_alike(s, p, of);
        const Array weight = (rows.gain == 0).select(0.0, p * rows.gain);
        for (std::int64_t i = 0; i < s.rows(); ++i)
            statistics(static_cast<std::size_t>(rows.place(i)), i, exact, of, count);
        values(rows, exact, weight, of, count + 2 * tiles);
        directions(rows, exact, weight);
    }

private:
    /// Of every row: largest variance of a logit but for Q and K as they are scaled, sum p^2 omega, sum p^2; relative
    /// variance of l.
    struct Squares {
        Eigen::ArrayXd largest, weighted, probs;
        Eigen::ArrayXd of_max;  ///< largest variance of a logit, Q and K as they are scaled included
        Array scaled;           ///< p^2 times the variance that these give a logit, by pair; empty: none
        double row_sum = 0, exponential = 0;  ///< relative variances of l, and the part of exp=N and tanh=N
        /// What terms next to a much larger one lose of l, and P in its cast, where they err alike.
        Eigen::ArrayXd sum_alike, cast_alike;
        Eigen::ArrayXd spreads;  ///< of the logits, in units of P
        Array prob_alike;  ///< of the cast, by pair; empty: nothing
        Array kept_alike;  ///< of that of P / keep_prob; empty: nothing
    };

    void measure_alike(const Array& s, const Array& p, Squares& of) const {
        const Eigen::ArrayXd spreads = of.spreads = spreads_of(s, p);
        of.sum_alike = sum_lost_alike(p, spreads, of_);
        of.kept_alike = kept_alike(p, spreads, of_, in_.keep_prob, false);
        of.cast_alike = Eigen::ArrayXd::Zero(p.rows());
        const double cast_step = of_.rounds_prob || of_.rounds_sum ? of_.least : 0;
        // Logits that spread over few steps of the rounded P next to 1: these err alike in the row sum.
        const double cast_unit = std::sqrt(3 * of_.cast);
        for (std::int64_t i = 0; i < p.rows(); ++i) {
            const auto row = p.row(i);
            if (!RoundingVariance::any_alike(row, cast_step, spreads[i])) continue;
            if (of.prob_alike.size() == 0) of.prob_alike = Array::Zero(p.rows(), p.cols());
            for (std::int64_t j = 0; j < p.cols(); ++j)
                of.prob_alike(i, j) = RoundingVariance::alike(p(i, j), cast_step, spreads[i]);
            of.cast_alike[i] = of.prob_alike.row(i).sum();
        }
        for (std::int64_t i = 0; of_.rounds_sum && i < p.rows(); ++i)
            if (RoundingVariance::alike(1, cast_unit, spreads[i]) > 0) of.cast_alike[i] = cast_unit;
    }

    /// Casts of P whose logits spread over few steps: the error is a sawtooth over those, and values that go with the keys, as
    /// where K is V, do not average it away. Its Fourier series as in close_numbers.h, for the three places that P may
    /// have between two powers of two, normalised or not.
    void add_close_casts(const SharedRows<double>& rows, const Array& weight, const Squares& of, Array& alike) const {
        constexpr double kChance = 9;
        constexpr int kHarmonics = 4;
        const double cast_unit = std::sqrt(3 * of_.cast);
        Array values;
        for (std::int64_t i = 0; of_.rounds_prob && i < weight.rows(); ++i) {
            if (RoundingVariance::alike(1, cast_unit, of.spreads[i]) == 0) continue;
            const Eigen::ArrayXd close = (weight.row(i) < kDominant * rows.gain.row(i)).select(weight.row(i), 0.0);
            const double largest = close.maxCoeff();
            if (!(largest > 0)) continue;
            if (values.size() == 0) values = finite_part(rows.value());
            Eigen::ArrayXd most = Eigen::ArrayXd::Zero(shape_.value_dim);
            const Eigen::ArrayXd kept = (close > 0).cast<double>();
            const Eigen::ArrayXd by_chance =
                kChance * product(Matrix<double>(kept.matrix().transpose()), Matrix<double>(values.square())).array().transpose();
            for (const double step : {2 * cast_unit, std::numbers::sqrt2 * cast_unit, cast_unit}) {
                const Eigen::ArrayXd turns = close * (2 * std::numbers::pi / (step * largest));
                Eigen::ArrayXd variance = Eigen::ArrayXd::Zero(shape_.value_dim);
                for (int n = 1; n <= kHarmonics; ++n) {
                    const auto sums = [&](const Eigen::ArrayXd& wave) -> Eigen::ArrayXd {
                        return product(Matrix<double>((kept * wave).matrix().transpose()), Matrix<double>(values))
                            .array()
                            .transpose()
                            .square();
                    };
                    const Eigen::ArrayXd size = sums((n * turns).cos()) + sums((n * turns).sin());
                    variance += (size > by_chance)
                                    .select(size * 0.5 * square(step * largest / (std::numbers::pi * n)), 0.0);
                }
                most = most.max(variance);
            }
            alike.row(i) += most.transpose();
        }
    }

    static double lse_of(const AttendedRows<double>& exact, std::int64_t i) { return exact.row_max[i] + std::log(exact.row_sum[i]); }

    /// Parts merged by stored LSE.
    Array merged_parts(const AttendedRows<double>& exact, double parts) const {
        Array out = Array::Zero(exact.logits.rows(), exact.logits.cols());
        for (std::int64_t i = 0; of_.lse_split && i < out.rows(); ++i) {
            const double lse = lse_of(exact, i);
            for (std::int64_t j = 0; j < out.cols(); ++j) out(i, j) = of_.of_split(exact.logits(i, j), lse, parts);
        }
        return out;
    }

    void statistics(std::size_t at, std::int64_t i, const AttendedRows<double>& exact,
                    const Squares& of, double count) {
        const double m = exact.row_max[i], l = exact.row_sum[i];
        RoundingNoise& max = out_.row_max;
        max.value[at] = m;
        max.variance[at] = max.rest[at] = of.of_max[i] + of_.stored(Dtype::fp32, m);
        RoundingNoise& sum = out_.row_sum;
        sum.value[at] = l;
        const double alike = square(of.sum_alike[i]) +
                             (of_.rounds_sum ? square(of.cast_alike[i]) : 0);
        sum.rest[at] = square(l) * (of.weighted[i] + of.of_max[i] + of.row_sum +
                                    square(of.sum_alike[i])) +
                       of_.stored(Dtype::fp32, l);
        sum.cast[at] = of_.cast * of.probs[i] * square(l) + of_.underflow * count +
                       square(of.cast_alike[i] * l);
        sum.variance[at] = sum.rest[at] + (of_.rounds_sum ? sum.cast[at] : 0);
        sum.alike[at] = square(l) * (alike + of.exponential);
        RoundingNoise& lse = out_.lse;
        lse.value[at] = m + std::log(l);
        lse.cast[at] = sum.cast[at] / square(l);
        lse.rest[at] = of.weighted[i] + of.of_max[i] + of.row_sum + square(of.sum_alike[i]) +
                       of_.stored(Dtype::fp32, lse.value[at]) +
                       square(of_.unit) * (4 * (square(m) + square(lse.value[at])) + 16);
        lse.variance[at] = lse.rest[at] + (of_.rounds_sum ? lse.cast[at] : 0);
        lse.alike[at] = alike + of.exponential;
    }

    void values(const SharedRows<double>& rows, const AttendedRows<double>& exact,
                const Array& weight, const Squares& of, double terms) {
        const double sums = of_.of_products(terms), lost = of_.of_truncation(terms);
        const double keep = 1 / in_.keep_prob;
        rows.gather(value_squares_, shape_.value_dim, value2_);
        const Array products = product(weight.square().matrix(), value2_.view()).array();  // sum (p y)^2
        const Mask kept = rows.kept();
        Array plain;  // sum v^2
        if (kept.all())
            plain = value2_.view().array().colwise().sum().replicate(kept.rows(), 1);
        else
            plain = product(kept.cast<double>().matrix(), value2_.view()).array();
        Array alike = Array::Zero(plain.rows(), plain.cols());  // of the cast of P
        if (of.prob_alike.size() > 0) {
            // Values that go with the keys, as where K is V, may have the sign of the errors.
            const Matrix<double> errors = rows.gain * of.prob_alike;
            alike = product(errors, Matrix<double>(finite_part(rows.value()).abs())).array().square();
        }
        add_close_casts(rows, weight, of, alike);
        if (of.kept_alike.size() > 0)
            alike += product((rows.gain * of.kept_alike).square().matrix(), value2_.view()).array();
        // sum (p y - p o)^2 omega of Q and K as they are scaled.
        Array scaled;
        if (of.scaled.size() > 0) {
            const Matrix<double> by = rows.gain * of.scaled,
                                 means = product(by, Matrix<double>(finite_part(rows.value())));
            scaled = product(Matrix<double>(rows.gain.square() * of.scaled), value2_.view()).array() +
                     exact.output.array() * (exact.output.array().colwise() * of.scaled.rowwise().sum() - 2 * means.array());
        }
        RoundingNoise& noise = out_.output;
        for (std::int64_t i = 0; i < products.rows(); ++i) {
            const auto at = rows.place(i);
            const Array o = exact.output.row(i).array(), o2 = o.square();
            const Array stored = o.unaryExpr([&](double x) { return of_.stored(dtype_, x); });
            Array rest = 2 * of.largest[i] * (products.row(i) + o2 * of.probs[i]) +
                         sums * products.row(i) +
                         o2 * (of.row_sum + square(of.sum_alike[i])) + stored;
            if (scaled.size() > 0) rest += scaled.row(i);
            if (keep > 1) rest += of_.step * products.row(i);  // a dropout stores P, too
            // Outputs of parts, whatever keys these have: sum (w o)^2 is that of single keys, and what all have in common.
            if (of_.part > 0) rest += of_.part * (products.row(i) + o2) + 2 * of_.underflow;
            if (of_.rounds_sum) alike.row(i) += o2 * square(of.cast_alike[i]);
            const Array cast =
                of_.cast * (products.row(i) + (of_.rounds_sum ? of.probs[i] : 0) * o2) +
                of_.underflow * keep * keep / std::min(1.0, square(exact.row_sum[i])) *
                    plain.row(i) +
                alike.row(i);
            const double flushed = square(of_.flush) * weight.row(i).square().sum();
            const bool casts = of_.rounds_prob || of_.rounds_sum;
            row(noise.value, at) = o;
            row(noise.rest, at) = rest + flushed;
            row(noise.cast, at) = cast;
            row(noise.variance, at) = rest + flushed + (casts ? 1 : 0) * cast;
            if (of_.truncating) row(noise.truncated, at) = lost * products.row(i);
            if (of_.stores_scaled && scaled.size() > 0) row(noise.truncated, at) += 0.5 * scaled.row(i);
            row(noise.alike, at) =
                o2 * square(of.sum_alike[i]) + (casts ? 1 : 0) * alike.row(i) +
                of.exponential * (products.row(i) + o2) +
                (of_.part > 0 ? 2 : 1) * o.unaryExpr([&](double x) { return of_.stored_alike(dtype_, x); });
        }
    }

    /// d s / d ln scale: the score itself, or its part behind a softcap.
    Array scaled_scores(const SharedRows<double>& rows, const AttendedRows<double>& exact) const {
        const Array plain = exact.logits.array() - rows.bias;
        if (in_.softcap == 0) return plain;
        return (exact.scores.array() * (1 - (plain / in_.softcap).square()))
            .isFinite()
            .select(exact.scores.array() * (1 - (plain / in_.softcap).square()), 0.0);
    }

    /// scale: d o / d ln scale = sum p (s - s_mean) y, s without its bias. last_tile: what the keys
    /// of the last tile add to a row, sum p (y - o) over them.
    void directions(const SharedRows<double>& rows, const AttendedRows<double>& exact,
                    const Array& weight) {
        const Array plain = scaled_scores(rows, exact);
        const Eigen::ArrayXd mean = (exact.probs.array() * plain).rowwise().sum();
        const Mask kept = rows.kept();
        const auto write = [&](Probe* probe, const Matrix<double>& direction) {
            for (std::int64_t i = 0; probe && i < direction.rows(); ++i)
                row(probe->direction, rows.place(i)) = direction.row(i).array();
        };
        write(find_probe(out_.output, Defect::scale),
              kept_product<double>(
                  kept.select(weight * (plain.colwise() - mean), 0.0).matrix(), kept,
                  rows.value()));
        for (const std::int64_t tile : kProbedTiles) {
            Probe* const probe = find_probe(out_.output, Defect::last_tile, tile);
            if (!probe) continue;
            const std::vector<std::int64_t> last = columns_in_last_tile(rows, places_.keys, tile);
            if (last.empty()) continue;
            const Eigen::VectorXd mass = exact.probs(Eigen::all, last).rowwise().sum();
            Matrix<double> direction =
                kept_product<double>(weight(Eigen::all, last).matrix(), kept(Eigen::all, last),
                                     rows.value()(last, Eigen::all));
            direction -= mass.asDiagonal() * exact.output;
            write(probe, direction);
        }
    }

    Eigen::Map<Eigen::Array<double, 1, Eigen::Dynamic>> row(std::vector<double>& tensor,
                                                            std::int64_t at) const {
        return {tensor.data() + at * shape_.value_dim, shape_.value_dim};
    }

    const AttentionShape& shape_;
    const AttentionInputs<double>& in_;
    const SequencePlaces& places_;
    Dtype dtype_;
    RoundingVariance of_;
    ScoreNoise scores_;
    std::vector<double> value_squares_;  ///< [T2,N2,Dv]: v^2
    GatheredRows<double> value2_;        ///< of the columns
    AttentionNoise& out_;
};

AttentionNoise noise_of_rows(const AttentionForward<double>& forward, const SequencePlaces& places,
                             const Precision& precision, std::span<const WantedRow> wanted) {
    const auto& [shape, list_columns, in] = forward;
    require_attention_shape(shape, in);
    const std::size_t rows = wanted.size();
    AttentionNoise out{RoundingNoise(rows * static_cast<std::size_t>(shape.value_dim)),
                       RoundingNoise(rows), RoundingNoise(rows), RoundingNoise(rows)};
    out.output.probes.push_back({Defect::scale, 0, std::vector<double>(out.output.size())});
    add_tile_probes(out.output, places.keys);
    const std::int64_t count = std::ssize(wanted);
    constexpr std::int64_t kManyPairs = std::int64_t{1} << 22;
    const std::int64_t parts = count >= 8 && shape.kv_rows > kManyPairs / count ? kMostParts : 1;
    std::vector<std::int64_t> longest(static_cast<std::size_t>(parts));
    for_each_part(parts, [&](std::int64_t part) {
        ForwardNoise noise(forward, places, precision, out);
        for_shared_rows(forward, part_of(wanted, part, parts),
                        [&](const SharedRows<double>& group) {
                            std::int64_t& most = longest[static_cast<std::size_t>(part)];
                            most = std::max(most, group.count());
                            noise.add(group);
                        });
    });
    const RoundingVariance of(precision);
    double logits = of.coherent_logits(static_cast<double>(shape.head_dim)) + of.coherent_cap(in.softcap) +
                    of.coherent_products(of.score, shape.head_dim);
    if (of.stores_scaled)
        logits += common_scaling_error(in.query, in.scale, precision.dtype) +
                  common_scaling_error(in.key, in.scale, precision.dtype);
    add_coherent(out.output, Defect::scale, logits);
    add_cut(out.output, of.cut);
    for (RoundingNoise* one : {&out.output, &out.row_max, &out.row_sum, &out.lse}) {
        add_gain(*one);
        one->coherent =
            of.coherent(static_cast<double>(*std::ranges::max_element(longest) + shape.head_dim)) +
            std::sqrt(of.tanh) * forward.in.softcap + of.coherent_sink(forward.in.sink);
    }
    return out;
}

}  // namespace

AttentionNoise attention_noise(const AttentionForward<double>& forward,
                               const SequencePlaces& places, const Precision& precision) {
    return noise_of_rows(forward, places, precision, all_rows(forward.shape));
}

AttentionNoise attention_noise_of_rows(const AttentionForward<double>& forward,
                                       const SequencePlaces& places, const Precision& precision,
                                       std::span<const std::int64_t> rows) {
    return noise_of_rows(forward, places, precision, chosen_rows(forward.shape, rows));
}

}  // namespace attncheck::ref
