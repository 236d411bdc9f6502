// Predicted variance of the rounding errors of every output element, and the directions in which
// known defects move the outputs: what the second and third tier of comparison measure against
// (verification.md 4.6, 4.7).
//
// Model: every rounding is an independent error, uniform over +- half the spacing at its place.
//   cast of x to a type of roundoff u     variance (u x)^2 / 3 at most (significand 1)
//   result x stored                       half_ulp(x)^2 / 3, known exactly
//   sum of n products t_k of either sign  u^2 (1/3 + n/6) sum t_k^2 at most, any order
// Truncating sums err towards zero: n^2/12 more. All of it is an upper estimate for the declared
// class; a coarser tiling, fused products or wider sums only lower it. Valid on zero-mean data with
// distinct rows; elsewhere roundings share their sign. So do numbers that lie close together beside
// the grid they are rounded to: terms of a sum next to a much larger one, what underflows its type.
// No mean makes their errors smaller; they are kept apart (RoundingVariance::alike).
//
// Legend as in dense_attention.h; a direction r of a defect with coefficient b adds b r to the
// output.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ref/attention/dense_attention.h"

namespace attncheck::ref {

/// Where a row of a tensor stands: sequence -1 beyond the last one.
struct SequencePlace {
    std::int64_t sequence = -1, position = 0, length = 0;
};
std::vector<SequencePlace> sequence_places(std::span<const std::int64_t> lengths,
                                           std::int64_t total);
/// Of the rows of query and of key.
struct SequencePlaces {
    std::vector<SequencePlace> queries, keys;
};

/// Defects with a direction of their own.
enum class Defect {
    gain,        ///< r = the output itself: b is the relative error
    scale,       ///< r = d output / d ln scale inside the softmax
    row_term,    ///< dQ, dK: r = the part that delta contributes; b = -1: it is left out
    other_row,   ///< dQ, dK: r = what delta of the row before would change; b = 1: it is used
    last_tile,   ///< r = the part of the last tile of a sequence; b = -1: it is left out
    last_weight  ///< NsaCompress: r = the part of the last row of the weight
};

struct Probe {
    Defect defect = Defect::gain;
    std::int64_t tile = 0;          ///< of last_tile
    std::vector<double> direction;  ///< per element
};

/// Errors that rows of queries make once for all of their keys: row i adds a number of deviation 1 times
/// share[i,c] factor[i] to the key in places[c].
struct SharedErrors {
    std::vector<std::int64_t> places;  ///< [c]
    std::vector<float> share;          ///< [g,c]
    std::vector<double> factor;        ///< [g,width]
    bool close = false;  ///< roundings of numbers that lie close together, of one channel each
};

/// One tensor [rows, heads, width], row-major.
struct RoundingNoise {
    std::vector<double> value;     ///< exact
    std::vector<double> variance;  ///< of the error of the declared class
    /// Part of the variance that a cast of P or dS to the storage type has or would have, and the
    /// rest.
    std::vector<double> cast, rest;
    std::vector<double> alike;  ///< square of the part whose errors may share their sign
    /// Part of the variance that truncation takes from sums, which goes with their partial sums. Rows
    /// that add the same factors in the same order, such as all keys of dV, have partial sums that
    /// rise and fall together. With scale=half, of dQ what the keys as they are scaled take, which are the same for all
    /// rows, and of dK the queries. Of dK also what an error of delta takes, one number for the keys of its row, where a
    /// kernel stores delta in half or forms its own, and of dK and dV what one of an own row sum takes. Empty: nothing of these.
    std::vector<double> truncated;
    /// forward=own, dK and dV: of delta and of own row sums; of sums that lie close together (close_numbers.h). In
    /// `truncated` too. Those of scale=half are in common_errors.h.
    std::vector<SharedErrors> shared;
    std::vector<Probe> probes;
    /// What roundings that share their sign may do to the coefficient of a probe: exp, constants
    /// and reciprocals 16 u; truncating sums n u more.
    double coherent = 0;

    explicit RoundingNoise(std::size_t size = 0)
        : value(size), variance(size), cast(size), rest(size), alike(size) {}
    std::size_t size() const { return value.size(); }
};

struct AttentionNoise {
    RoundingNoise output, row_max, row_sum;  ///< [T1,N1,Dv], [T1,N1], [T1,N1]
    RoundingNoise lse;  ///< [T1,N1]: of row_max + log(row_sum), with its storing as fp32
};
/// `precision` as in expected_attention. Rows that see no key have variance 0.
AttentionNoise attention_noise(const AttentionForward<double>& forward,
                               const SequencePlaces& places, const Precision& precision);

/// Of chosen rows: row k of each is row rows[k] = t * N1 + n.
AttentionNoise attention_noise_of_rows(const AttentionForward<double>& forward,
                                       const SequencePlaces& places, const Precision& precision,
                                       std::span<const std::int64_t> rows);

struct AttentionGradNoise {
    RoundingNoise query_grad, key_grad, value_grad;
    RoundingNoise bias_grad, sink_grad;  ///< [bias_elements], [N1]
};
AttentionGradNoise attention_grad_noise(const AttentionBackward& backward,
                                        const SequencePlaces& places, const Precision& precision);

/// dQ of chosen rows, row k is row rows[k] = t * N1 + n.
RoundingNoise query_grad_noise_of_rows(const AttentionBackward& backward,
                                       const SequencePlaces& places, const Precision& precision,
                                       std::span<const std::int64_t> rows);

/// dbias [in.bias_elements] and dsink [N1] alone; columns as in expected_bias_grad and
/// expected_sink_grad.
RoundingNoise bias_grad_noise(const AttentionBackward& backward, const SequencePlaces& places,
                              const Precision& precision);
RoundingNoise sink_grad_noise(const AttentionBackward& backward, const Precision& precision);

struct KeyGradNoise {
    RoundingNoise key_grad, value_grad;
};
/// dK and dV of chosen keys, row k is key keys[k] = j * N2 + n; columns as in expected_key_grad_of.
KeyGradNoise key_grad_noise_of(const AttentionBackward& backward, const SequencePlaces& places,
                               const Precision& precision, std::span<const std::int64_t> keys);

}  // namespace attncheck::ref
