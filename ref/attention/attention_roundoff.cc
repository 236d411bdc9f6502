#include "ref/attention/attention_roundoff.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>
#include <string>

#include "ref/attention/rounding_variance.h"
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
    // Zeros and numbers are mixed at random: a branch on them is predicted wrong. Magnitudes are in the order of their
    // bits, with infinity and NaN behind the finite ones and 0 - 1 behind all.
    constexpr std::uint64_t kInfinite = std::uint64_t{0x7ff} << 52;
    std::uint64_t most = 0, least = kInfinite - 1;
    int lowest = lowest_bit;
    for (const double v : values) {
        const std::uint64_t size = std::bit_cast<std::uint64_t>(v) & ~(std::uint64_t{1} << 63);
        const std::uint64_t finite = size < kInfinite ? size : 0;
        most = std::max(most, finite);
        least = std::min(least, finite - 1);
        lowest = std::min(lowest, lowest_set_bit(std::bit_cast<double>(finite)));
    }
    largest = std::bit_cast<double>(most);
    smallest = std::bit_cast<double>(least + 1);
    lowest_bit = lowest;
}

AttentionRoundoff::AttentionRoundoff(const Precision& precision)
    : cast_type(precision.rounding.cast.value_or(precision.dtype)),
      sum(accumulator_roundoff(precision)),
      unit(std::max(sum, 0x1p-24)),
      exp(precision.rounding.exp_error * unit),
      exp_of_zero_is_one(!has_coarse_exp(precision.rounding)),
      least_tile(precision.rounding.least_tile),
      storage_eta(half_ulp(precision.dtype, 0)),
      factor(factor_roundoff(precision)),
      scaling(scaling_roundoff(precision)),
      lse_split(precision.rounding.lse_split),
      lse_statistics(precision.rounding.lse_statistics),
      own_forward(precision.rounding.own_forward) {
    const auto& [dtype, rounding] = precision;
    const bool flushes = flushes_subnormals(precision);
    const double storage = unit_roundoff(dtype);
    if (flushes) storage_eta = min_normal(dtype);
    const bool casts_prob = rounding.prob_rounded || rounding.steps_rounded,
               casts_score_grad = rounding.score_grad_rounded || rounding.steps_rounded;
    if (casts_prob) prob = unit_roundoff(cast_type);
    if (casts_score_grad) score_grad = unit_roundoff(cast_type);
    if (rounding.scores_rounded || rounding.steps_rounded) score = storage, score_eta = storage_eta;
    if (rounding.scores_rounded) base_2_score = storage;
    if (rounding.steps_rounded) step = storage, step_eta = storage_eta;
    if (rounding.prob_kept) {
        kept_prob = unit_roundoff(cast_type);
        kept_prob_eta = flushes ? min_normal(cast_type) : half_ulp(cast_type, 0);
    }
    if (rounding.steps_rounded) kept_prob = std::max(kept_prob, step), kept_prob_eta = std::max(kept_prob_eta, step_eta);
    tanh = rounding.tanh_error * unit;
    if (rounding.delta_rounded) delta = storage;
    if (rounding.parts_rounded) part = storage, part_eta = storage_eta;
    if (rounding.group_rounded) group = storage;
    // P and dS are factors too. The last bits of a bf16 number are those of 2^-133.
    prob += factor, score_grad += factor;
    if (factor > 0) factor_floor = 0x1p-133;
    if (rounding.scaling != Scaling::scores) {
        const bool is_half = rounding.scaling == Scaling::half;
        scaling_floor = is_half ? storage_eta : flushes ? 0x1p-126 : kSumFloor;
        scaling_largest = is_half ? max_finite(dtype) : kLargestFp32;
    }
    if (rounding.row_sum_rounded) row_sum = unit_roundoff(dtype);
    if (casts_prob || casts_score_grad || rounding.row_sum_rounded) {
        cast_min = min_normal(cast_type);
        cast_eta = flushes ? cast_min : half_ulp(cast_type, 0);
    }
    if (factor > 0) {  // P and dS lose as much, as the tensors do (read_loss)
        cast_min = std::max(cast_min, factor_floor / factor);
        cast_eta = std::max(cast_eta, factor_floor);
    }
    const bool half = rounding.accumulator_roundoff < 0;
    cast_max = max_finite(cast_type);
    largest = half ? max_finite(dtype) : kLargestFp32;
    sum_floor = half ? 2 * half_ulp(dtype, 0) : kSumFloor;
    if (sum < unit) narrow = unit;
    if (flushes) tiny = min_normal(dtype), tiny_sum = half ? tiny : 0x1p-126;
    oracle = sum < 0x1p-40 ? 4 : 1 + 0x1p-20;
}

double AttentionRoundoff::flush_loss(const double* a, const double* b, std::int64_t count) const {
    if (tiny == 0) return 0;
    double loss = 2 * tiny_sum * static_cast<double>(count);
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
      largest_(roundoff.score > 0 ? std::min(roundoff.largest, roundoff.cast_max)
                                  : roundoff.largest),
      cast_(roundoff.score),
      cast_eta_(roundoff.score_eta * std::max(1.0, scale_)),
      floor_(kSumFloor + roundoff.tiny_sum),
      step_(roundoff.step),
      step_eta_(roundoff.step_eta),
      tanh_(roundoff.tanh) {
    const TensorRange q(in.query), k(in.key);
    const double factors = (1 + roundoff.factor_of_scaled(q)) * (1 + roundoff.factor_of_scaled(k)) *
                               square(1 + roundoff.scaling) - 1,
                 dim = static_cast<double>(shape.head_dim);
    const int lowest = q.lowest_bit + k.lowest_bit;
    growth_ = (1 + growth_) * (1 + factors) - 1;  // infinite stays so
    flush_ = scale_ * dim *
             (2 * roundoff.tiny_sum + roundoff.read_loss(q, k.largest, roundoff.factor_of_scaled(q)) +
              roundoff.read_loss(k, q.largest, roundoff.factor_of_scaled(k)) + roundoff.sum_floor);
    inputs_overflow_ = roundoff.factor_overflows(q) || roundoff.factor_overflows(k);
    if (roundoff.scaling_floor > 0 && scale_ > 0) {
        // q^ = q s lost eta: eta |k|; the root of s in both: eta sqrt(s) (|k| + |q|).
        flush_ += dim * roundoff.scaling_floor * std::max(1.0, std::sqrt(scale_)) *
                  (q.largest + k.largest + roundoff.scaling_floor);
        inputs_overflow_ = inputs_overflow_ || std::max(q.largest, k.largest) * std::max(1.0, 1.45 * scale_) >=
                                                   roundoff.scaling_largest;
    }
    int exponent = 0;
    const bool scale_has_one_bit = std::frexp(scale_, &exponent) == 0.5;
    rounds_scale_ = step_ > 0 && !scale_has_one_bit;
    const bool flushes =
        roundoff.tiny > 0 && (q.smallest < roundoff.tiny || k.smallest < roundoff.tiny ||
                              lowest < -126 || std::ldexp(1, lowest) < roundoff.score_eta);
    if (roundoff.sum <= 0x1p-24 && factors == 0 && !flushes) {
        exact_below_ = exact_sum_limit(lowest);
        // A score that is stored is scale <q, k>: no fewer bits than the scale has.
        if (cast_ > 0)
            exact_below_ = !scale_has_one_bit || std::ldexp(1, lowest) < 2 * roundoff.score_eta
                               ? 0
                               : std::min(exact_below_, std::ldexp(1, lowest) / cast_);
    }
}

double ScoreError::operator()(double logit, double bias, double magnitude) const {
    double with_bias =
        bias == 0 ? 0 : 4 * unit_ * (std::fabs(logit) + std::fabs(bias)) * (1 + growth_);
    if (cast_ > 0 && (magnitude > 0 || bias != 0))
        with_bias += (cast_ * (std::fabs(logit) + (bias == 0 ? 0 : std::fabs(logit - bias))) +
                      2 * cast_eta_) *
                     (1 + growth_);
    if (step_ > 0 && magnitude > 0)
        // The scale is multiplied into <q, k>, or into its sum with the bias (pse_type 1).
        with_bias += ((rounds_scale_ ? step_ * (std::fabs(logit - bias) + (bias == 0 ? 0 : std::fabs(logit))) : 0) + step_eta_) *
                     (1 + growth_);
    const double floor = (magnitude + 4) * floor_;
    if (magnitude < exact_below_) {
        if (logit == bias) return with_bias;
        return 2 * unit_ * (std::fabs(logit) + std::fabs(bias)) + with_bias + floor;
    }
    if (magnitude == 0) return with_bias;
    return (scale_ == 0 ? 0 : growth_ * scale_ * magnitude) + with_bias + flush_ + floor;
}

double ScoreError::tanh_error(double score, double magnitude, double cap) const {
    double error = std::isfinite(score) ? (*this)(score, 0, magnitude) : 0;
    if (score == 0 && error == 0) return 0;
    if (std::isfinite(score)) error += step_ * (std::fabs(score) + error) + step_eta_ * cap;
    const double nearest = std::max(0.0, std::fabs(score) - error) / cap;
    const double slope = 1 / square(std::cosh(nearest));
    // What the quotient and the product lose near zero.
    const double floor = (1 + cap) * (floor_ + step_eta_);
    return std::min(slope * error, 2 * cap) + (4 * unit_ + step_) * cap * std::tanh(std::fabs(score) / cap) +
           tanh_ * cap + floor;
}

double ScoreError::capped(double score, double logit, double bias, double magnitude,
                          double cap) const {
    double error = tanh_error(score, magnitude, cap);
    if (bias != 0) error += 4 * unit_ * (std::fabs(logit) + std::fabs(bias)) * (1 + growth_);
    if (cast_ > 0 && (magnitude > 0 || bias != 0))
        error += (cast_ * (std::fabs(logit) + std::fabs(logit - bias)) + 2 * cast_eta_) *
                 (1 + growth_);
    return error;
}

double ScoreError::slope_error(double score, double magnitude, double cap) const {
    const double t = std::tanh(std::fabs(score) / cap);
    const double error = tanh_error(score, magnitude, cap) / cap;
    return std::min(1.0, 2 * t * error + error * error) + 2 * unit_ + 4 * step_ * (1 - t * t);
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
