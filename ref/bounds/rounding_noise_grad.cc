// Predicted rounding errors of the gradients of dense attention and the directions of their
// defects.
#include <algorithm>
#include <cmath>

#include "ref/bounds/rounding_variance.h"

namespace attncheck::ref {
namespace {

/// Directions of one tensor by defect; the pointers stay null where a probe is not wanted.
struct Directions {
    double *scale = nullptr, *row_term = nullptr, *other_row = nullptr;
    double* tiles[std::size(kProbedTiles)] = {};

    explicit Directions(RoundingNoise& noise) {
        const auto at = [&](Defect defect, std::int64_t tile = 0) -> double* {
            Probe* const probe = find_probe(noise, defect, tile);
            return probe ? probe->direction.data() : nullptr;
        };
        scale = at(Defect::scale);
        row_term = at(Defect::row_term);
        other_row = at(Defect::other_row);
        for (std::size_t k = 0; k < std::size(kProbedTiles); ++k)
            tiles[k] = at(Defect::last_tile, kProbedTiles[k]);
    }
};

/// What one (row, column) pair contributes to dQ or dK: coefficients of the row of K or Q.
struct PairShare {
    double value = 0;     ///< scale dS
    double own = 0;       ///< scale^2 times the variance of dS but for its cast
    double scale = 0;     ///< scale d dS / d ln scale
    double row_term = 0;  ///< -scale P delta
    double other_row = 0;
    bool in_tile[std::size(kProbedTiles)] = {};
};

class GradientNoise {
public:
    GradientNoise(const AttentionShape& shape, const AttentionGradInputs& in,
                  std::span<const SequencePlace> query_places,
                  std::span<const SequencePlace> key_places, Dtype dtype,
                  const RoundingClass& rounding, AttentionGradNoise& out)
        : shape_(shape),
          in_(in),
          query_places_(query_places),
          key_places_(key_places),
          dtype_(dtype),
          of_(dtype, rounding),
          query_squares_(row_squares(in.forward.query, shape.head_dim)),
          key_squares_(row_squares(in.forward.key, shape.head_dim)),
          value_squares_(row_squares(in.forward.value, shape.value_dim)),
          grad_squares_(row_squares(in.output_grad, shape.value_dim)),
          terms_(key_squares_.size()),
          key_squared_(out.key_grad.size()),
          value_squared_(out.value_grad.size()),
          out_(out),
          to_query_(out.query_grad),
          to_key_(out.key_grad),
          to_value_(out.value_grad) {
        const auto rows = static_cast<std::size_t>(shape.query_rows * shape.query_heads);
        for (std::size_t at = 0; at < rows; ++at)
            delta_.push_back(
                inner_product(row_of(in.output_grad, at), row_of(in.output, at), shape.value_dim));
    }

    void row(std::int64_t t, std::int64_t n, std::span<const KeyColumn> columns) {
        at_ = static_cast<std::size_t>(t * shape_.query_heads + n);
        const auto width = static_cast<std::size_t>(shape_.head_dim);
        q_ = in_.forward.query.data() + at_ * width;
        dout_ = row_of(in_.output_grad, at_);
        const auto heads = static_cast<std::size_t>(shape_.query_heads);
        const auto& place = query_places_[static_cast<std::size_t>(t)];
        other_delta_ = place.position > 0 ? delta_[at_ - heads] : delta_[at_];
        squared_.assign(width, 0);
        own_.assign(width, 0);
        prob_key_.assign(width, 0);
        const double* o = row_of(in_.output, at_);
        double products = 0;
        for (std::int64_t d = 0; d < shape_.value_dim; ++d) products += square(dout_[d] * o[d]);
        delta_variance_ = of_.of_sum(static_cast<double>(shape_.value_dim)) * products;
        for (const KeyColumn& column : columns) pair(t, n, column);
        finish_query(columns.size());
    }

    void finish_keys() {
        const auto width = static_cast<std::size_t>(shape_.head_dim),
                   value_width = static_cast<std::size_t>(shape_.value_dim);
        for (std::size_t key = 0; key < terms_.size(); ++key) {
            for (std::size_t i = key * width; i < (key + 1) * width; ++i)
                finish(out_.key_grad, i, key_squared_[i], terms_[key], of_.rounds_score_grad);
            for (std::size_t i = key * value_width; i < (key + 1) * value_width; ++i)
                finish(out_.value_grad, i, value_squared_[i], terms_[key], of_.rounds_prob);
        }
    }

private:
    const double* row_of(std::span<const double> values, std::size_t at) const {
        return values.data() + at * static_cast<std::size_t>(shape_.value_dim);
    }

    /// rest holds the variance of the coefficients; squares the sum of squared products.
    void finish(RoundingNoise& noise, std::size_t i, double squares, double terms, bool casts) {
        const double x = noise.value[i];
        if (terms == 0) return;
        noise.cast[i] = of_.cast * squares;
        noise.rest[i] +=
            of_.of_sum(terms) * squares + 4 * square(of_.unit * x) + of_.stored(dtype_, x);
        noise.variance[i] = noise.rest[i] + (casts ? noise.cast[i] : 0);
    }

    /// P, dS and their variances; the shares of dQ, dK and dV.
    void pair(std::int64_t t, std::int64_t n, const KeyColumn& column) {
        const auto key =
            static_cast<std::size_t>(column.key * shape_.kv_heads + n / shape_.group());
        const double keep = column.kept ? 1 / in_.forward.keep_prob : 0;
        const double* k = in_.forward.key.data() + key * static_cast<std::size_t>(shape_.head_dim);
        const double* v = row_of(in_.forward.value, key);
        const double scale = in_.forward.scale, m = in_.row_max[at_], l = in_.row_sum[at_];
        const double plain = scale * inner_product(q_, k, shape_.head_dim);
        const double s = plain + column.bias;
        const double p = std::exp(s - m) / l;
        const double centred =
            (column.kept ? keep * inner_product(dout_, v, shape_.value_dim) : 0) - delta_[at_];
        const double ds = p * centred;
        const double dim = static_cast<double>(shape_.head_dim),
                     value_dim = static_cast<double>(shape_.value_dim), unit = square(of_.unit);
        const double omega =
            square(scale) * of_.of_sum(dim) * 2 / dim * query_squares_[at_] * key_squares_[key] +
            unit * (4 * (s * s + m * m + square(std::log(l)) + square(column.bias)) + 16);
        const double dp = square(keep) * of_.of_sum(value_dim) * 2 / value_dim *
                          grad_squares_[at_] * value_squares_[key];
        PairShare share;
        share.value = scale * ds;
        share.scale = scale * plain * ds;
        share.row_term = -scale * p * delta_[at_];
        share.other_row = -scale * p * (other_delta_ - delta_[at_]);
        // A cast near zero, before or after the scale.
        const double lost =
            of_.rounds_score_grad ? of_.underflow * std::max(1.0, square(scale)) : 0;
        share.own =
            square(scale) * (p * p * (dp + 4 * unit * square(centred)) + ds * ds * omega) + lost;
        for (std::size_t i = 0; i < std::size(kProbedTiles); ++i)
            share.in_tile[i] =
                in_last_tile(key_places_[static_cast<std::size_t>(column.key)], kProbedTiles[i]);
        const std::size_t width = static_cast<std::size_t>(shape_.head_dim);
        add_pair(share, k, out_.query_grad, to_query_, at_ * width, squared_.data(), own_.data());
        for (std::size_t d = 0; d < width; ++d) prob_key_[d] += scale * p * k[d];
        for (std::size_t i = 0; i < std::size(kProbedTiles); ++i)
            share.in_tile[i] =
                in_last_tile(query_places_[static_cast<std::size_t>(t)], kProbedTiles[i]);
        share.own += square(scale * p) * delta_variance_;
        add_pair(share, q_, out_.key_grad, to_key_, key * width, key_squared_.data() + key * width,
                 out_.key_grad.rest.data() + key * width);
        terms_[key] += 1;
        if (column.kept) add_value(key, p * keep, omega, plain, t);
    }

    void add_pair(const PairShare& share, const double* x, RoundingNoise& noise,
                  const Directions& to, std::size_t first, double* squared, double* own) {
        double* const value = noise.value.data() + first;
        double* const scale = to.scale + first;
        double* const row_term = to.row_term + first;
        double* const other_row = to.other_row + first;
        const double factor = square(share.value);
        for (std::int64_t d = 0; d < shape_.head_dim; ++d) {
            const double x2 = x[d] * x[d];
            value[d] += share.value * x[d];
            squared[d] += factor * x2;
            own[d] += share.own * x2;
            scale[d] += share.scale * x[d];
            row_term[d] += share.row_term * x[d];
            other_row[d] += share.other_row * x[d];
        }
        for (std::size_t i = 0; i < std::size(kProbedTiles); ++i)
            if (share.in_tile[i] && to.tiles[i])
                for (std::int64_t d = 0; d < shape_.head_dim; ++d)
                    to.tiles[i][first + static_cast<std::size_t>(d)] += share.value * x[d];
    }

    void add_value(std::size_t key, double weight, double omega, double plain, std::int64_t t) {
        const std::size_t first = key * static_cast<std::size_t>(shape_.value_dim);
        const Directions& to = to_value_;
        double* const scale = to.scale + first;
        double* const value = out_.value_grad.value.data() + first;
        double* const squared = value_squared_.data() + first;
        double* const own = out_.value_grad.rest.data() + first;
        const double factor = weight * weight;
        const double lost = of_.rounds_prob ? of_.underflow / square(in_.forward.keep_prob) : 0;
        const double coefficient = factor * omega + lost;
        for (std::int64_t d = 0; d < shape_.value_dim; ++d) {
            const double x2 = dout_[d] * dout_[d];
            value[d] += weight * dout_[d];
            squared[d] += factor * x2;
            own[d] += coefficient * x2;
            scale[d] += weight * plain * dout_[d];
        }
        for (std::size_t i = 0; i < std::size(kProbedTiles); ++i)
            if (to.tiles[i] &&
                in_last_tile(query_places_[static_cast<std::size_t>(t)], kProbedTiles[i]))
                for (std::int64_t d = 0; d < shape_.value_dim; ++d)
                    to.tiles[i][first + static_cast<std::size_t>(d)] += weight * dout_[d];
    }

    /// delta's error is one number for the whole row.
    void finish_query(std::size_t columns) {
        const auto width = static_cast<std::size_t>(shape_.head_dim);
        for (std::size_t d = 0; d < width; ++d) {
            const std::size_t i = at_ * width + d;
            out_.query_grad.rest[i] = own_[d] + delta_variance_ * square(prob_key_[d]);
            finish(out_.query_grad, i, squared_[d], static_cast<double>(columns),
                   of_.rounds_score_grad);
        }
    }

    const AttentionShape& shape_;
    const AttentionGradInputs& in_;
    std::span<const SequencePlace> query_places_, key_places_;
    Dtype dtype_;
    RoundingVariance of_;
    std::vector<double> query_squares_, key_squares_, value_squares_, grad_squares_;
    std::vector<double> terms_;  ///< [T2,N2]: columns that refer to each key
    std::vector<double> key_squared_, value_squared_;
    AttentionGradNoise& out_;
    Directions to_query_, to_key_, to_value_;
    std::vector<double> delta_;  ///< [T1,N1]
    std::size_t at_ = 0;
    const double *q_ = nullptr, *dout_ = nullptr;
    double other_delta_ = 0, delta_variance_ = 0;
    std::vector<double> squared_, own_, prob_key_;
};

}  // namespace

AttentionGradNoise attention_grad_noise(const AttentionShape& shape,
                                        const ColumnLister& list_columns,
                                        const AttentionGradInputs& in,
                                        std::span<const SequencePlace> query_places,
                                        std::span<const SequencePlace> key_places, Dtype dtype,
                                        const RoundingClass& rounding) {
    require_attention_shape(shape, in.forward);
    const auto rows = static_cast<std::size_t>(shape.query_rows * shape.query_heads),
               keys = static_cast<std::size_t>(shape.kv_rows * shape.kv_heads),
               dim = static_cast<std::size_t>(shape.head_dim),
               value_dim = static_cast<std::size_t>(shape.value_dim);
    AttentionGradNoise out{RoundingNoise(rows * dim), RoundingNoise(keys * dim),
                           RoundingNoise(keys * value_dim)};
    for (RoundingNoise* one : {&out.query_grad, &out.key_grad})
        for (const Defect defect : {Defect::scale, Defect::row_term, Defect::other_row})
            one->probes.push_back({defect, 0, std::vector<double>(one->size())});
    out.value_grad.probes.push_back({Defect::scale, 0, std::vector<double>(out.value_grad.size())});
    add_tile_probes(out.query_grad, key_places);
    add_tile_probes(out.key_grad, query_places);
    add_tile_probes(out.value_grad, query_places);
    GradientNoise noise(shape, in, query_places, key_places, dtype, rounding, out);
    std::vector<KeyColumn> columns;
    std::size_t longest = 0;
    for (std::int64_t t = 0; t < shape.query_rows; ++t)
        for (std::int64_t n = 0; n < shape.query_heads; ++n) {
            columns.clear();
            if (!list_columns(t, n, columns) || columns.empty()) continue;
            longest = std::max(longest, columns.size());
            noise.row(t, n, columns);
        }
    noise.finish_keys();
    const double terms =
        static_cast<double>(std::max<std::int64_t>(shape.query_rows * shape.group(),
                                                   static_cast<std::int64_t>(longest))) +
        static_cast<double>(shape.head_dim + shape.value_dim);
    const RoundingVariance of(dtype, rounding);
    for (RoundingNoise* one : {&out.query_grad, &out.key_grad, &out.value_grad}) {
        one->probes.insert(one->probes.begin(), {Defect::gain, 0, one->value});
        one->coherent = of.coherent(terms);
    }
    return out;
}

}  // namespace attncheck::ref
