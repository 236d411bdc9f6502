// Predicted rounding errors of the gradients of dense attention and the directions of their
// defects.
#include <algorithm>
#include <cmath>

#include "ref/attention/gradient_sums.h"
#include "ref/attention/key_slots.h"
#include "ref/attention/logit_gradients.h"
#include "ref/attention/logit_noise.h"
#include "ref/attention/probes.h"
#include "ref/attention/row_noise.h"
#include "ref/attention/common_errors.h"
#include "ref/attention/score_gradients.h"

namespace attncheck::ref {
namespace {

class GradientNoise {
public:
    /// Of a backward without a sink; `sinks` are those it had.
    GradientNoise(const AttentionBackward& backward, std::span<const double> sinks, const SequencePlaces& places,
                  const Precision& precision, const KeySlots& slots, AttentionGradNoise& out)
        : backward_(backward),
          sinks_(sinks),
          dtype_(precision.dtype),
          of_(precision),
          scores_(backward.forward(), of_),
          value_squares_(view(in_.forward.value, shape_.value_dim).rowwise().squaredNorm()),
          sums_(backward, places, dtype_, of_, slots, out),
          bias_(in_.bias_elements, in_.bias_dtype, of_, in_.forward.keep_prob),
          delta_(row_deltas(backward)),
          delta_variance_(delta_variances(backward, delta_, of_)) {
        of_.exponential += of_.tanh * square(in_.forward.softcap);  // P errs by both alike
    }

    /// P, dS and their variances; what the rows add to dQ, dK and dV.
    void add(const SharedRows<double>& rows) {
        const std::int64_t g = rows.query.rows(), heads = shape_.query_heads;
        const double scale = in_.forward.scale, unit = square(of_.unit);
        const double value_dim = static_cast<double>(shape_.value_dim);
        const ScoreGradients exact = score_gradients(backward_, rows, delta_);
        const Matrix<double>& dout = exact.output_grad;
        const Eigen::ArrayXd &m = exact.row_max, &log_sum = exact.log_sum;
        const Array &p = exact.prob, &s = exact.logits, &capped = exact.capped, &centred = exact.centred,
                    &ds = exact.score_grad;
        Array plain = exact.plain, slope = exact.slope;
        const double cap = in_.forward.softcap;
        const Mask kept = rows.kept();
        RowTerms row_terms{exact.delta, Eigen::ArrayXd(g), Eigen::ArrayXd(g), {}};
        auto& [delta, other_delta, delta_variance, of_given] = row_terms;
        for (std::int64_t i = 0; i < g; ++i) {
            const std::int64_t at = rows.row(i);
            delta_variance[i] = delta_variance_[at];
            other_delta[i] = sums_.place_of(at).position > 0 ? delta_[at - heads] : delta_[at];
        }
        Array scored = scores_.of_sums(rows);
        Array scaled;
        if (of_.scaling > 0) {
            scaled = scores_.of_scaling(rows);
            scored += scaled;
            if (cap > 0) scaled *= slope.square();
        }
        Array slope_variance;
        if (cap > 0) {
            scored = slope.square() * scored + 16 * unit * capped.square();
            // The slope is as wrong as its tanh is, and is itself made in steps.
            const Array of_tanh = scored + (of_.score + of_.step) * capped.square() + scores_.of_caps(plain, g, rows.count());
            slope_variance = 4 * (capped / cap).square() * of_tanh / square(cap) + 4 * unit + 4 * of_.step * slope.square();
            plain = plain.isFinite().select(plain * slope, 0.0);
        }
        scored += scores_.of_stored(rows, exact.plain, s);
        Array omega = as_relative_errors(
            scored +
            unit * (4 * ((s.square() + rows.bias.square()).colwise() +
                         (m.square() + log_sum.square())) +
                    16) +
            of_.exponential);
        // The gradient forms the row sum again: all P of the row share its error.
        Eigen::ArrayXd sum_alike, sum_variance;
        if (of_.own_forward) {
            const double tiles = count_tiles(rows.columns_of(0), of_.least_tile);
            sum_alike = sum_lost_alike(p, spreads_of(s, p), of_) + of_stored_sinks(rows, m + log_sum);
            sum_variance = of_.of_own_sum(static_cast<double>(rows.count()), tiles) + sum_alike.square();
            // And the errors of its logits; that of Q as it is scaled is the same for all keys: sum_d (q_d sum_j P_j k_jd)^2.
            sum_variance += (p == 0).select(0.0, p.square() * omega).rowwise().sum();
            if (of_.scaling > 0)
                sum_variance += of_.scaling * square(scale) *
                                rows.query.cwiseProduct(product(p.matrix(), rows.key())).rowwise().squaredNorm().array();
            omega.colwise() += sum_variance;
        }
        Array prob_grad_variance =
            of_.of_products(value_dim) * 2 / value_dim * rows.gain.square() *
            (dout.rowwise().squaredNorm() * value_squares_(rows.keys).transpose()).array();
        if (of_.cut > 0) prob_grad_variance += of_.cut * exact.prob_grad.square();
        // steps=half: dP is stored, behind a dropout as well.
        const double stores = of_.step > 0 ? (in_.forward.keep_prob < 1 ? 2 : 1) : 0;
        if (stores > 0)
            prob_grad_variance += stores * (of_.step * exact.prob_grad.square() + of_.underflow * rows.gain.square());
        const Array read = rows.gain.square() *
                           flushed_products(finite_part(dout).matrix(),
                                            finite_part(rows.value()).matrix(), of_.flush);
        if (of_.own_forward) {
            delta_variance += of_own_output(rows, dout, p, omega, prob_grad_variance);
            of_given = of_given_output(rows, dout);
        }
        // A cast near zero, before or after the scale and what a dropout divides by.
        const double most_scale = std::max(1.0, std::fabs(scale)), most_cast = most_scale / in_.forward.keep_prob;
        const double casts = (of_.rounds_score_grad ? 1 : 0) + (of_.step > 0 ? (cap > 0 ? 5 : 2) : 0);
        const double lost = casts * of_.underflow * square(most_cast) * (of_.step > 0 && cap > 0 && cap < 1 ? 1 / square(cap) : 1);
        PairShares shares;
        shares.value = scale * ds;
        shares.scale = scale * plain * ds;
        shares.prob = scale * p;
        // A P that is far off takes the errors of dP along.
        Array own = p.square() * (1 + omega) * (prob_grad_variance + read + 4 * unit * centred.square()) +
                    ds.square() * omega;
        // Of a stored P; of dS as it takes the scale, and with a softcap of the steps of its slope.
        if (of_.kept_prob > 0)
            own += (of_.kept_prob + of_.step * (cap > 0 ? 4 : 1)) * ds.square() + of_.underflow * centred.square();
        if (in_.bias_elements > 0)
            bias_.add_bias(rows, ds, own, p, delta_variance, of_given);
        if (cap > 0) {
            shares.value *= slope, shares.prob *= slope, shares.scale *= slope;
            own = slope.square() * own + ds.square() * slope_variance;
        }
        shares.own = square(scale) * own + lost;
        if (of_.rounds_score_grad) shares.take_alike(of_.least * most_cast);
        shares.share_alike(sum_alike);
        shares.of_row = sum_variance;
        if (of_.stores_scaled) shares.scaled = 0.5 * shares.value.square() * scaled;
        if (of_.stores_scaled && scale != 0) shares.near_zero = of_.scaling_underflow * most_scale / square(scale);
        sums_.add_to_queries(rows, shares, row_terms);
        if (!sums_.has_keys()) return;
        sums_.add_to_keys(rows, shares, row_terms);
        PairShares weights;
        weights.value = kept.select(p * rows.gain, 0.0);
        weights.scale = weights.value * plain;
        const double value_lost =
            of_.rounds_prob ? of_.underflow / square(in_.forward.keep_prob) : 0;
        weights.own = kept.select(weights.value.square() * omega + value_lost, 0.0);
        if (of_.kept_prob > 0 && in_.forward.keep_prob < 1)  // P behind the dropout
            weights.own += of_.kept_prob * weights.value.square() + value_lost;
        if (of_.rounds_prob && of_.least > RoundingVariance::kNoNumber)
            weights.take_alike(of_.least / in_.forward.keep_prob, spreads_of(s, p));
        if (const Array kept_errors = kept_alike(p, spreads_of(s, p), of_, in_.forward.keep_prob, true); kept_errors.size() > 0)
            weights.take_alike(rows.gain * kept_errors);
        weights.share_alike(sum_alike);
        weights.of_row = sum_variance;
        if (of_.stores_scaled) weights.scaled = 0.5 * weights.value.square() * scaled;
        sums_.add_to_values(rows, weights, dout, kept);
    }

    RoundingNoise of_bias() const { return bias_.finish(); }
    void finish_keys() { sums_.finish_keys(); }

private:
    /// forward=own: of delta = <dO, O> where O is another rounding of the exact output than the one
    /// that is given, and its P were rounded; or where delta is sum_j P_j dP_j.
    ///
    ///   sum_c dO_c^2 (2 r(O_c)^2 + sum_j (P_j g_j)^2 (u_P^2 + u_n^2 + omega_j) (v_jc^2 + O_c^2)) + sum_j P_j^2 var(dP_j)
    ///
    /// with u_n of the sum over the keys.
    Eigen::ArrayXd of_own_output(const SharedRows<double>& rows, const Matrix<double>& dout,
                                 const Array& p, const Array& omega,
                                 const Array& prob_grad_variance) const {
        const Array weights = (p * rows.gain).square() *
                              (omega + (of_.rounds_prob ? of_.cast : 0) + square(of_.unit) +
                               of_.of_sum(static_cast<double>(p.cols())));
        const Matrix<double> of_values =
            product(weights.matrix(), Matrix<double>(finite_part(rows.value()).square()));
        Eigen::ArrayXd out = (p.square() * prob_grad_variance).rowwise().sum();
        for (std::int64_t i = 0; i < out.size(); ++i)
            for (std::int64_t c = 0; c < shape_.value_dim; ++c) {
                const double o = view(in_.output, shape_.value_dim)(rows.row(i), c);
                out[i] += square(dout(i, c)) * (2 * of_.stored(dtype_, o) + of_values(i, c) +
                                                weights.row(i).sum() * square(o));
            }
        return out;
    }

    /// steps=half: a sink that is stored, relative to the row sum: the same number in all rows of a head.
    Eigen::ArrayXd of_stored_sinks(const SharedRows<double>& rows, const Eigen::ArrayXd& lse) const {
        Eigen::ArrayXd out = Eigen::ArrayXd::Zero(lse.size());
        for (std::int64_t i = 0; of_.step > 0 && !sinks_.empty() && i < out.size(); ++i) {
            const double sink = sinks_[static_cast<std::size_t>(rows.row(i) % shape_.query_heads)];
            if (std::isfinite(sink)) out[i] = std::exp(sink - lse[i]) * half_ulp(dtype_, std::fabs(sink));
        }
        return out;
    }

    /// Variance of <dO, O> by the rounding of the given output.
    Eigen::ArrayXd of_given_output(const SharedRows<double>& rows, const Matrix<double>& dout) const {
        Eigen::ArrayXd out = Eigen::ArrayXd::Zero(dout.rows());
        for (std::int64_t i = 0; i < out.size(); ++i)
            for (std::int64_t c = 0; c < shape_.value_dim; ++c)
                out[i] += square(dout(i, c)) * of_.stored(dtype_, view(in_.output, shape_.value_dim)(rows.row(i), c));
        return out;
    }

    const AttentionBackward& backward_;
    std::span<const double> sinks_;
    const AttentionShape& shape_ = backward_.shape;
    const AttentionGradInputs& in_ = backward_.in;
    Dtype dtype_;
    RoundingVariance of_;
    ScoreNoise scores_;
    Eigen::VectorXd value_squares_;  ///< [T2,N2]: |v|^2
    GradientSums sums_;
    LogitNoise bias_;
    Eigen::ArrayXd delta_, delta_variance_;  ///< [T1,N1]
};

/// dV = P dO and dK = dS q of one row are products with the same numbers for all keys, not sums.
static bool is_seen_by_one_query(const AttentionShape& shape, const SequencePlaces& places) {
    return shape.group() == 1 &&
           std::ranges::all_of(places.queries, [](const SequencePlace& place) { return place.length <= 1; });
}

/// Of the wanted rows, and of the keys that have a slot, for which all rows must be wanted.
AttentionGradNoise grad_noise_of(const AttentionBackward& given, const SequencePlaces& places,
                                 const Precision& precision, std::span<const WantedRow> wanted,
                                 std::size_t query_rows, const KeySlots& slots) {
    const AttentionBackward backward = given.without_sink();
    const AttentionShape& shape = backward.shape;
    const AttentionGradInputs& in = backward.in;
    require_attention_shape(shape, in.forward);
    const auto keys = static_cast<std::size_t>(slots.count()),
               dim = static_cast<std::size_t>(shape.head_dim),
               value_dim = static_cast<std::size_t>(shape.value_dim);
    AttentionGradNoise out{RoundingNoise(query_rows * dim), RoundingNoise(keys * dim),
                           RoundingNoise(keys * value_dim), RoundingNoise(), RoundingNoise()};
    for (RoundingNoise* one : {&out.query_grad, &out.key_grad, &out.value_grad})
        one->probes.push_back({Defect::scale, 0, std::vector<double>(one->size())});
    for (RoundingNoise* one : {&out.query_grad, &out.key_grad})
        for (const Defect defect : {Defect::row_term, Defect::other_row})
            one->probes.push_back({defect, 0, std::vector<double>(one->size())});
    add_tile_probes(out.query_grad, places.keys);
    add_tile_probes(out.key_grad, places.queries);
    add_tile_probes(out.value_grad, places.queries);
    GradientNoise noise(backward, given.in.forward.sink, places, precision, slots, out);
    const RoundingVariance of(precision);
    std::int64_t longest = shape.query_rows * shape.group();
    double tiles = 0;
    for_shared_rows(backward.forward(), wanted, [&](const SharedRows<double>& group) {
        longest = std::max(longest, group.count());
        if (of.own_forward && of.exponential > 0)
            tiles = std::max(tiles, count_tiles(group.columns_of(0), of.least_tile));
        noise.add(group);
    });
    noise.finish_keys();
    if (in.bias_elements > 0) {
        out.bias_grad = noise.of_bias();
        if (of.own_forward) out.bias_grad.coherent += of.coherent_sink(given.in.forward.sink);
    }
    const double terms = static_cast<double>(longest + shape.head_dim + shape.value_dim);
    const auto common = [&](std::span<const double> scaled) {
        return of.stores_scaled ? common_scaling_error(scaled, in.forward.scale, precision.dtype)
                                : 0;
    };
    const double of_query = common(in.forward.query), of_key = common(in.forward.key),
                 of_cap = of.coherent_cap(in.forward.softcap),
                 logits = of.coherent_logits(static_cast<double>(shape.head_dim)) + of_query + of_key + of_cap +
                          of.coherent_products(of.score, shape.head_dim),
                 of_prob_grad = of.coherent_products(of.step, shape.value_dim);
    for (RoundingNoise* one : {&out.query_grad, &out.key_grad, &out.value_grad}) {
        add_coherent(*one, Defect::scale, logits);
        if (of.delta > 0 && one != &out.value_grad)
            add_coherent(*one, Defect::row_term, unit_roundoff(precision.dtype));
        if (of_prob_grad > 0 && one != &out.value_grad) add_coherent(*one, Defect::row_term, of_prob_grad);
        // 1 / keep_prob is rounded once for all rows. With one key dP and delta cancel, and what dP has of it does not.
        if (in.forward.keep_prob != 1 && one != &out.value_grad) add_coherent(*one, Defect::row_term, 2 * of.unit);
        // forward=own: delta goes by an output whose largest P were all multiplied by 1 / keep_prob as it is cast.
        if (const double error = kept_cast_error(of, in.forward.keep_prob); of.own_forward && error > 0 && one != &out.value_grad)
            for (const Defect defect : {Defect::row_term, Defect::other_row}) add_coherent(*one, defect, error);
        add_cut(*one, of.cut);
        add_gain(*one);
        one->coherent = of.coherent(terms) + of.coherent_sink(given.in.forward.sink) + of_cap + of_prob_grad + tiles * std::sqrt(of.exponential) + std::sqrt(of.tanh) * in.forward.softcap;
    }
    out.query_grad.coherent += of_key, out.key_grad.coherent += of_query;
    if (is_seen_by_one_query(shape, places)) {
        const double stored = precision.dtype == Dtype::fp32 ? 0 : square(unit_roundoff(precision.dtype)) / 3;
        if (of.rounds_prob) out.value_grad.coherent += of.coherent_products(stored, shape.value_dim);
        if (of.rounds_score_grad) out.key_grad.coherent += of.coherent_products(stored, shape.head_dim);
    }
    return out;
}

}  // namespace

AttentionGradNoise attention_grad_noise(const AttentionBackward& backward,
                                        const SequencePlaces& places, const Precision& precision) {
    const AttentionShape& shape = backward.shape;
    AttentionGradNoise out =
        grad_noise_of(backward, places, precision, all_rows(shape),
                      static_cast<std::size_t>(shape.query_rows * shape.query_heads),
                      KeySlots(shape.kv_rows * shape.kv_heads));
    if (!backward.in.forward.sink.empty()) out.sink_grad = sink_grad_noise(backward, precision);
    return out;
}

RoundingNoise bias_grad_noise(const AttentionBackward& backward, const SequencePlaces& places,
                              const Precision& precision) {
    return grad_noise_of(backward, places, precision, all_rows(backward.shape), 0, KeySlots(0))
        .bias_grad;
}

RoundingNoise query_grad_noise_of_rows(const AttentionBackward& backward,
                                       const SequencePlaces& places, const Precision& precision,
                                       std::span<const std::int64_t> rows) {
    return grad_noise_of(backward, places, precision, chosen_rows(backward.shape, rows),
                         rows.size(), KeySlots(0))
        .query_grad;
}

KeyGradNoise key_grad_noise_of(const AttentionBackward& backward, const SequencePlaces& places,
                               const Precision& precision, std::span<const std::int64_t> keys) {
    const AttentionShape& shape = backward.shape;
    const KeySlots slots(shape.kv_rows * shape.kv_heads, keys);
    const ColumnLister list_wanted = slots.only(shape, backward.list_columns);
    AttentionGradNoise all = grad_noise_of({shape, list_wanted, backward.in}, places, precision,
                                           all_rows(shape), 0, slots);
    return {std::move(all.key_grad), std::move(all.value_grad)};
}

}  // namespace attncheck::ref
