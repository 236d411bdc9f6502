// Chosen rows and keys of dense attention (dense_attention.h), for problems whose whole reference
// would be quadratic: a row costs as much as its columns, a key as much as the rows that see it.
//
// The numbers and bounds are those of the whole reference, by the same code: ranges of the tensors
// (exact sums, flushed subnormals) are taken over all of them. Sums may add up in another order:
// rows that share their keys are multiplied together. One difference: a row of the gradient that
// the whole reference leaves unjudged because of one of its columns excuses here only the chosen
// keys it happens to.
#pragma once

#include "ref/attention/dense_attention.h"

namespace attncheck::ref {

/// Row k of each result is row rows[k] = t * N1 + n of expected_attention.
ExpectedAttention expected_attention_rows(const AttentionForward<double>& forward,
                                          const Precision& precision,
                                          std::span<const std::int64_t> rows);

/// Row k [D] is row rows[k] = t * N1 + n of dQ.
ExpectedTensor expected_query_grad_rows(const AttentionBackward& backward,
                                        const Precision& precision,
                                        std::span<const std::int64_t> rows);

struct ExpectedKeyGrad {
    ExpectedTensor key_grad, value_grad;  ///< [keys, D], [keys, Dv]
};

/// Row k is key keys[k] = j * N2 + n of dK and dV; each key once. `list_columns` must list the
/// columns of these keys and may leave out any other, which is what makes it fast.
ExpectedKeyGrad expected_key_grad_of(const AttentionBackward& backward, const Precision& precision,
                                     std::span<const std::int64_t> keys);

/// dbias [in.bias_elements] alone. `list_columns` must list the columns of the wanted elements and
/// may leave out any other, or renumber their places.
ExpectedTensor expected_bias_grad(const AttentionBackward& backward, const Precision& precision);

/// dsink [N1]. Of `list_columns` only counts whether a row belongs to a sequence: one that lists no
/// columns makes the cost linear in the rows.
ExpectedTensor expected_sink_grad(const AttentionBackward& backward, const Precision& precision,
                                  Grant grant = Grant::rounding);

}  // namespace attncheck::ref
