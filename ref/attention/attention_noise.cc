// Predicted rounding errors of dense attention and the directions of its defects; and what noise of
// every operator shares.
#include <algorithm>
#include <cmath>

#include "ref/attention/parts.h"
#include "ref/attention/rounding_variance.h"
#include "ref/attention/scaled_inputs.h"
#include "ref/attention/shared_rows.h"

namespace attncheck::ref {
namespace {

/// The forward, group by group of rows that share their keys.
class ForwardNoise {
public:
    ForwardNoise(const AttentionShape& shape, const AttentionInputs<double>& in,
                 std::span<const SequencePlace> key_places, Dtype dtype,
                 const RoundingClass& rounding, AttentionNoise& out)
        : shape_(shape),
          in_(in),
          key_places_(key_places),
          dtype_(dtype),
          of_(dtype, rounding),
          key_squares_(view(in.key, shape.head_dim).rowwise().squaredNorm()),
          value_squares_(finite_squares(in.value)),
          out_(out) {
        if (of_.truncating || of_.stores_scaled) out.output.truncated.resize(out.output.size());
    }

    void add(const SharedRows<double>& rows) {
        const AttendedRows<double> exact = attend(rows, in_);
        const Array s = exact.logits.array(), p = exact.probs.array();
        // Variance of a logit as computed: D products with their sum, scale, log2 e, bias, the
        // difference to the maximum, and exp. sum (q k)^2 is taken as 2 |q|^2 |k|^2 / D.
        const double dim = static_cast<double>(shape_.head_dim), unit = square(of_.unit);
        const Array products = (rows.query.rowwise().squaredNorm() *
                                of_columns(rows, key_squares_).transpose())
                                   .array();
        const Array stored = stored_scores(rows, exact) +
                             square(in_.scale) *
                                 flushed_products(rows.query, rows.key(), of_.flush) +
                             scaled_near_zero(rows.query, rows.key(), in_.scale, of_.scaling_underflow);
        Array scored = square(in_.scale) * of_.of_products(dim) * 2 / dim * products + stored;
        // Q and K as they are scaled, half of it each; K for all rows.
        Array scaled = Array::Zero(s.rows(), s.cols());
        if (of_.scaling > 0)
            scaled = 2 * of_.scaling * square(in_.scale) * squared_products(rows.query, rows.key());
        if (in_.softcap > 0) {
            const Array capped = s - rows.bias, slope = 1 - (capped / in_.softcap).square();
            scored = slope.square() * scored + 16 * unit * capped.square();
            scaled *= slope.square();
        }
        const double tiles = count_tiles(rows.columns_of(0), of_.least_tile);
        const double exponential = of_.exponential * square(1 + tiles);
        const Array omega =
            scored +
            unit * (4 * ((s.square() + rows.bias.square()).colwise() +
                         exact.row_max.array().square()) +
                    8) +
            exponential;
        Squares of;
        of.largest = omega.isNaN().select(0.0, omega).rowwise().maxCoeff();
        if (of_.scaling > 0) of.scaled = p.square() * scaled.isNaN().select(0.0, scaled);
        of.weighted = (p.square() * (omega + scaled)).rowwise().sum();
        of.of_max = (omega + scaled).isNaN().select(0.0, omega + scaled).rowwise().maxCoeff();
        of.probs = p.square().rowwise().sum();
        const double count = static_cast<double>(rows.count());
        of.exponential = exponential;
        of.row_sum = of_.of_own_sum(count, tiles);
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
        double row_sum = 0, exponential = 0;  ///< relative variances of l, and the part of exp=N
        /// What terms next to a much larger one lose of l, and P in its cast, where they err alike.
        Eigen::ArrayXd sum_alike, cast_alike;
        Array prob_alike;  ///< of the cast, by pair; empty: nothing
    };

    void measure_alike(const Array& s, const Array& p, Squares& of) const {
        of.sum_alike = of.cast_alike = Eigen::ArrayXd::Zero(p.rows());
        const Eigen::ArrayXd spreads = spreads_of(s, p);
        const double cast_step = of_.rounds_prob || of_.rounds_sum ? of_.least : 0;
        // Logits that spread over few steps of the rounded P next to 1: these err alike in the row sum.
        const double cast_unit = std::sqrt(3 * of_.cast);
        for (std::int64_t i = 0; i < p.rows(); ++i) {
            const auto row = p.row(i);
            if (RoundingVariance::any_alike(row, of_.sum, spreads[i]))
                for (std::int64_t j = 0; j < p.cols(); ++j)
                    of.sum_alike[i] += RoundingVariance::alike(p(i, j), of_.sum, spreads[i]);
            if (!RoundingVariance::any_alike(row, cast_step, spreads[i])) continue;
            if (of.prob_alike.size() == 0) of.prob_alike = Array::Zero(p.rows(), p.cols());
            for (std::int64_t j = 0; j < p.cols(); ++j)
                of.prob_alike(i, j) = RoundingVariance::alike(p(i, j), cast_step, spreads[i]);
            of.cast_alike[i] = of.prob_alike.row(i).sum();
        }
        for (std::int64_t i = 0; of_.rounds_sum && i < p.rows(); ++i)
            if (RoundingVariance::alike(1, cast_unit, spreads[i]) > 0) of.cast_alike[i] = cast_unit;
    }

    /// Scores that are stored, and parts merged by stored LSE.
    Array stored_scores(const SharedRows<double>& rows, const AttendedRows<double>& exact) const {
        Array out = Array::Zero(exact.logits.rows(), exact.logits.cols());
        if (of_.score == 0 && !of_.lse_split) return out;
        for (std::int64_t i = 0; i < out.rows(); ++i) {
            const double lse = exact.row_max[i] + std::log(exact.row_sum[i]);
            for (std::int64_t j = 0; j < out.cols(); ++j)
                out(i, j) = of_.of_score(exact.logits(i, j), rows.bias(i, j), lse);
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
        if (of.prob_alike.size() > 0)
            alike = product((rows.gain * of.prob_alike).square().matrix(), value2_.view()).array();
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
                o.unaryExpr([&](double x) { return of_.stored_alike(dtype_, x); });
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
            const std::vector<std::int64_t> last = columns_in_last_tile(rows, key_places_, tile);
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
    std::span<const SequencePlace> key_places_;
    Dtype dtype_;
    RoundingVariance of_;
    Eigen::VectorXd key_squares_;        ///< [T2,N2]: |k|^2
    std::vector<double> value_squares_;  ///< [T2,N2,Dv]: v^2
    GatheredRows<double> value2_;        ///< of the columns
    AttentionNoise& out_;
};

}  // namespace

Array flushed_products(const Rows& a, const Rows& b, double flush) {
    if (flush == 0) return Array::Zero(a.rows(), b.rows());
    const auto lost = [&](const Rows& x) -> Eigen::VectorXd {
        return (x.array().abs() < flush).select(x.array().square(), 0.0).rowwise().sum().matrix();
    };
    const Eigen::VectorXd a_lost = lost(a), b_lost = lost(b), a_all = a.rowwise().squaredNorm(),
                          b_all = b.rowwise().squaredNorm();
    return (a_lost * b_all.transpose() + a_all * b_lost.transpose()).array();
}

Array squared_products(const Rows& a, const Rows& b) {
    return product_transposed(Matrix<double>(a.array().square()), Matrix<double>(b.array().square())).array();
}

Array scaled_near_zero(const Rows& query, const Rows& key, double scale, double underflow) {
    if (underflow == 0) return Array::Zero(query.rows(), key.rows());
    const Array q = query.rowwise().squaredNorm().array(), k = key.rowwise().squaredNorm().array();
    return underflow * std::max(1.0, std::fabs(scale)) *
           (q.replicate(1, key.rows()) + k.transpose().replicate(query.rows(), 1));
}

Eigen::ArrayXd spreads_of(const Array& logits, const Array& probs) {
    constexpr double kDominant = 0.5;
    const Mask counts = probs > 0 && probs < kDominant;
    const Array weight = counts.cast<double>();
    const Eigen::ArrayXd count = weight.rowwise().sum(),
                         mean = counts.select(logits, 0.0).rowwise().sum() / count.max(1.0),
                         squares = counts.select((logits.colwise() - mean).square(), 0.0)
                                       .rowwise()
                                       .sum();
    return (count < 2).select(1.0, (squares / count.max(1.0)).min(1.0).sqrt());
}

std::vector<SequencePlace> sequence_places(std::span<const std::int64_t> lengths,
                                           std::int64_t total) {
    std::vector<SequencePlace> places;
    for (std::size_t b = 0; b < lengths.size(); ++b)
        for (std::int64_t i = 0; i < lengths[b]; ++i)
            places.push_back({static_cast<std::int64_t>(b), i, lengths[b]});
    places.resize(static_cast<std::size_t>(total));
    return places;
}

void add_tile_probes(RoundingNoise& noise, std::span<const SequencePlace> places) {
    for (const std::int64_t tile : kProbedTiles)
        if (std::any_of(places.begin(), places.end(),
                        [tile](const SequencePlace& p) { return in_last_tile(p, tile); }))
            noise.probes.push_back({Defect::last_tile, tile, std::vector<double>(noise.size())});
}

void add_coherent(RoundingNoise& noise, Defect defect, double part) {
    const std::vector<double>& direction = find_probe(noise, defect)->direction;
    for (std::size_t i = 0; i < noise.size(); ++i) noise.alike[i] += square(part * direction[i]);
}

Probe* find_probe(RoundingNoise& noise, Defect defect, std::int64_t tile) {
    for (Probe& probe : noise.probes)
        if (probe.defect == defect && (tile == 0 || probe.tile == tile)) return &probe;
    return nullptr;
}

std::vector<double> finite_squares(std::span<const double> values) {
    std::vector<double> squares;
    for (const double v : values) squares.push_back(std::isfinite(v) ? v * v : 0);
    return squares;
}

void add_gain(RoundingNoise& noise) {
    noise.probes.insert(noise.probes.begin(), {Defect::gain, 0, noise.value});
}

std::vector<std::int64_t> columns_in_last_tile(const SharedRows<double>& rows,
                                               std::span<const SequencePlace> key_places,
                                               std::int64_t tile) {
    std::vector<std::int64_t> last;
    for (std::int64_t j = 0; j < rows.count(); ++j)
        if (rows.key_row(j) != kSinkKey &&
            in_last_tile(key_places[static_cast<std::size_t>(rows.key_row(j))], tile))
            last.push_back(j);
    return last;
}

namespace {

AttentionNoise noise_of_rows(const AttentionShape& shape, const ColumnLister& list_columns,
                             const AttentionInputs<double>& in,
                             std::span<const SequencePlace> key_places, Dtype dtype,
                             const RoundingClass& rounding, std::span<const WantedRow> wanted) {
    require_attention_shape(shape, in);
    const std::size_t rows = wanted.size();
    AttentionNoise out{RoundingNoise(rows * static_cast<std::size_t>(shape.value_dim)),
                       RoundingNoise(rows), RoundingNoise(rows), RoundingNoise(rows)};
    out.output.probes.push_back({Defect::scale, 0, std::vector<double>(out.output.size())});
    add_tile_probes(out.output, key_places);
    const std::int64_t count = std::ssize(wanted);
    constexpr std::int64_t kManyPairs = std::int64_t{1} << 22;
    const bool is_large = count >= 8 && shape.kv_rows > kManyPairs / count;
    std::vector<std::int64_t> longest(4);
    for_each_part(is_large, [&](std::int64_t part, std::int64_t parts) {
        ForwardNoise noise(shape, in, key_places, dtype, rounding, out);
        const std::int64_t begin = count * part / parts, end = count * (part + 1) / parts;
        for_shared_rows(
            shape, list_columns, in,
            wanted.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)),
            [&](const SharedRows<double>& group) {
                std::int64_t& most = longest[static_cast<std::size_t>(part)];
                most = std::max(most, group.count());
                noise.add(group);
            },
            skip_row);
    });
    const RoundingVariance of(dtype, rounding);
    double logits = of.coherent_logits(static_cast<double>(shape.head_dim));
    if (of.stores_scaled)
        logits += common_scaling_error(in.query, in.scale, dtype) + common_scaling_error(in.key, in.scale, dtype);
    add_coherent(out.output, Defect::scale, logits);
    for (RoundingNoise* one : {&out.output, &out.row_max, &out.row_sum, &out.lse}) {
        add_gain(*one);
        one->coherent =
            of.coherent(static_cast<double>(*std::ranges::max_element(longest) + shape.head_dim));
    }
    return out;
}

}  // namespace

AttentionNoise attention_noise(const AttentionShape& shape, const ColumnLister& list_columns,
                               const AttentionInputs<double>& in,
                               std::span<const SequencePlace> key_places, Dtype dtype,
                               const RoundingClass& rounding) {
    return noise_of_rows(shape, list_columns, in, key_places, dtype, rounding,
                         all_rows(shape, 0, shape.query_rows));
}

AttentionNoise attention_noise_of_rows(const AttentionShape& shape,
                                       const ColumnLister& list_columns,
                                       const AttentionInputs<double>& in,
                                       std::span<const SequencePlace> key_places, Dtype dtype,
                                       const RoundingClass& rounding,
                                       std::span<const std::int64_t> rows) {
    return noise_of_rows(shape, list_columns, in, key_places, dtype, rounding,
                         chosen_rows(shape, rows));
}

}  // namespace attncheck::ref
