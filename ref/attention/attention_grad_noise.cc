// Predicted rounding errors of the gradients of dense attention and the directions of their
// defects.
#include <algorithm>
#include <cmath>

#include "ref/attention/key_slots.h"
#include "ref/attention/logit_gradients.h"
#include "ref/attention/logit_noise.h"
#include "ref/attention/rounding_variance.h"
#include "ref/attention/shared_rows.h"

namespace attncheck::ref {
namespace {

/// A tensor of gradients by what is summed up for it: rows of matrices.
struct Sums {
    RoundingNoise& noise;
    std::int64_t width;
    std::vector<double> squares;  ///< sums of squared products

    Sums(RoundingNoise& of, std::int64_t of_width)
        : noise(of), width(of_width), squares(of.size()) {}

    auto value(std::int64_t at) { return row(noise.value, at); }
    auto rest(std::int64_t at) { return row(noise.rest, at); }
    auto alike(std::int64_t at) { return row(noise.alike, at); }
    auto squared(std::int64_t at) { return row(squares, at); }
    auto probe(std::int64_t at, Defect defect) {
        return row(find_probe(noise, defect)->direction, at);
    }
    Eigen::Map<Eigen::RowVectorXd> row(std::vector<double>& tensor, std::int64_t at) const {
        return {tensor.data() + at * width, width};
    }
};

class GradientNoise {
public:
    GradientNoise(const AttentionShape& shape, const AttentionGradInputs& in,
                  std::span<const SequencePlace> query_places,
                  std::span<const SequencePlace> key_places, Dtype dtype,
                  const RoundingClass& rounding, const KeySlots& slots, AttentionGradNoise& out)
        : shape_(shape),
          in_(in),
          query_places_(query_places),
          key_places_(key_places),
          dtype_(dtype),
          of_(dtype, rounding),
          key_squares_(view(in.forward.key, shape.head_dim).rowwise().squaredNorm()),
          value_squares_(view(in.forward.value, shape.value_dim).rowwise().squaredNorm()),
          key2_(finite_squares(in.forward.key)),
          slots_(slots),
          terms_(Eigen::ArrayXd::Zero(slots.count())),
          query_(out.query_grad, shape.head_dim),
          key_(out.key_grad, shape.head_dim),
          value_(out.value_grad, shape.value_dim),
          bias_(in.bias_elements, in.bias_dtype, of_) {
        for (Sums* sums : {&query_, &key_, &value_})
            if (of_.truncating) sums->noise.truncated.resize(sums->noise.size());
        const auto dout = view(in.output_grad, shape.value_dim),
                   o = view(in.output, shape.value_dim);
        delta_ = dout.cwiseProduct(o).rowwise().sum();
        delta_variance_ = of_.of_sum(static_cast<double>(shape.value_dim)) *
                          dout.cwiseProduct(o).rowwise().squaredNorm();
        if (of_.delta > 0) delta_variance_ += of_.delta * delta_.square() + of_.underflow;
        if (of_.group > 0 && shape.group() > 1) {
            head_key_ = Matrix<double>::Zero(terms_.size() * shape.group(), shape.head_dim);
            head_value_ = Matrix<double>::Zero(terms_.size() * shape.group(), shape.value_dim);
        }
    }

    /// P, dS and their variances; what the rows add to dQ, dK and dV.
    void add(const SharedRows<double>& rows) {
        const std::int64_t g = rows.query.rows(), heads = shape_.query_heads;
        const double scale = in_.forward.scale, unit = square(of_.unit);
        const double dim = static_cast<double>(shape_.head_dim),
                     value_dim = static_cast<double>(shape_.value_dim);
        Matrix<double> dout(g, shape_.value_dim);
        Eigen::ArrayXd m(g), log_sum(g), delta(g), other_delta(g), delta_variance(g);
        Array p(g, rows.count());
        Array plain = scale * product_transposed(rows.query, rows.key()).array();
        Array capped, slope;
        const double cap = in_.forward.softcap;
        if (cap > 0) {
            capped = softcapped<double>(plain.matrix(), cap).array();
            slope = 1 - (capped / cap).square();
        }
        const Array s = (cap > 0 ? capped : plain) + rows.bias;
        for (std::int64_t i = 0; i < g; ++i) {
            const std::int64_t at = rows.row(i);
            const double l = in_.row_sum[static_cast<std::size_t>(at)];
            dout.row(i) = view(in_.output_grad, shape_.value_dim).row(at);
            m[i] = in_.row_max[static_cast<std::size_t>(at)], log_sum[i] = std::log(l);
            delta[i] = delta_[at], delta_variance[i] = delta_variance_[at];
            other_delta[i] = place_of(at).position > 0 ? delta_[at - heads] : delta_[at];
            p.row(i) = exponential(s.row(i) - m[i]) / l;
        }
        const Mask kept = rows.kept();
        const Array prob_grad = kept.select(
            rows.gain * product_transposed(dout, rows.value()).array(), 0.0);
        const Array centred = prob_grad.colwise() - delta, ds = p * centred;
        Array scored =
            stored_scores(s, rows.bias) +
            square(scale) * flushed_products(rows.query, rows.key(), of_.flush) +
            scaled_near_zero(rows.query, rows.key(), scale, of_.scaling_underflow) +
            square(scale) * of_.of_scaled_products(dim, 2) * 2 / dim *
                (rows.query.rowwise().squaredNorm() * key_squares_(rows.keys).transpose()).array();
        Array slope_variance;
        if (cap > 0) {
            scored = slope.square() * scored + 16 * unit * capped.square();
            slope_variance = 4 * (capped / cap).square() * scored / square(cap) + 4 * unit;
            plain = plain.isFinite().select(plain * slope, 0.0);
        }
        const Array omega =
            scored +
            unit * (4 * ((s.square() + rows.bias.square()).colwise() +
                         (m.square() + log_sum.square())) +
                    16) +
            of_.exponential;
        const Array prob_grad_variance =
            of_.of_products(value_dim) * 2 / value_dim * rows.gain.square() *
            (dout.rowwise().squaredNorm() * value_squares_(rows.keys).transpose()).array();
        const Array read = rows.gain.square() *
                           flushed_products(finite_part(dout).matrix(),
                                            finite_part(rows.value()).matrix(), of_.flush);
        if (of_.own_forward)
            delta_variance += of_own_output(rows, dout, p, omega, prob_grad_variance);
        // A cast near zero, before or after the scale.
        const double most_scale = std::max(1.0, std::fabs(scale));
        const double lost = of_.rounds_score_grad ? of_.underflow * square(most_scale) : 0;
        Shares shares;
        shares.value = scale * ds;
        shares.scale = scale * plain * ds;
        shares.prob = scale * p;
        Array own = p.square() * (prob_grad_variance + read + 4 * unit * centred.square()) +
                    ds.square() * omega;
        if (in_.bias_elements > 0)
            bias_.add_bias(rows, ds, own + (of_.rounds_score_grad ? of_.underflow : 0), p,
                           delta_variance);
        if (cap > 0) {
            shares.value *= slope, shares.prob *= slope, shares.scale *= slope;
            own = slope.square() * own + ds.square() * slope_variance;
        }
        shares.own = square(scale) * own + lost;
        if (of_.rounds_score_grad) shares.take_alike(of_.least * most_scale);
        if (query_.noise.size() > 0)
            add_to_queries(rows, shares, delta, other_delta, delta_variance);
        if (slots_.count() == 0) return;
        add_to_keys(rows, shares, delta, other_delta, delta_variance);
        Shares weights;
        weights.value = kept.select(p * rows.gain, 0.0);
        weights.scale = weights.value * plain;
        const double value_lost =
            of_.rounds_prob ? of_.underflow / square(in_.forward.keep_prob) : 0;
        weights.own = kept.select(weights.value.square() * omega + value_lost, 0.0);
        if (of_.rounds_prob && of_.least > RoundingVariance::kNoNumber)
            weights.take_alike(of_.least / in_.forward.keep_prob, spreads_of(s, p));
        add_to_values(rows, weights, dout, kept);
    }

    RoundingNoise of_bias() const { return bias_.finish(); }

    void finish_keys() {
        for (std::int64_t key = 0; key < terms_.size(); ++key) {
            add_heads(key_, key, head_key_);
            add_heads(value_, key, head_value_);
            finish(key_, key, terms_[key], of_.rounds_score_grad);
            finish(value_, key, terms_[key], of_.rounds_prob);
        }
    }

private:
    /// What the pairs contribute: coefficients of rows of K, Q or dO.
    struct Shares {
        Array value;  ///< scale dS
        Array own;    ///< scale^2 times the variance of dS but for its cast
        Array scale;  ///< scale d dS / d ln scale
        Array prob;   ///< scale P: what delta is multiplied with
        Array alike;  ///< square of the error of a cast near zero, in own too; empty: none

        void take_alike(double half_step, const Eigen::ArrayXd& spreads = {}) {
            for (std::int64_t i = 0; i < value.rows(); ++i) {
                const double spread = spreads.size() > 0 ? spreads[i] : 1;
                if (!RoundingVariance::any_alike(value.row(i), half_step, spread)) continue;
                for (std::int64_t j = 0; j < value.cols(); ++j) {
                    const double error = RoundingVariance::alike(value(i, j), half_step, spread);
                    if (error == 0) continue;
                    if (alike.size() == 0) alike = Array::Zero(value.rows(), value.cols());
                    alike(i, j) = square(error);
                }
            }
            if (alike.size() > 0) own += alike;
        }
    };

    std::int64_t slot(const SharedRows<double>& rows, std::int64_t j) const {
        return slots_.of(rows.keys[static_cast<std::size_t>(j)]);
    }

    /// group=half: the sums of every query head are rounded.
    void add_heads(Sums& sums, std::int64_t key, const Matrix<double>& heads) {
        for (std::int64_t h = 0; heads.size() > 0 && h < shape_.group(); ++h) {
            const auto of_head = heads.row(key * shape_.group() + h);
            const Eigen::RowVectorXd alike =
                of_head.unaryExpr([&](double x) { return of_.stored_alike(dtype_, x); });
            sums.rest(key) +=
                (of_.group * of_head.cwiseAbs2().array() + of_.underflow).matrix() + alike;
            sums.alike(key) += alike;
        }
    }
    void add_to_heads(const SharedRows<double>& rows, const Array& share, const Matrix<double>& x,
                      std::int64_t j, std::int64_t to, Matrix<double>& heads) {
        const std::int64_t group = shape_.group();
        for (std::int64_t i = 0; heads.size() > 0 && i < x.rows(); ++i)
            heads.row(to * group + rows.row(i) % shape_.query_heads % group) += share(i, j) * x.row(i);
    }

    /// forward=own: of delta = <dO, O> where O is another rounding of the exact output than the one
    /// that is given, and its P were rounded; or where delta is sum_j P_j dP_j.
    ///
    ///   sum_c dO_c^2 (2 r(O_c)^2 + sum_j (P_j g_j)^2 (u_P^2 + omega_j) (v_jc^2 + O_c^2)) + sum_j P_j^2 var(dP_j)
    Eigen::ArrayXd of_own_output(const SharedRows<double>& rows, const Matrix<double>& dout,
                                 const Array& p, const Array& omega,
                                 const Array& prob_grad_variance) const {
        const Array weights = (p * rows.gain).square() *
                              (omega + (of_.rounds_prob ? of_.cast : 0) + square(of_.unit));
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

    Array stored_scores(const Array& s, const Array& bias) const {
        if (of_.score == 0) return Array::Zero(s.rows(), s.cols());
        return s.binaryExpr(bias, [&](double x, double b) { return of_.of_stored_score(x, b); });
    }

    const SequencePlace& place_of(std::int64_t row) const {
        return query_places_[static_cast<std::size_t>(row / shape_.query_heads)];
    }

    /// delta's error is one number for the whole row.
    void add_to_queries(const SharedRows<double>& rows, const Shares& shares,
                        const Eigen::ArrayXd& delta, const Eigen::ArrayXd& other_delta,
                        const Eigen::ArrayXd& delta_variance) {
        const auto k = rows.key();
        rows.gather(key2_, shape_.head_dim, gathered_key2_);
        const auto k2 = gathered_key2_.view();
        const Matrix<double> value = product(shares.value.matrix(), k),
                             squares = product(shares.value.square().matrix(), k2),
                             own = product(shares.own.matrix(), k2), scale = product(shares.scale.matrix(), k),
                             prob_key = product(shares.prob.matrix(), k);
        Matrix<double> alike;
        if (shares.alike.size() > 0) alike = product(shares.alike.matrix(), k2);
        for (std::int64_t i = 0; i < value.rows(); ++i) {
            const std::int64_t at = rows.place(i);
            query_.value(at) = value.row(i);
            query_.squared(at) = squares.row(i);
            query_.rest(at) = own.row(i) + delta_variance[i] * prob_key.row(i).cwiseAbs2();
            query_.rest(at).array() += square(of_.flush) * shares.value.row(i).square().sum();
            if (shares.alike.size() > 0) query_.alike(at) = alike.row(i);
            query_.probe(at, Defect::scale) = scale.row(i);
            query_.probe(at, Defect::row_term) = -delta[i] * prob_key.row(i);
            query_.probe(at, Defect::other_row) = (delta[i] - other_delta[i]) * prob_key.row(i);
            finish(query_, at, static_cast<double>(rows.count()), of_.rounds_score_grad);
        }
        for (const std::int64_t tile : kProbedTiles) {
            if (!find_probe(query_.noise, Defect::last_tile, tile)) continue;
            const auto last = columns_in_last_tile(rows, key_places_, tile);
            if (last.empty()) continue;
            const Matrix<double> part =
                product(shares.value(Eigen::all, last).matrix(), k(last, Eigen::all));
            for (std::int64_t i = 0; i < part.rows(); ++i)
                query_.row(find_probe(query_.noise, Defect::last_tile, tile)->direction,
                           rows.place(i)) = part.row(i);
        }
    }

    void add_to_keys(const SharedRows<double>& rows, const Shares& shares,
                     const Eigen::ArrayXd& delta, const Eigen::ArrayXd& other_delta,
                     const Eigen::ArrayXd& delta_variance) {
        const Matrix<double>&q = rows.query, q2 = q.cwiseAbs2();
        const Array squares = shares.value.square(),
                    own = shares.own + shares.prob.square().colwise() * delta_variance,
                    row_term = shares.prob.colwise() * -delta,
                    other_row = shares.prob.colwise() * (delta - other_delta);
        for (std::int64_t j = 0; j < rows.count(); ++j) {
            const std::int64_t to = slot(rows, j);
            add_to_heads(rows, shares.value, q, j, to, head_key_);
            add_product(key_.value(to), shares.value, j, q);
            add_product(key_.squared(to), squares, j, q2);
            add_product(key_.rest(to), own, j, q2);
            key_.rest(to).array() += square(of_.flush) * squares.col(j).sum();
            if (shares.alike.size() > 0) add_product(key_.alike(to), shares.alike, j, q2);
            add_product(key_.probe(to, Defect::scale), shares.scale, j, q);
            add_product(key_.probe(to, Defect::row_term), row_term, j, q);
            add_product(key_.probe(to, Defect::other_row), other_row, j, q);
            terms_[to] += static_cast<double>(q.rows());
        }
        add_tiles(key_, rows, shares.value, q);
    }

    void add_to_values(const SharedRows<double>& rows, const Shares& weights,
                       const Matrix<double>& dout, const Mask& kept) {
        const Matrix<double> tame = kept.all() ? dout : Matrix<double>(finite_part(dout)),
                             tame2 = tame.cwiseAbs2();
        const Array squares = weights.value.square();
        for (std::int64_t j = 0; j < rows.count(); ++j) {
            const std::int64_t to = slot(rows, j);
            add_to_heads(rows, weights.value, tame, j, to, head_value_);
            add_product(value_.value(to), weights.value, j, tame);
            add_product(value_.squared(to), squares, j, tame2);
            add_product(value_.rest(to), weights.own, j, tame2);
            value_.rest(to).array() += square(of_.flush) * squares.col(j).sum();
            if (weights.alike.size() > 0) add_product(value_.alike(to), weights.alike, j, tame2);
            add_product(value_.probe(to, Defect::scale), weights.scale, j, tame);
        }
        add_tiles(value_, rows, weights.value, tame);
    }

    /// The part of the rows in the last tile of their sequence.
    void add_tiles(Sums& sums, const SharedRows<double>& rows, const Array& share,
                   const Matrix<double>& x) {
        for (const std::int64_t tile : kProbedTiles) {
            Probe* const probe = find_probe(sums.noise, Defect::last_tile, tile);
            std::vector<std::int64_t> last;
            for (std::int64_t i = 0; probe && i < x.rows(); ++i)
                if (in_last_tile(place_of(rows.row(i)), tile)) last.push_back(i);
            if (last.empty()) continue;
            const Array part = share(last, Eigen::all);
            const Matrix<double> of = x(last, Eigen::all);
            for (std::int64_t j = 0; j < rows.count(); ++j)
                add_product(sums.row(probe->direction, slot(rows, j)), part, j, of);
        }
    }

    /// rest holds the variance of the coefficients; squares the sum of squared products.
    void finish(Sums& sums, std::int64_t at, double terms, bool casts) {
        if (terms == 0) return;
        RoundingNoise& noise = sums.noise;
        const auto first = static_cast<std::size_t>(at * sums.width);
        for (std::size_t i = first; i < first + static_cast<std::size_t>(sums.width); ++i) {
            const double x = noise.value[i], squares = sums.squares[i];
            noise.cast[i] = of_.cast * squares;
            noise.rest[i] += (&sums == &value_ ? of_.of_products(terms)
                                               : of_.of_scaled_products(terms)) *
                                 squares +
                             (4 * square(of_.unit) + of_.exponential) * square(x) +
                             of_.stored(dtype_, x);
            noise.variance[i] = noise.rest[i] + (casts ? noise.cast[i] : 0);
            noise.alike[i] += of_.stored_alike(dtype_, x) + of_.exponential * squares;
            if (of_.truncating) noise.truncated[i] = of_.of_truncation(terms) * squares;
        }
    }

    const AttentionShape& shape_;
    const AttentionGradInputs& in_;
    std::span<const SequencePlace> query_places_, key_places_;
    Dtype dtype_;
    RoundingVariance of_;
    Eigen::VectorXd key_squares_, value_squares_;  ///< [T2,N2]: |k|^2, |v|^2
    std::vector<double> key2_;                     ///< [T2,N2,D]: k^2
    GatheredRows<double> gathered_key2_;
    const KeySlots& slots_;
    Eigen::ArrayXd terms_;                         ///< by slot: columns that refer to each key
    Sums query_, key_, value_;
    LogitNoise bias_;
    Eigen::ArrayXd delta_, delta_variance_;  ///< [T1,N1]
    Matrix<double> head_key_, head_value_;   ///< group=half: [T2,N2,G,D], [T2,N2,G,Dv]
};

}  // namespace

namespace {

/// Of the wanted rows, and of the keys that have a slot, for which all rows must be wanted.
AttentionGradNoise grad_noise_of(const AttentionShape& shape, const ColumnLister& list_columns,
                                 const AttentionGradInputs& given,
                                 std::span<const SequencePlace> query_places,
                                 std::span<const SequencePlace> key_places, Dtype dtype,
                                 const RoundingClass& rounding, std::span<const WantedRow> wanted,
                                 std::size_t query_rows, const KeySlots& slots) {
    require_attention_shape(shape, given.forward);
    const AttentionGradInputs in = without_sink(given);
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
    add_tile_probes(out.query_grad, key_places);
    add_tile_probes(out.key_grad, query_places);
    add_tile_probes(out.value_grad, query_places);
    GradientNoise noise(shape, in, query_places, key_places, dtype, rounding, slots, out);
    std::int64_t longest = shape.query_rows * shape.group();
    for_shared_rows(
        shape, list_columns, in.forward, wanted,
        [&](const SharedRows<double>& group) {
            longest = std::max(longest, group.count());
            noise.add(group);
        },
        skip_row);
    noise.finish_keys();
    if (given.bias_elements > 0) out.bias_grad = noise.of_bias();
    const double terms = static_cast<double>(longest + shape.head_dim + shape.value_dim);
    const RoundingVariance of(dtype, rounding);
    for (RoundingNoise* one : {&out.query_grad, &out.key_grad, &out.value_grad}) {
        add_coherent(*one, Defect::scale, of.coherent_logits(static_cast<double>(shape.head_dim)));
        if (of.delta > 0 && one != &out.value_grad)
            add_coherent(*one, Defect::row_term, unit_roundoff(dtype));
        add_gain(*one);
        one->coherent = of.coherent(terms);
    }
    return out;
}

}  // namespace

AttentionGradNoise attention_grad_noise(const AttentionShape& shape,
                                        const ColumnLister& list_columns,
                                        const AttentionGradInputs& in,
                                        std::span<const SequencePlace> query_places,
                                        std::span<const SequencePlace> key_places, Dtype dtype,
                                        const RoundingClass& rounding) {
    AttentionGradNoise out =
        grad_noise_of(shape, list_columns, in, query_places, key_places, dtype, rounding,
                      all_rows(shape, 0, shape.query_rows),
                      static_cast<std::size_t>(shape.query_rows * shape.query_heads),
                      KeySlots(shape.kv_rows * shape.kv_heads));
    if (!in.forward.sink.empty())
        out.sink_grad = sink_grad_noise(shape, list_columns, in, dtype, rounding);
    return out;
}

RoundingNoise bias_grad_noise(const AttentionShape& shape, const ColumnLister& list_columns,
                              const AttentionGradInputs& in,
                              std::span<const SequencePlace> query_places,
                              std::span<const SequencePlace> key_places, Dtype dtype,
                              const RoundingClass& rounding) {
    return grad_noise_of(shape, list_columns, in, query_places, key_places, dtype, rounding,
                         all_rows(shape, 0, shape.query_rows), 0, KeySlots(0))
        .bias_grad;
}

RoundingNoise query_grad_noise_of_rows(const AttentionShape& shape,
                                       const ColumnLister& list_columns,
                                       const AttentionGradInputs& in,
                                       std::span<const SequencePlace> query_places,
                                       std::span<const SequencePlace> key_places, Dtype dtype,
                                       const RoundingClass& rounding,
                                       std::span<const std::int64_t> rows) {
    return grad_noise_of(shape, list_columns, in, query_places, key_places, dtype, rounding,
                         chosen_rows(shape, rows), rows.size(), KeySlots(0))
        .query_grad;
}

KeyGradNoise key_grad_noise_of(const AttentionShape& shape, const ColumnLister& list_columns,
                               const AttentionGradInputs& in,
                               std::span<const SequencePlace> query_places,
                               std::span<const SequencePlace> key_places, Dtype dtype,
                               const RoundingClass& rounding, std::span<const std::int64_t> keys) {
    const KeySlots slots(shape.kv_rows * shape.kv_heads, keys);
    AttentionGradNoise all =
        grad_noise_of(shape, slots.only(shape, list_columns), in, query_places, key_places, dtype,
                      rounding, all_rows(shape, 0, shape.query_rows), 0, slots);
    return {std::move(all.key_grad), std::move(all.value_grad)};
}

}  // namespace attncheck::ref
