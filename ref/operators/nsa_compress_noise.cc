// Predicted rounding errors of NSA compression and its gradient, and the direction of its defect.
#include "ref/operators/nsa_compress_noise.h"

#include <algorithm>
#include <cmath>

#include "ref/attention/probes.h"
#include "ref/attention/rounding_variance.h"

namespace attncheck::ref {
namespace {

void add_row(double* to, double factor, const double* x, std::int64_t width) {
    for (std::int64_t d = 0; d < width; ++d) to[d] += factor * x[d];
}

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

/// sum (a b)^2 where a or b is smaller than `least`: what a kernel loses that takes them for zero.
double square_of_small(const double* a, const double* b, std::int64_t count, double least) {
    double sum = 0;
    for (std::int64_t i = 0; i < count; ++i)
        if (std::fabs(a[i]) < least || std::fabs(b[i]) < least) sum += square(a[i] * b[i]);
    return sum;
}

/// squares += (w x)^2 for such products.
void add_small(double* squares, double w, const double* x, std::int64_t width, double least) {
    for (std::int64_t d = 0; d < width; ++d)
        if (std::fabs(w) < least || std::fabs(x[d]) < least) squares[d] += square(w * x[d]);
}

/// Finishes a tensor of sums of products: squares = sum t_k^2 of `terms` products, in value's
/// places, lost = those that are flushed.
void finish_sum(RoundingNoise& noise, std::size_t i, double squares, double terms, Dtype dtype,
                const RoundingVariance& of, double lost) {
    noise.rest[i] = terms == 0 || squares == 0
                        ? 0
                        : of.of_products(terms) * squares + of.stored(dtype, noise.value[i]) + lost;
    noise.variance[i] = noise.rest[i];
}

}  // namespace

RoundingNoise nsa_compress_noise(const CompressShape& shape, const Precision& precision,
                                 std::span<const double> input, std::span<const double> weight) {
    const Dtype dtype = precision.dtype;
    const RoundingVariance of(precision);
    const std::int64_t row = shape.heads * shape.head_dim;
    RoundingNoise noise(static_cast<std::size_t>(shape.total_blocks() * row));
    Probe last{Defect::last_weight, 0, std::vector<double>(noise.size())};
    std::vector<double> squares(static_cast<std::size_t>(row)), lost(squares.size());
    for_each_block(shape, [&](std::int64_t output_row, std::int64_t first_token) {
        std::fill(squares.begin(), squares.end(), 0);
        std::fill(lost.begin(), lost.end(), 0);
        double* const y = noise.value.data() + output_row * row;
        for (std::int64_t r = 0; r < shape.block; ++r)
            for (std::int64_t n = 0; n < shape.heads; ++n) {
                const double w = weight[static_cast<std::size_t>(r * shape.heads + n)];
                const double* const x = input.data() + (first_token + r) * row + n * shape.head_dim;
                add_products(y + n * shape.head_dim, squares.data() + n * shape.head_dim, w, x,
                             shape.head_dim);
                if (of.flush > 0) add_small(lost.data() + n * shape.head_dim, w, x, shape.head_dim, of.flush);
                if (r + 1 == shape.block)
                    add_row(last.direction.data() + output_row * row + n * shape.head_dim, w, x,
                            shape.head_dim);
            }
        for (std::int64_t i = 0; i < row; ++i)
            finish_sum(noise, static_cast<std::size_t>(output_row * row + i),
                       squares[static_cast<std::size_t>(i)], static_cast<double>(shape.block),
                       dtype, of, lost[static_cast<std::size_t>(i)]);
    });
    noise.probes.push_back(std::move(last));
    add_gain(noise);
    noise.coherent = of.coherent(static_cast<double>(shape.block));
    return noise;
}

CompressGradNoise nsa_compress_grad_noise(const CompressShape& shape, const Precision& precision,
                                          std::span<const double> output_grad,
                                          std::span<const double> input,
                                          std::span<const double> weight) {
    const Dtype dtype = precision.dtype;
    const RoundingVariance of(precision);
    const std::int64_t dim = shape.head_dim, row = shape.heads * dim;
    CompressGradNoise out{RoundingNoise(input.size()), RoundingNoise(weight.size())};
    std::vector<double> input_squares(input.size()), weight_squares(weight.size()),
        input_lost(of.flush > 0 ? input.size() : 0), weight_lost(weight.size());
    std::vector<double> windows(static_cast<std::size_t>(shape.total_tokens));
    // Of every token and head: the significand of all its weights but zeros; 0: there is none, -1: they have several.
    std::vector<double> significands(static_cast<std::size_t>(shape.total_tokens * shape.heads));
    Probe last{Defect::last_weight, 0, std::vector<double>(input.size())};
    for_each_block(shape, [&](std::int64_t output_row, std::int64_t first_token) {
        for (std::int64_t r = 0; r < shape.block; ++r) {
            const std::int64_t token = first_token + r;
            ++windows[static_cast<std::size_t>(token)];
            for (std::int64_t n = 0; n < shape.heads; ++n) {
                const std::int64_t at = token * row + n * dim;
                const auto w = static_cast<std::size_t>(r * shape.heads + n);
                int exponent = 0;
                if (const double own = std::frexp(std::fabs(weight[w]), &exponent); own > 0) {
                    double& of_token = significands[static_cast<std::size_t>(token * shape.heads + n)];
                    of_token = of_token == 0 || of_token == own ? own : -1;
                }
                const double* const dy = output_grad.data() + output_row * row + n * dim;
                const double* const x = input.data() + at;
                add_products(out.input_grad.value.data() + at, input_squares.data() + at, weight[w],
                             dy, dim);
                out.weight_grad.value[w] += inner_product(dy, x, dim);
                weight_squares[w] += square_product(dy, x, dim);
                if (of.flush > 0) {
                    add_small(input_lost.data() + at, weight[w], dy, dim, of.flush);
                    weight_lost[w] += square_of_small(dy, x, dim, of.flush);
                }
                if (r + 1 == shape.block) add_row(last.direction.data() + at, weight[w], dy, dim);
            }
        }
    });
    const double terms = static_cast<double>(shape.total_blocks() * shape.head_dim);
    // A single product of two halves has as many errors as they have significands, the same ones
    // again and again: no sample of independent errors. Its bound is half a unit anyway. So has (a + b) w,
    // of a and b few numbers: of 255/256 a sum of 8 bits loses half a unit of its end, in all tokens of a lane.
    for (std::size_t i = 0; i < input.size(); ++i)
        if (const double terms_of_token = windows[i / static_cast<std::size_t>(row)];
            terms_of_token > 1 && significands[i / static_cast<std::size_t>(dim)] < 0)
            finish_sum(out.input_grad, i, input_squares[i], terms_of_token, dtype, of, input_lost.empty() ? 0 : input_lost[i]);
    for (std::size_t i = 0; i < weight.size(); ++i)
        finish_sum(out.weight_grad, i, weight_squares[i], terms, dtype, of, weight_lost[i]);
    out.input_grad.probes.push_back(std::move(last));
    add_gain(out.input_grad);
    add_gain(out.weight_grad);
    // Of two products there are 4^p pairs of significands of p bits, 2^-p = u: their mean error is
    // not zero but of deviation u / sqrt(3) * u; six of them.
    const double u = unit_roundoff(dtype);
    out.input_grad.coherent = of.coherent(static_cast<double>(shape.block)) + 6 * u * u / std::sqrt(3);
    out.weight_grad.coherent = of.coherent(terms);
    return out;
}

}  // namespace attncheck::ref
