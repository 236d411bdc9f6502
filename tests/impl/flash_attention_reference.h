#ifndef ATTNCHECK_TESTS_IMPL_FLASH_ATTENTION_REFERENCE_H
#define ATTNCHECK_TESTS_IMPL_FLASH_ATTENTION_REFERENCE_H

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <vector>

#include "tests/impl/flash_attention_problem.h"

// flash_attention.md 3.1 and 3.6 in binary64, pair by pair. A pair that does not count is skipped.
namespace attncheck::impl {

// A sum and the sum of the absolute values of its terms, on which its error depends.
struct Expected {
    double value = 0.0, magnitude = 0.0;
    void add(double term) {
        value += term;
        magnitude += std::fabs(term);
    }
    void scale(double factor) {
        value *= factor;
        magnitude *= std::fabs(factor);
    }
};

// Numbers by (batch entry, head, position, channel).
template <class Number>
class Grid {
public:
    Grid(const FlashProblem& p, bool of_keys, std::int64_t dim) : dim_(dim) {
        heads_ = of_keys ? p.shape.kv_heads : p.shape.heads();
        std::int64_t rows = 0;
        for (std::int64_t b = 0; b < p.shape.batch(); ++b) {
            first_.push_back(rows);
            length_.push_back(of_keys ? p.keys(b) : p.queries(b));
            rows += heads_ * length_.back();
        }
        numbers_.resize(static_cast<std::size_t>(rows * dim));
    }
    std::int64_t dim() const { return dim_; }
    std::int64_t heads() const { return heads_; }
    std::int64_t length(std::int64_t b) const { return length_[static_cast<std::size_t>(b)]; }
    Number* row(std::int64_t b, std::int64_t head, std::int64_t i) {
        return numbers_.data() +
               (first_[static_cast<std::size_t>(b)] + head * length(b) + i) * dim_;
    }

private:
    std::int64_t dim_, heads_;
    std::vector<std::int64_t> first_, length_;
    std::vector<Number> numbers_;
};

template <class Visit>
void for_each_element(const FlashProblem& p, bool of_keys, std::int64_t heads, std::int64_t dim,
                      const Visit& visit) {
    for (std::int64_t b = 0; b < p.shape.batch(); ++b) {
        for (std::int64_t head = 0; head < heads; ++head) {
            for (std::int64_t i = 0; i < (of_keys ? p.keys(b) : p.queries(b)); ++i) {
                for (std::int64_t c = 0; c < dim; ++c) visit(b, head, i, c);
            }
        }
    }
}

class Reference {
public:
    // The gradient part reads statistics and O from the problem when `gradients`.
    Reference(FlashProblem& problem, bool gradients)
        : p(problem),
          d(p.shape.head_dim),
          r(p.shape.rope_dim),
          query(p, false, d + r),
          key(p, true, d + r),
          value(p, true, p.shape.value_dim),
          output_grad(p, false, p.shape.value_dim),
          given_output(p, false, p.shape.value_dim),
          output(p, false, p.shape.value_dim),
          row_max(p, false, 1),
          row_sum(p, false, 1),
          dq(p, false, d + r),
          dk(p, true, d + r),
          dv(p, true, p.shape.value_dim) {
        read(query, p.query, false, 0, d);
        read(query, p.query_rope, false, d, r);
        read(key, p.key, true, 0, d);
        read(key, p.key_rope, true, d, r);
        read(value, p.value, true, 0, value.dim());
        read(output_grad, p.output_grad, false, 0, output_grad.dim());
        if (gradients) read(given_output, p.output, false, 0, output.dim());
        for (std::int64_t b = 0; b < p.shape.batch(); ++b) {
            for (std::int64_t head = 0; head < p.shape.heads(); ++head) {
                for (std::int64_t i = 0; i < p.queries(b); ++i) {
                    gradients ? backward(b, head, i) : forward(b, head, i);
                }
            }
        }
    }

    FlashProblem& p;
    std::int64_t d, r;
    Grid<double> query, key, value, output_grad, given_output;
    Grid<Expected> output, row_max, row_sum, dq, dk, dv;
    double largest_logit = 0.0;  // of the sums of absolute products, and of |S - m|

private:
    void read(Grid<double>& grid, const AnyTensor& tensor, bool of_keys, std::int64_t from,
              std::int64_t dim) {
        for_each_element(p, of_keys, grid.heads(), dim, [&](auto b, auto head, auto i, auto c) {
            grid.row(b, head, i)[from + c] = tensor.get(p.element(of_keys, b, head, i, dim, c));
        });
    }

    double logit(std::int64_t b, std::int64_t head, std::int64_t i, std::int64_t j) {
        const double* q = query.row(b, head, i);
        const double* k = key.row(b, head / p.shape.group_size, j);
        Expected sum;
        for (std::int64_t c = 0; c < d + r; ++c) sum.add(q[c] * k[c]);
        const double scale = static_cast<float>(p.shape.scale), shift = p.bias_of(b, head, i, j);
        largest_logit = std::max(largest_logit, std::fabs(scale) * sum.magnitude +
                                                    std::fabs(shift) * (1 + std::fabs(scale)));
        if (p.shape.bias_shape == FlashShape::kNoBias) return sum.value * scale;
        return p.shape.bias_type == 1 ? (sum.value + shift) * scale : sum.value * scale + shift;
    }

    double kept_factor(std::int64_t b, std::int64_t head, std::int64_t i, std::int64_t j) const {
        if (!p.shape.has_dropout) return 1.0;
        return p.kept(b, head, i, j) ? 1.0 / static_cast<float>(p.shape.keep_prob) : 0.0;
    }

    void forward(std::int64_t b, std::int64_t head, std::int64_t i) {
        std::vector<std::pair<std::int64_t, double>> seen;
        double most = -kInf;
        for (std::int64_t j = 0; j < p.keys(b); ++j) {
            if (!p.visible(b, head, i, j)) continue;
            seen.emplace_back(j, logit(b, head, i, j));
            const double s = seen.back().second;
            most = std::isnan(s) || s > most ? s : most;
        }
        for (const auto& [j, s] : seen) most = std::isnan(s) ? s : most;
        Expected& sum = *row_sum.row(b, head, i);
        row_max.row(b, head, i)->add(seen.empty() ? -FLT_MAX : most);
        if (seen.empty()) sum.add(FLT_MAX);
        for (const auto& [j, s] : seen) {
            const double prob = std::exp(s - most), factor = kept_factor(b, head, i, j);
            if (std::isfinite(s)) largest_logit = std::max(largest_logit, std::fabs(s - most));
            sum.add(prob);
            if (factor == 0.0) continue;
            const double* v = value.row(b, head / p.shape.group_size, j);
            for (std::int64_t c = 0; c < value.dim(); ++c)
                output.row(b, head, i)[c].add(prob * factor * v[c]);
        }
        for (std::int64_t c = 0; !seen.empty() && c < value.dim(); ++c)
            output.row(b, head, i)[c].scale(1.0 / sum.value);
    }

    void backward(std::int64_t b, std::int64_t head, std::int64_t i) {
        const std::int64_t kv_head = head / p.shape.group_size;
        const double m = p.row_max.get(p.statistic(b, head, i, 0)),
                     l = p.row_sum.get(p.statistic(b, head, i, 0)),
                     scale = static_cast<float>(p.shape.scale);
        const double *grad = output_grad.row(b, head, i), *out = given_output.row(b, head, i),
                     *q = query.row(b, head, i);
        Expected delta;
        for (std::int64_t c = 0; c < value.dim(); ++c) delta.add(grad[c] * out[c]);
        for (std::int64_t j = 0; j < p.keys(b); ++j) {
            if (!p.visible(b, head, i, j)) continue;
            const double *k = key.row(b, kv_head, j), *v = value.row(b, kv_head, j),
                         s = logit(b, head, i, j), prob = std::exp(s - m) / l,
                         factor = kept_factor(b, head, i, j);
            if (std::isfinite(s)) largest_logit = std::max(largest_logit, std::fabs(s - m));
            Expected prob_grad;
            for (std::int64_t c = 0; factor != 0.0 && c < value.dim(); ++c) {
                prob_grad.add(factor * (grad[c] * v[c]));
                dv.row(b, kv_head, j)[c].add(prob * factor * grad[c]);
            }
            const double ds = scale * prob * (prob_grad.value - delta.value),
                         ds_magnitude =
                             std::fabs(scale * prob) * (prob_grad.magnitude + delta.magnitude);
            for (std::int64_t c = 0; c < d + r; ++c) {
                Expected &to_q = dq.row(b, head, i)[c], &to_k = dk.row(b, kv_head, j)[c];
                to_q.value += ds * k[c];
                to_q.magnitude += ds_magnitude * std::fabs(k[c]);
                to_k.value += ds * q[c];
                to_k.magnitude += ds_magnitude * std::fabs(q[c]);
            }
        }
    }
};

}  // namespace attncheck::impl

#endif  // ATTNCHECK_TESTS_IMPL_FLASH_ATTENTION_REFERENCE_H
