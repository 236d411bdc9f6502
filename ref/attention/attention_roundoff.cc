#include "ref/attention/attention_roundoff.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "ref/attention/shared_rows.h"

namespace attncheck::ref {
namespace {

auto elements(const double* a, std::int64_t count) {
    return Eigen::Map<const Eigen::ArrayXd>(a, count);
}

}  // namespace

double inner_product(const double* a, const double* b, std::int64_t count) {
    return (elements(a, count) * elements(b, count)).sum();
}

double magnitude_product(const double* a, const double* b, std::int64_t count) {
    return (elements(a, count) * elements(b, count)).abs().sum();
}

double finite_magnitude(const double* a, const double* b, std::int64_t count, double magnitude) {
    if (std::isfinite(magnitude)) return magnitude;
    if (std::isnan(magnitude)) return 0;
    const Eigen::ArrayXd products = (elements(a, count) * elements(b, count)).abs();
    return products.isFinite().select(products, 0.0).sum();
}

TensorRange::TensorRange(std::span<const double> values) {
    for (const double v : values) {
        if (!std::isfinite(v) || v == 0) continue;
        const double size = std::fabs(v);
        largest = std::max(largest, size);
        lowest_bit = std::min(lowest_bit, lowest_set_bit(v));
        bf16_subnormals = bf16_subnormals || size < 0x1p-126;
    }
}

AttentionRoundoff::AttentionRoundoff(Dtype dtype, const RoundingClass& rounding)
    : sum(ref::accumulator_roundoff(rounding, dtype)),
      unit(std::max(sum, 0x1p-24)),
      exp(rounding.exp_error * unit),
      least_tile(rounding.least_tile) {
    const bool flushes = dtype == Dtype::bf16 && rounding.flush_bf16_subnormals;
    if (rounding.prob_rounded) prob = unit_roundoff(dtype);
    if (rounding.score_grad_rounded) score_grad = unit_roundoff(dtype);
    if (rounding.row_sum_rounded) row_sum = unit_roundoff(dtype);
    if (rounding.prob_rounded || rounding.score_grad_rounded || rounding.row_sum_rounded) {
        cast_min = min_normal(dtype);
        cast_eta = flushes ? cast_min : half_ulp(dtype, 0);
    }
    const bool half = rounding.accumulator_roundoff < 0;
    cast_max = max_finite(dtype);
    largest = half ? cast_max : kLargestFp32;
    sum_floor = half ? 2 * half_ulp(dtype, 0) : kSumFloor;
    if (sum < unit) narrow = unit;
    if (flushes) tiny = 0x1p-126;
    oracle = sum < 0x1p-40 ? 4 : 1 + 0x1p-20;
}

double AttentionRoundoff::flush_loss(const double* a, const double* b, std::int64_t count) const {
    if (tiny == 0) return 0;
    double loss = 2 * tiny * static_cast<double>(count);
    for (std::int64_t i = 0; i < count; ++i)
        if (std::fmin(std::fabs(a[i]), std::fabs(b[i])) < tiny) loss += std::fabs(a[i] * b[i]);
    return loss;
}

double count_tiles(std::span<const KeyColumn> columns, std::int64_t least_tile) {
    std::int64_t tiles = 0;
    for (std::size_t begin = 0, end; begin < columns.size(); begin = end) {
        for (end = begin + 1; end < columns.size() && columns[end].key == columns[end - 1].key + 1;)
            ++end;
        const bool aligned = columns[begin].key % least_tile == 0;
        const auto run = static_cast<std::int64_t>(end - begin);
        tiles += (run + (aligned ? least_tile - 1 : 2 * least_tile - 2)) / least_tile;
    }
    return static_cast<double>(tiles);
}

double exact_sum_limit(int lowest_bit) {
    return lowest_bit >= -149 && lowest_bit < 900 ? std::ldexp(1.0, lowest_bit + 24) : 0;
}

ScoreError::ScoreError(const AttentionShape& shape, const AttentionInputs<double>& in,
                       const AttentionRoundoff& roundoff)
    : scale_(std::fabs(in.scale)),
      growth_(gamma(static_cast<double>(shape.head_dim) + 2, roundoff.sum) + 3 * roundoff.narrow),
      unit_(roundoff.unit),
      largest_(roundoff.largest) {
    const TensorRange q(in.query), k(in.key);
    if (roundoff.tiny > 0)
        flush_ = scale_ * roundoff.tiny * static_cast<double>(shape.head_dim) *
                 (2 + (q.bf16_subnormals ? k.largest : 0) + (k.bf16_subnormals ? q.largest : 0));
    else if (roundoff.sum <= 0x1p-24)
        exact_below_ = exact_sum_limit(q.lowest_bit + k.lowest_bit);
    flush_ += scale_ * static_cast<double>(shape.head_dim) * roundoff.sum_floor;
}

double ScoreError::operator()(double logit, double bias, double magnitude) const {
    const double with_bias =
        bias == 0 ? 0 : 4 * unit_ * (std::fabs(logit) + std::fabs(bias)) * (1 + growth_);
    const double floor = (magnitude + 4) * kSumFloor;
    if (magnitude < exact_below_) {
        if (logit == bias) return with_bias;
        return 2 * unit_ * (std::fabs(logit) + std::fabs(bias)) + with_bias + floor;
    }
    return magnitude == 0 ? with_bias : growth_ * scale_ * magnitude + with_bias + flush_ + floor;
}

bool is_lattice_row(std::span<const double> logits, double row_max) {
    std::size_t top = 0;
    for (const double s : logits) {
        if (s == row_max)
            ++top;
        else if (!(s <= row_max - kVanishingGap))
            return false;
    }
    return top > 0 && (top & (top - 1)) == 0;
}

bool is_dropped_nan_row(std::span<const KeyColumn> columns, std::span<const double> logits) {
    return std::none_of(columns.begin(), columns.end(), [](const auto& c) { return c.kept; }) &&
           std::any_of(logits.begin(), logits.end(), [](double s) { return std::isnan(s); });
}

void require_elements(const char* tensor, std::size_t size, std::int64_t expected) {
    if (static_cast<std::int64_t>(size) != expected)
        throw std::invalid_argument("dense attention: " + std::string(tensor) + " has " +
                                    std::to_string(size) + " elements, its shape " +
                                    std::to_string(expected));
}

void require_numbers(const char* what, std::span<const std::int64_t> numbers, std::int64_t count) {
    for (const std::int64_t number : numbers)
        if (number < 0 || number >= count)
            throw std::invalid_argument("dense attention: " + std::string(what) + " " +
                                        std::to_string(number) + " of " + std::to_string(count));
}

void require_attention_shape(const AttentionShape& s, const AttentionInputs<double>& in) {
    if (s.query_heads < 1 || s.kv_heads < 1 || s.query_heads % s.kv_heads != 0)
        throw std::invalid_argument("dense attention: query_heads " +
                                    std::to_string(s.query_heads) + ", kv_heads " +
                                    std::to_string(s.kv_heads));
    require_elements("query", in.query.size(), s.query_rows * s.query_heads * s.head_dim);
    require_elements("key", in.key.size(), s.kv_rows * s.kv_heads * s.head_dim);
    require_elements("value", in.value.size(), s.kv_rows * s.kv_heads * s.value_dim);
}

}  // namespace attncheck::ref
