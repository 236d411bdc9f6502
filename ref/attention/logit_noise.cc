#include "ref/attention/logit_noise.h"

#include <algorithm>
#include <cmath>

#include "ref/attention/probes.h"
#include "ref/attention/row_noise.h"

namespace attncheck::ref {

void LogitNoise::add_bias(const SharedRows<double>& rows, const Array& ds, const Array& own,
                          const Array& prob, const Eigen::ArrayXd& delta_variance,
                          const Eigen::ArrayXd& of_given) {
    for (std::int64_t i = 0; i < ds.rows(); ++i) {
        const auto columns = rows.columns_of(i);
        double shared = 0;  // sum of P over neighbours of the same element
        for (std::size_t j = 0; j < columns.size(); ++j) {
            const std::int64_t place = columns[j].place;
            if (place < 0) continue;
            const auto at = static_cast<std::int64_t>(j);
            shared += prob(i, at);
            const bool is_last = j + 1 == columns.size() || columns[j + 1].place != place;
            const auto element = static_cast<std::size_t>(place);
            add(element, ds(i, at),
                own(i, at) + (is_last ? square(shared) * delta_variance[i] : 0));
            if (is_last && of_given.size() > 0) given_[element] += square(shared) * of_given[i];
            if (is_last) shared = 0;
        }
    }
}

void LogitNoise::add(std::size_t element, double term, double variance) {
    value_[element] += term;
    own_[element] += variance;
    if (of_.rounds_score_grad) {  // what a cast loses near zero
        own_[element] += of_.underflow * square(keep_);
        alike_[element] += RoundingVariance::alike(term, of_.least * keep_);
    }
    squares_[element] += square(term);
    ++terms_[element];
}

RoundingNoise LogitNoise::finish() const {
    RoundingNoise noise(value_.size());
    noise.value = value_;
    double longest = 0;
    for (std::size_t e = 0; e < value_.size(); ++e) {
        if (terms_[e] == 0) continue;
        longest = std::max(longest, terms_[e]);
        noise.cast[e] = of_.cast * squares_[e];
        noise.rest[e] = own_[e] + square(alike_[e]) + of_.of_sum(terms_[e]) * squares_[e] +
                        (4 * square(of_.unit) + of_.exponential) * square(value_[e]) +
                        of_.stored(dtype_, value_[e]);
        noise.alike[e] = square(alike_[e]) + given_[e] + of_.stored_alike(dtype_, value_[e]) +
                         of_.exponential * squares_[e];
        noise.variance[e] = noise.rest[e] + (of_.rounds_score_grad ? noise.cast[e] : 0);
    }
    add_gain(noise);
    noise.coherent = of_.coherent(longest);
    return noise;
}

/// P of a sink is exp(sink - m) / l, and its dP is 0: dS = -P delta.
RoundingNoise sink_grad_noise(const AttentionBackward& backward, const Precision& precision) {
    const auto& [shape, list_columns, in] = backward;
    const RoundingVariance of(precision);
    const std::span<const double> sink = in.forward.sink;
    LogitNoise noise(sink.size(), Dtype::fp32, of, in.forward.keep_prob);
    std::vector<KeyColumn> columns;
    std::vector<double> sums(sink.size());
    for (std::int64_t t = 0; t < shape.query_rows; ++t)
        for (std::size_t h = 0; h < sink.size(); ++h) {
            columns.clear();
            if (!list_columns(t, static_cast<std::int64_t>(h), columns)) continue;
            const std::int64_t row = t * shape.query_heads + static_cast<std::int64_t>(h);
            const double m = in.row_max[static_cast<std::size_t>(row)],
                         l = in.row_sum[static_cast<std::size_t>(row)],
                         prob = std::exp(sink[h] - m) / l;
            if (prob == 0) continue;
            const auto products = (view(in.output_grad, shape.value_dim).row(row).array() *
                                   view(in.output, shape.value_dim).row(row).array())
                                      .eval();
            const double delta = products.sum(), term = -prob * delta;
            double delta_variance = of.of_sum(static_cast<double>(shape.value_dim)) *
                                    products.square().sum();
            // What a subnormal number loses may be all of it, in all rows and heads alike.
            const double flushed =
                flushed_products(view(in.output_grad, shape.value_dim).row(row),
                                 view(in.output, shape.value_dim).row(row), of.flush)
                    .sum();
            delta_variance += static_cast<double>(shape.query_rows * shape.query_heads) * flushed;
            if (of.delta > 0) delta_variance += of.delta * square(delta) + of.underflow;
            const double omega =
                square(of.unit) *
                    (8 * square(sink[h]) + 4 * square(m) + 4 * square(std::log(l)) + 20) +
                of.exponential + of.step;
            sums[h] += term;
            noise.add(h, term, square(term) * omega + square(prob) * delta_variance);
        }
    // steps=half: the sink is stored, which moves P of all rows alike.
    for (std::size_t h = 0; of.step > 0 && h < sink.size(); ++h)
        if (std::isfinite(sink[h])) noise.add_alike(h, std::fabs(sums[h]) * half_ulp(precision.dtype, std::fabs(sink[h])));
    RoundingNoise out = noise.finish();
    out.coherent += of.coherent_sink(sink);
    return out;
}

}  // namespace attncheck::ref
