// The rounding errors of one attention row, shared by the bounds of the forward and of the
// backward.
//
// Source: verification notes on softmax attention, after Higham (2002), chapters 3 and 4. u =
// roundoff of a partial sum, u_e = roundoff of a single operation (fp32 at worst better), gamma_n =
// n u / (1 - n u).
#pragma once

#include <cfloat>
#include <cmath>
#include <span>

#include "ref/attention/dense_attention.h"

namespace attncheck::ref {

/// Largest and smallest magnitude and smallest set bit of a tensor.
struct TensorRange {
    double largest = 0;        ///< over finite elements
    double smallest = HUGE_VAL;  ///< of those that are not 0
    int lowest_bit = 1 << 20;  ///< every element is a multiple of 2^lowest_bit

    explicit TensorRange(std::span<const double> values);
};

/// The most tiles a kernel may cut the columns into that takes at least `least_tile` neighbouring
/// keys at a time. Masks and lists leave runs of neighbours; a run that starts off a multiple of
/// the tile may straddle one more.
double count_tiles(std::span<const KeyColumn> columns, std::int64_t least_tile);

/// A stale maximum lies at most so far below the true one (stats=lse): kernels that rescale late do
/// so from a factor of 2^8 on; this is 2^23.
inline constexpr double kLargestShift = 16;

/// Exponentials are declared to be worse than usual, exp(0) among them.
inline bool has_coarse_exp(const RoundingClass& rounding) {
    return rounding.exp_error > RoundingClass{}.exp_error;
}

struct AttentionRoundoff {
    Dtype cast_type;        ///< of P and dS, where they are cast
    double sum;             ///< u
    double unit;            ///< u_e, at least that of fp32
    double exp;             ///< relative error of exp itself
    bool exp_of_zero_is_one;  ///< not with exp=N beyond the usual: no probability is exact then
    std::int64_t least_tile;  ///< keys that a tile takes at least
    double prob = 0;        ///< relative error of the cast of P
    double kept_prob = 0;   ///< of the P that dS is made of (p=kept, steps=half)
    double kept_prob_eta = 0;  ///< and near zero
    double score_grad = 0;  ///< of the cast of dS
    double row_sum = 0;     ///< of the P that the row sum adds up
    double cast_min = 0;    ///< casts of smaller numbers lose up to cast_eta more
    double cast_eta = 0;
    double cast_max;    ///< casts of larger numbers may overflow
    double tiny = 0;     ///< what flushing a stored subnormal loses, 0 if none is
    double tiny_sum = 0; ///< and a product or partial sum
    double score = 0;    ///< of the cast of S
    double score_eta = 0;
    double base_2_score = 0;  ///< of a cast of S log2 e, which no S makes exact (scores=half)
    double delta = 0;    ///< of the cast of delta
    double group = 0;    ///< of the cast of dK and dV of one query head
    double step = 0;     ///< of a result that an operation of a composition stores (steps=half)
    double step_eta = 0; ///< and near zero
    double tanh = 0;     ///< of tanh, absolute (tanh=N)
    double storage_eta;  ///< what these two casts lose near zero
    double factor = 0;   ///< of a number that enters a product (in=), unless it fits
    double factor_floor = 0;     ///< and near zero
    double scaling = 0;          ///< of an element of q or k as it is scaled (scale=)
    double scaling_floor = 0;    ///< and near zero
    double scaling_largest = HUGE_VAL;  ///< and where they overflow
    bool lse_split = false;      ///< see RoundingClass
    double part = 0;             ///< of an output of a part that is stored (split=half)
    double part_eta = 0;         ///< and near zero
    bool lse_statistics = false;
    bool own_forward = false;
    double narrow = 0;  ///< storing a finer sum as fp32
    double sum_floor;   ///< what an operation of a partial sum loses near zero
    double largest;     ///< a partial sum beyond it overflows
    double oracle;      ///< factor for the roundings of binary64 itself

    explicit AttentionRoundoff(const Precision& precision);

    double tiles(std::span<const KeyColumn> columns) const {
        return count_tiles(columns, least_tile);
    }

    /// Online softmax multiplies every weight once per tile after its own by exp(m_old - m_new):
    /// exp, u of the product, 2 u for a maximum that changes its base.
    double rescale_error(double tile_count) const { return (tile_count - 1) * (exp + 3 * unit); }

    /// Relative error of e = exp(s - m) for a logit that is exact: 3 u for s - m and its factor
    /// log2 e, u for the rescaling, and exp itself.
    double exponent_error(double distance) const { return 4 * unit * std::fabs(distance) + exp; }

    /// Relative error of the elements of a tensor as factors: none if all of them fit.
    double factor_of(const TensorRange& of) const {
        return of.largest < std::ldexp(1, of.lowest_bit) / factor ? 0 : factor;
    }
    /// Of q or k as it was scaled (scale=): no product with a scale fits.
    double factor_of_scaled(const TensorRange& of) const { return scaling > 0 ? factor : factor_of(of); }
    /// Whether an element of a tensor may overflow as it is rounded for a product: bf16 ends below fp32.
    bool factor_overflows(const TensorRange& of) const { return factor > 0 && of.largest >= max_finite(Dtype::bf16); }
    /// Relative error of products of both.
    double product_of(const TensorRange& a, const TensorRange& b) const {
        return (1 + factor_of(a)) * (1 + factor_of(b)) - 1;
    }
    /// What a sum of |coefficients| with elements of a tensor loses near zero as these are read.
    /// `relative` is factor_of() it, or factor_of_scaled().
    double read_loss(const TensorRange& of, double coefficients, double relative) const {
        return ((of.smallest < tiny ? tiny : 0) + (relative > 0 ? factor_floor : 0)) * coefficients;
    }
    /// Sums with a stored LSE: a part's own is at most the larger of |s| and |LSE|, for it lies
    /// between its largest logit and LSE. Both are rounded, converted and come from a log:
    ///
    ///   3 u max(|s|, |LSE|) + 3 u |LSE| + 4 u (log n + 1) + exp
    ///
    /// Merged one by one they store an LSE as often, each from the last: merging_error() for every part but the first.
    ///
    /// Source: verification.md 4.3, split-KV.
    double split_error(double logit, double lse, double count, double parts) const {
        if (!lse_split) return 0;
        return 3 * unit * (std::fmax(std::fabs(logit), std::fabs(lse)) + std::fabs(lse)) +
               4 * unit * (std::log(count) + 1) + exp + merging_error(std::fmax(std::fabs(logit), std::fabs(lse)), parts);
    }
    double merging_error(double largest_lse, double parts) const {
        return lse_split ? std::fmax(parts - 1, 0) * unit * (2 * largest_lse + 8) : 0;
    }
    /// exp(s - m') with a maximum that is not the last one.
    double shift_error() const { return lse_statistics ? 4 * unit * kLargestShift : 0; }

    /// Absolute error of a cast beyond its relative one.
    double cast_loss(double magnitude) const { return magnitude < cast_min ? cast_eta : 0; }

    /// What <a, b> loses where bf16 subnormals are flushed: their products, then every product and
    /// partial sum.
    double flush_loss(const double* a, const double* b, std::int64_t count) const;
};

inline constexpr double kLargestFp32 = FLT_MAX;
inline constexpr double kSumFloor = 0x1p-149;  ///< fp32 operations near zero: one unit each
/// exp of less than -87 may be flushed: all of it is lost, at most this much (twice the least
/// normal number of fp32).
inline constexpr double kExpFloor = 0x1p-125;
/// An exp below this may be flushed: 2^26 above that floor, more than any error of its own.
inline constexpr double kSafeExp = 0x1p-100;
/// e^-200 = 2^-288 vanishes in fp32, whatever the errors of the two logits, and against any number
/// that matters.
inline constexpr double kVanishingGap = 200;
/// Logits so large that fp32 does not resolve them to this (|m| > 4e7): exp of what a rounding
/// leaves may overflow.
inline constexpr double kCoarse = 10;
inline constexpr double kLatticeSlack = 0x1p-20;
/// Sums of a few bits are exact in accumulators at least as fine as this.
inline constexpr double kLatticeRoundoff = 0x1p-23;

/// Error of a scaled, biased logit as computed.
///
///   |s^ - s| <= gamma_{D+2} |scale| sum |q k| + 4 u_e (|s| + |bias|) + u_S (|s| + |s - bias|)    D products, two factors
///   (scale, log2 e);
///                                                       a bias may be a product and is added
///                                                       before or after the scale
///
/// (gamma with 2 u_in more, and 2 u_scale where q and k are scaled, which loses eta (|q| + |k|) near zero; u_S of stored scores, before and behind the bias;
/// |s - bias| u_S more with steps=half, for <q, k> and its product with a scale that is no power of two)
///
/// or, where all partial sums of <q, k> are exact in fp32, 2 u_e |s|; and one unit of the fp32
/// subnormals for each of scale log2 e (times sum |q k|), the logit, and its maximum in either
/// base.
class ScoreError {
public:
    ScoreError(const AttentionShape& shape, const AttentionInputs<double>& in,
               const AttentionRoundoff& roundoff);

    /// magnitude = sum |q k|, without the scale.
    double operator()(double logit, double bias, double magnitude) const;

    /// Of c tanh(score / c) + bias: the error of the score times its slope, and that of tanh.
    ///
    ///   |s^ - s| <= E sech^2(max(0, |score| - E) / c) + 4 u |c tanh| + c e_tanh + 4 u (|s| + |bias|)
    ///
    /// With steps=half E has u_S |score| more, for the quotient, and tanh itself errs by u_S |tanh| more.
    /// Source: verification.md 4.3. A score that is infinite is exactly so, and its tanh is +-1.
    double capped(double score, double logit, double bias, double magnitude, double cap) const;

    /// |t^ - t| of t = 1 - tanh^2(score / c), the factor of its gradient: 2 |tanh| e + e^2 + 2 u with
    /// e the error of tanh; 4 u_S t more with steps=half.
    double slope_error(double score, double magnitude, double cap) const;

    /// True if <q, k> is exact in fp32, in any order.
    bool is_exact(double magnitude) const { return magnitude == 0 || magnitude < exact_below_; }

    /// True if the finite part of <q, k> or of the logit, to base e or 2, may leave the range of
    /// the accumulator. magnitude is that of the finite products.
    bool may_overflow(double magnitude) const {
        return inputs_overflow_ || may_overflow_by(magnitude, 0);
    }

    /// The same with a bias. `gap` = row maximum - logit: the logit of a column that weighs nothing
    /// may fall to -infinity, which leaves the row as it is.
    bool may_overflow(double magnitude, double bias, double gap) const {
        if (may_overflow(magnitude)) return true;
        if (!std::isfinite(bias)) return false;
        const bool weighs = bias > 0 || gap <= kVanishingGap + std::fabs(bias) * 0x1p-10;
        return weighs && may_overflow_by(magnitude, std::fabs(bias));
    }

private:
    /// The bias is added before or after the scale; log2 e < 1.45 may be part of it. What is added
    /// before has been stored, and only a sum of its own size takes it out of the range.
    bool may_overflow_by(double magnitude, double bias) const {
        const double product = magnitude * (1 + growth_), limit = largest_ * (1 - 0x1p-10);
        return product * std::fmax(1, scale_ * 1.45) >= limit ||
               (product * scale_ + bias) * 1.45 >= limit ||
               (bias > 0 && product >= largest_ * 0x1p-26 &&
                product * scale_ + bias >= limit * scale_);
    }

    /// Error of c tanh(score / c).
    double tanh_error(double score, double magnitude, double cap) const;

    double scale_, growth_, unit_, largest_, flush_ = 0, exact_below_ = 0;
    double cast_, cast_eta_, floor_, step_, step_eta_, tanh_;
    bool rounds_scale_ = false;  ///< <q, k> is stored, and so is its product with a scale that changes its digits
    bool inputs_overflow_ = false;  ///< as they are scaled
};

/// True if P of a row with exact logits is exact in any arithmetic: the largest logit is attained
/// exactly 2^k times and all others are lower by 200 or more, so that their exp vanishes.
bool is_lattice_row(std::span<const double> logits, double row_max);

/// True if every column is dropped and a logit is NaN: O is 0 or NaN, both are right (contract.md,
/// decision 12).
bool is_dropped_nan_row(std::span<const KeyColumn> columns, std::span<const double> logits);

/// 2^e with lowest_bit + 24 = e as a limit for exact fp32 sums; 0 when out of range.
double exact_sum_limit(int lowest_bit);

/// sum |a b|.
double magnitude_product(const double* a, const double* b, std::int64_t count);

/// The part of `magnitude` = magnitude_product(a, b, count) that comes from finite products; 0 if
/// it is NaN, for then <a, b> is NaN in any order.
double finite_magnitude(const double* a, const double* b, std::int64_t count, double magnitude);

void require_attention_shape(const AttentionShape& shape, const AttentionInputs<double>& in);
void require_elements(const char* tensor, std::size_t size, std::int64_t expected);
/// Each in [0, count).
void require_numbers(const char* what, std::span<const std::int64_t> numbers, std::int64_t count);

}  // namespace attncheck::ref
