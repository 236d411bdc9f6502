// The error that a candidate may have: the rounding class it declares, and per-element
// expected values with their rigorous bound. Source: Higham, Accuracy and Stability of Numerical
// Algorithms, 2nd ed., section 3.1 (gamma_n).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ref/numbers/dtype.h"

namespace attncheck::ref {

/// The conversion of an fp32 number before it is multiplied.
enum class Factor : std::uint8_t {
    fp32,    ///< nothing
    bf16x3,  ///< the sum of three bf16 numbers
    bf16x2,  ///< of two
    tf32,    ///< rounded to 11 bits
    tf32_truncated,  ///< cut to 11 bits
    bf16     ///< rounded to 8 bits
};

/// Where the scale of the logits is multiplied.
enum class Scaling : std::uint8_t {
    scores,  ///< into <q, k>
    fp32,    ///< into q or k, or its square root into both, log2 e with it or not, in fp32
    half     ///< likewise, and the product is stored in the input type
};

/// How a candidate computes, as far as its error depends on it.
struct RoundingClass {
    double accumulator_roundoff = 0x1p-24;  ///< u of every partial sum: fp32 unless declared
    bool prob_rounded = true;               ///< P is rounded to the input type before its product
    bool prob_kept = false;                 ///< and dS is made of the rounded P
    bool score_grad_rounded = true;         ///< dS likewise
    bool flush_bf16_subnormals = false;     ///< bf16 subnormals read or written as zero
    bool row_sum_rounded = false;           ///< the row sum is that of the rounded P
    std::int64_t least_tile = 16;           ///< online softmax takes at least so many keys at once
    double exp_error = 4;                   ///< |exp^ - exp| / exp, in u of a single operation
    bool any_order = true;             ///< a sum may be formed in another order at every call
    bool lse_statistics = false;       ///< (max, sum) is any pair of the same max + log(sum)
    bool lse_split = false;            ///< parts are merged by their stored LSE
    bool parts_rounded = false;        ///< and their outputs are stored in the input type before they are merged
    bool scores_rounded = false;       ///< scores are stored in the input type
    bool delta_rounded = false;        ///< <dO, O> likewise
    bool group_rounded = false;        ///< dK and dV of each query head, before their sum
    Factor factor = Factor::fp32;      ///< of every product, where the storage type is fp32
    bool flush_subnormals = false;     ///< subnormals of any type, stored or not, may be zero
    bool hidden_times_zero = false;    ///< a hidden key is multiplied by 0, not skipped
    bool own_forward = false;  ///< a gradient does not use the forward that it is given
    /// The operations of a composition store their results in the input type: <q, k>, its product with the scale, what
    /// a softcap is made of, the bias added; P; dP; dS, its products with the slope of the softcap and with the scale.
    bool steps_rounded = false;
    double tanh_error = 0;  ///< |tanh^ - tanh| beyond 4 u |tanh|, in u
    Scaling scaling = Scaling::scores;
    /// What P and dS are rounded to where that is not the storage type: fp8, which no word says.
    std::optional<Dtype> cast = std::nullopt;

    bool operator==(const RoundingClass&) const = default;
};

/// What a kernel computes with: the type it stores, and how it rounds.
struct Precision {
    Dtype dtype;
    RoundingClass rounding;

    Precision(Dtype stored, RoundingClass rounds = {}) : dtype(stored), rounding(rounds) {}
};

/// Whether subnormal numbers of the stored type may be zero (ftz=).
bool flushes_subnormals(const Precision& precision);

/// "default", "fp32", or a list such as "acc=fp32 p=half ds=half ftz=bf16" (separators: blanks or
/// commas). acc: fp32, fp32-truncating (u = 2^-23), fp64, half (stored as -1: u of the storage type
/// is then used). p: half, kept, fp32. ds: half, fp32. sum: fp32, rounded (the row sum adds up the rounded P). ftz:
/// all, bf16, none. exp: error of exp in u. tile: keys that online softmax takes at least at once.
/// order: any, fixed. split: lse, half, none. stats: lse, max. scores, delta, group: half, fp32. in: fp32,
/// tf32, tf32-truncating, bf16, bf16x2, bf16x3. hidden: times_zero, skipped. forward: own, given.
/// scale: scores, fp32, half. steps: half, fp32. tanh: error of tanh in u.
/// Throws std::invalid_argument naming the word and what is allowed.
RoundingClass parse_rounding_class(std::string_view text);

/// The class as parse_rounding_class reads it: "acc=fp32 p=half ds=half", the others where they are
/// not the usual ones.
std::string print_rounding_class(const RoundingClass& rounding);

/// Relative error that an element of q or of k gets as the scale, its root, or either times log2 e is
/// multiplied into it: that of the factor and of the product in fp32, then of its type (scale=half).
double scaling_roundoff(const Precision& precision);

/// The weaker of two promises: what results of both together may be judged by.
RoundingClass weaker(const RoundingClass& a, const RoundingClass& b);

/// gamma_n = n u / (1 - n u); +infinity when n u >= 1. Holds for any summation order, blocking and
/// FMA use.
double gamma(double terms, double roundoff);

/// The non-finite results that are right although the exact value is finite.
enum class Overflow : std::uint8_t {
    none,             ///< the result must be finite
    signed_infinity,  ///< may exceed the output type: infinity (or max_finite) of the exact sign
    any               ///< a partial sum may leave the accumulator's range: any non-finite value
};

/// Expected values of one tensor, row-major over its logical shape. Where value is NaN or infinite
/// the exact result is non-finite and any non-finite result is right. bound is absolute; 0 demands
/// the value itself.
struct ExpectedTensor {
    std::vector<double> value, bound;
    std::vector<Overflow> overflow;

    explicit ExpectedTensor(std::size_t size = 0)
        : value(size), bound(size), overflow(size, Overflow::none) {}
    std::size_t size() const { return value.size(); }
};

/// Exponent of the lowest set bit of a number, i.e. the largest k for which it is a multiple of
/// 2^k; kNoSetBit for zero, 1024 for infinity. kNoSetBit plus any exponent of a storage type exceeds the
/// initial ProductSum::lowest_bit.
inline constexpr int kNoSetBit = 1 << 21;
int lowest_set_bit(double value);

/// A sum of products of stored numbers, accumulated by the oracle with what its bound needs.
///
///   exact = sum a_i b_i,   magnitude = sum |a_i b_i| over the finite products
///
/// If every product is a multiple of 2^lowest_bit and magnitude < 2^(lowest_bit + 24), every
/// partial sum in any order is exact in fp32, and the only rounding left is the one to the output
/// type.
struct ProductSum {
    double exact = 0, magnitude = 0;
    double flushed = 0;        ///< sum of |a_i b_i| with a subnormal; 0 if none is flushed
    int lowest_bit = 1 << 20;  ///< exponent of the lowest set bit of any non-zero product
    double terms = 0;
    double least = 0x1p-126;  ///< what is smaller is subnormal: 2^-14 of fp16

    void add(double a, double b);
};

/// Writes element `index` of `out`:
///
///   E     = gamma_n * magnitude + underflow terms + oracle error,   0 when exact as above
///   bound = E + half_ulp(|exact| + E), or 2 E + the distance to the nearest representable number
///   if that is less
///
/// Source: verification of NSA compress, E_y = fin(gamma_L A, y); no second-order factor is needed
/// because gamma_n bounds a sum exactly. Where infinity is right, so is the largest finite number
/// (bound >= |exact| - max_finite). No term or only zero products: bound 0. Infinite gamma: bound
/// infinite and Overflow::any, i.e. uncheckable. The output has the type of the precision.
void finish(const ProductSum& sum, const Precision& precision, ExpectedTensor& out,
            std::size_t index);

/// The last step of every bound: element `index` of `out` from an exact value and the error E of
/// the number that is narrowed to `output`.
///
///   bound = min(E + half_ulp(|exact| + E), 2 E + distance of the exact value to the nearest
///   representable number)
///
/// peak bounds every partial sum of finite terms: from peak_limit on, any non-finite result is
/// right, and anything where the exact value is infinite, for a partial sum may be the opposite
/// infinity. All other non-finite exact values get bound 0, and so does an infinite one whose peak
/// is infinite too: it is not known to be of finite terms. An infinite E, or a NaN, means that
/// nothing can be said: bound infinite, Overflow::any.
void finish(double exact, double error, double peak, double peak_limit, Dtype output,
            ExpectedTensor& out, std::size_t index);

/// Element `index` is not judged: any result is accepted.
void leave_unjudged(ExpectedTensor& out, std::size_t index);

/// Relative error of a number that enters a product, |x^ - x| / |x|, 0 for half types. The products
/// of small parts that are left out (bf16x2: low times low; bf16x3: middle times low) are in it.
double factor_roundoff(const Precision& precision);

/// True if element `index` is exact but for the rounding of the result: two runs give equal bits in
/// any order of their sums.
bool is_exact(const ExpectedTensor& expected, std::size_t index, Dtype output);

/// u of the partial sums (acc=half: that of the storage type).
double accumulator_roundoff(const Precision& precision);

}  // namespace attncheck::ref
