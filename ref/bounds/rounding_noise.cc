#include "ref/bounds/rounding_noise.h"

#include <algorithm>
#include <cmath>

#include "ref/bounds/rounding_variance.h"

namespace attncheck::ref {
namespace {

/// Adds factor * x to a row.
void add_row(double* to, double factor, const double* x, std::int64_t width) {
    for (std::int64_t d = 0; d < width; ++d) to[d] += factor * x[d];
}

/// The forward, row by row; scratch is kept between rows.
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
          query_squares_(row_squares(in.query, shape.head_dim)),
          key_squares_(row_squares(in.key, shape.head_dim)),
          out_(out) {}

    void row(std::int64_t t, std::int64_t n, std::span<const KeyColumn> columns) {
        at_ = static_cast<std::size_t>(t * shape_.query_heads + n);
        attend_row(shape_, in_, t, n, columns, row_);
        measure_scores(n, columns);
        statistics(columns);
        values(n, columns);
        if (find_probe(out_.output, Defect::last_tile)) tiles(n, columns);
    }

private:
    std::int64_t key_row(std::int64_t n, const KeyColumn& c) const {
        return c.key * shape_.kv_heads + n / shape_.group();
    }

    /// Variance of a logit as computed: D products with their sum, scale, log2 e, bias, the
    /// difference to the maximum, and exp. sum (q k)^2 is taken as 2 |q|^2 |k|^2 / D.
    void measure_scores(std::int64_t n, std::span<const KeyColumn> columns) {
        const auto dim = static_cast<double>(shape_.head_dim);
        const double dot = square(in_.scale) * of_.of_sum(dim) * 2 / dim * query_squares_[at_];
        const double unit = square(of_.unit), m = row_.row_max;
        largest_ = weighted_ = squares_ = 0;
        for (std::size_t j = 0; j < columns.size(); ++j) {
            const double omega =
                dot * key_squares_[static_cast<std::size_t>(key_row(n, columns[j]))] +
                unit * (4 * (square(row_.logits[j]) + square(m) + square(columns[j].bias)) + 8);
            largest_ = std::max(largest_, omega);
            weighted_ += square(row_.probs[j]) * omega;
            squares_ += square(row_.probs[j]);
        }
    }

    void statistics(std::span<const KeyColumn> columns) {
        const double l = row_.row_sum, count = static_cast<double>(columns.size());
        sum_variance_ = of_.of_positive_sum(count + 2 * count_tiles(columns, of_.least_tile)) +
                        square(of_.unit) * (4 * count_tiles(columns, of_.least_tile) + 16);
        RoundingNoise& max = out_.row_max;
        max.value[at_] = row_.row_max;
        max.variance[at_] = max.rest[at_] = largest_ + of_.stored(Dtype::fp32, row_.row_max);
        RoundingNoise& sum = out_.row_sum;
        sum.value[at_] = l;
        sum.rest[at_] =
            square(l) * (weighted_ + largest_ + sum_variance_) + of_.stored(Dtype::fp32, l);
        sum.cast[at_] = of_.cast * squares_ * square(l) + of_.underflow * count;
        sum.variance[at_] = sum.rest[at_] + (of_.rounds_sum ? sum.cast[at_] : 0);
    }

    const double* value_row(std::int64_t n, const KeyColumn& c) const {
        return in_.value.data() + key_row(n, c) * shape_.value_dim;
    }

    void values(std::int64_t n, std::span<const KeyColumn> columns) {
        const std::int64_t width = shape_.value_dim;
        const double keep = 1 / in_.keep_prob, count = static_cast<double>(columns.size());
        products_.assign(static_cast<std::size_t>(width), 0);
        plain_.assign(static_cast<std::size_t>(width), 0);
        for (std::size_t j = 0; j < columns.size(); ++j) {
            if (!columns[j].kept) continue;
            const double* v = value_row(n, columns[j]);
            const double weight = square(row_.probs[j] * keep);
            for (std::int64_t d = 0; d < width; ++d) {
                const double v2 = v[d] * v[d];
                products_[static_cast<std::size_t>(d)] += weight * v2;
                plain_[static_cast<std::size_t>(d)] += v2;
            }
        }
        RoundingNoise& noise = out_.output;
        Probe* const scale = find_probe(noise, Defect::scale);
        const std::size_t first = at_ * static_cast<std::size_t>(width);
        const double sums = of_.of_sum(count + 2 * count_tiles(columns, of_.least_tile));
        for (std::size_t d = 0; d < static_cast<std::size_t>(width); ++d) {
            const double o = row_.output[d], o2 = o * o;
            noise.value[first + d] = o;
            noise.rest[first + d] = 2 * largest_ * (products_[d] + o2 * squares_) +
                                    sums * products_[d] + o2 * sum_variance_ +
                                    of_.stored(dtype_, o);
            noise.cast[first + d] =
                of_.cast * (products_[d] + (of_.rounds_sum ? o2 * squares_ : 0)) +
                of_.underflow * keep * keep * plain_[d] / std::min(1.0, square(row_.row_sum));
            noise.variance[first + d] =
                noise.rest[first + d] +
                (of_.rounds_prob || of_.rounds_sum ? noise.cast[first + d] : 0);
        }
        if (scale) scale_direction(n, columns, scale->direction.data() + first);
    }

    /// d o / d ln scale = sum p (s - s_mean) y, s without its bias.
    void scale_direction(std::int64_t n, std::span<const KeyColumn> columns, double* to) const {
        double mean = 0;
        for (std::size_t j = 0; j < columns.size(); ++j)
            mean += row_.probs[j] * (row_.logits[j] - columns[j].bias);
        for (std::size_t j = 0; j < columns.size(); ++j)
            if (columns[j].kept)
                add_row(to,
                        row_.probs[j] / in_.keep_prob * (row_.logits[j] - columns[j].bias - mean),
                        value_row(n, columns[j]), shape_.value_dim);
    }

    /// What the keys of the last tile add to a row: sum p (y - o) over them.
    void tiles(std::int64_t n, std::span<const KeyColumn> columns) {
        const auto width = static_cast<std::size_t>(shape_.value_dim);
        for (const std::int64_t tile : kProbedTiles) {
            Probe* const probe = find_probe(out_.output, Defect::last_tile, tile);
            if (!probe) continue;
            double* const to = probe->direction.data() + at_ * width;
            double mass = 0;
            for (std::size_t j = 0; j < columns.size(); ++j) {
                if (!in_last_tile(key_places_[static_cast<std::size_t>(columns[j].key)], tile))
                    continue;
                mass += row_.probs[j];
                if (columns[j].kept)
                    add_row(to, row_.probs[j] / in_.keep_prob, value_row(n, columns[j]),
                            shape_.value_dim);
            }
            add_row(to, -mass, row_.output.data(), shape_.value_dim);
        }
    }

    const AttentionShape& shape_;
    const AttentionInputs<double>& in_;
    std::span<const SequencePlace> key_places_;
    Dtype dtype_;
    RoundingVariance of_;
    std::vector<double> query_squares_, key_squares_;
    AttentionNoise& out_;
    std::size_t at_ = 0;
    AttentionRow<double> row_;
    /// Of the row: largest variance of a logit, sum p^2 omega, sum p^2, relative variance of l.
    double largest_ = 0, weighted_ = 0, squares_ = 0, sum_variance_ = 0;
    std::vector<double> products_, plain_;  ///< sum (p y)^2, sum v^2
};

void add_gain(RoundingNoise& noise) {
    noise.probes.insert(noise.probes.begin(), {Defect::gain, 0, noise.value});
}

}  // namespace

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

Probe* find_probe(RoundingNoise& noise, Defect defect, std::int64_t tile) {
    for (Probe& probe : noise.probes)
        if (probe.defect == defect && (tile == 0 || probe.tile == tile)) return &probe;
    return nullptr;
}

std::vector<double> row_squares(std::span<const double> values, std::int64_t width) {
    std::vector<double> out;
    for (std::size_t first = 0; first < values.size(); first += static_cast<std::size_t>(width)) {
        double sum = 0;
        for (std::size_t d = 0; d < static_cast<std::size_t>(width); ++d)
            sum += square(values[first + d]);
        out.push_back(sum);
    }
    return out;
}

AttentionNoise attention_noise(const AttentionShape& shape, const ColumnLister& list_columns,
                               const AttentionInputs<double>& in,
                               std::span<const SequencePlace> key_places, Dtype dtype,
                               const RoundingClass& rounding) {
    require_attention_shape(shape, in);
    const auto rows = static_cast<std::size_t>(shape.query_rows * shape.query_heads);
    AttentionNoise out{RoundingNoise(rows * static_cast<std::size_t>(shape.value_dim)),
                       RoundingNoise(rows), RoundingNoise(rows)};
    out.output.probes.push_back({Defect::scale, 0, std::vector<double>(out.output.size())});
    add_tile_probes(out.output, key_places);
    ForwardNoise noise(shape, in, key_places, dtype, rounding, out);
    std::vector<KeyColumn> columns;
    std::size_t longest = 0;
    for (std::int64_t t = 0; t < shape.query_rows; ++t)
        for (std::int64_t n = 0; n < shape.query_heads; ++n) {
            columns.clear();
            if (!list_columns(t, n, columns) || columns.empty()) continue;
            longest = std::max(longest, columns.size());
            noise.row(t, n, columns);
        }
    const RoundingVariance of(dtype, rounding);
    for (RoundingNoise* one : {&out.output, &out.row_max, &out.row_sum}) {
        add_gain(*one);
        one->coherent =
            of.coherent(static_cast<double>(longest) + static_cast<double>(shape.head_dim));
    }
    return out;
}

namespace {

/// value += w x, squares += (w x)^2.
void add_products(double* value, double* squares, double w, const double* x, std::int64_t width) {
    for (std::int64_t d = 0; d < width; ++d) {
        const double product = w * x[d];
        value[d] += product;
        squares[d] += product * product;
    }
}

/// sum (a b)^2, four partial sums.
double square_product(const double* a, const double* b, std::int64_t count) {
    double part[4] = {};
    std::int64_t i = 0;
    for (; i + 4 <= count; i += 4)
        for (int k = 0; k < 4; ++k) part[k] += square(a[i + k] * b[i + k]);
    double sum = (part[0] + part[1]) + (part[2] + part[3]);
    for (; i < count; ++i) sum += square(a[i] * b[i]);
    return sum;
}

/// Finishes a tensor of sums of products: squares = sum t_k^2 of `terms` products, in value's
/// places.
void finish_sum(RoundingNoise& noise, std::size_t i, double squares, double terms, Dtype dtype,
                const RoundingVariance& of) {
    noise.rest[i] = terms == 0 || squares == 0
                        ? 0
                        : of.of_sum(terms) * squares + of.stored(dtype, noise.value[i]);
    noise.variance[i] = noise.rest[i];
}

}  // namespace

RoundingNoise nsa_compress_noise(const CompressShape& shape, Dtype dtype,
                                 std::span<const double> input, std::span<const double> weight,
                                 const RoundingClass& rounding) {
    const RoundingVariance of(dtype, rounding);
    const std::int64_t row = shape.heads * shape.head_dim;
    RoundingNoise noise(static_cast<std::size_t>(shape.total_blocks() * row));
    Probe last{Defect::last_weight, 0, std::vector<double>(noise.size())};
    std::vector<double> squares(static_cast<std::size_t>(row));
    for_each_block(shape, [&](std::int64_t output_row, std::int64_t first_token) {
        std::fill(squares.begin(), squares.end(), 0);
        double* const y = noise.value.data() + output_row * row;
        for (std::int64_t r = 0; r < shape.block; ++r)
            for (std::int64_t n = 0; n < shape.heads; ++n) {
                const double w = weight[static_cast<std::size_t>(r * shape.heads + n)];
                const double* const x = input.data() + (first_token + r) * row + n * shape.head_dim;
                add_products(y + n * shape.head_dim, squares.data() + n * shape.head_dim, w, x,
                             shape.head_dim);
                if (r + 1 == shape.block)
                    add_row(last.direction.data() + output_row * row + n * shape.head_dim, w, x,
                            shape.head_dim);
            }
        for (std::int64_t i = 0; i < row; ++i)
            finish_sum(noise, static_cast<std::size_t>(output_row * row + i),
                       squares[static_cast<std::size_t>(i)], static_cast<double>(shape.block),
                       dtype, of);
    });
    noise.probes.push_back(std::move(last));
    add_gain(noise);
    noise.coherent = of.coherent(static_cast<double>(shape.block));
    return noise;
}

CompressGradNoise nsa_compress_grad_noise(const CompressShape& shape, Dtype dtype,
                                          std::span<const double> output_grad,
                                          std::span<const double> input,
                                          std::span<const double> weight,
                                          const RoundingClass& rounding) {
    const RoundingVariance of(dtype, rounding);
    const std::int64_t dim = shape.head_dim, row = shape.heads * dim;
    CompressGradNoise out{RoundingNoise(input.size()), RoundingNoise(weight.size())};
    std::vector<double> input_squares(input.size()), weight_squares(weight.size());
    std::vector<double> windows(static_cast<std::size_t>(shape.total_tokens));
    Probe last{Defect::last_weight, 0, std::vector<double>(input.size())};
    for_each_block(shape, [&](std::int64_t output_row, std::int64_t first_token) {
        for (std::int64_t r = 0; r < shape.block; ++r) {
            const std::int64_t token = first_token + r;
            ++windows[static_cast<std::size_t>(token)];
            for (std::int64_t n = 0; n < shape.heads; ++n) {
                const std::int64_t at = token * row + n * dim;
                const auto w = static_cast<std::size_t>(r * shape.heads + n);
                const double* const dy = output_grad.data() + output_row * row + n * dim;
                const double* const x = input.data() + at;
                add_products(out.input_grad.value.data() + at, input_squares.data() + at, weight[w],
                             dy, dim);
                out.weight_grad.value[w] += inner_product(dy, x, dim);
                weight_squares[w] += square_product(dy, x, dim);
                if (r + 1 == shape.block) add_row(last.direction.data() + at, weight[w], dy, dim);
            }
        }
    });
    const double terms = static_cast<double>(shape.total_blocks() * shape.head_dim);
    for (std::size_t i = 0; i < input.size(); ++i)
        finish_sum(out.input_grad, i, input_squares[i], windows[i / static_cast<std::size_t>(row)],
                   dtype, of);
    for (std::size_t i = 0; i < weight.size(); ++i)
        finish_sum(out.weight_grad, i, weight_squares[i], terms, dtype, of);
    out.input_grad.probes.push_back(std::move(last));
    add_gain(out.input_grad);
    add_gain(out.weight_grad);
    out.input_grad.coherent = of.coherent(static_cast<double>(shape.block));
    out.weight_grad.coherent = of.coherent(terms);
    return out;
}

}  // namespace attncheck::ref
