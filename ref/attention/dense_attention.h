// Dense softmax attention in binary64: the oracle behind every attention operator. An operator is
// an index map: which key columns a query row sees, as often as they are listed.
//
//   S_ij = c tanh(scale <q_i, k_j> / c) + bias_ij      c = softcap; without one scale <q_i, k_j> + bias_ij
//   P_i  = row softmax of S_i over its columns; a sink is one more column, of a logit without a value
//   O_i  = sum_j P_ij g_ij v_j                g_ij = 1, or with dropout 1/keep_prob (kept) and 0
//   (dropped)
//
//   delta_i = <dO_i, O_i>    dP_ij = g_ij <dO_i, v_j>    dS_ij = P_ij (dP_ij - delta_i)
//   dQ_i = scale sum_j dS'_ij k_j    dK_j = scale sum_i dS'_ij q_i    dV_j = sum_i P_ij g_ij dO_i
//   dS'_ij = dS_ij (1 - tanh^2(scale <q_i, k_j> / c))    dbias = dS    dsink = -sum_i P_i,sink delta_i
//
// Vaswani et al. 2017, eq. (1); Dao 2023 (FlashAttention-2), Algorithm 2. The backward takes row
// maximum, row sum and O as they are given and recomputes none of them (contract.md, decision 3).
//
// Legend: T1 query rows, T2 key rows, N1 query heads, N2 key/value heads, D head dim, Dv value dim;
// all tensors are row-major [rows, heads, dim]; query head n uses key/value head n / (N1 / N2).
#pragma once

#include <cfloat>
#include <cmath>
#include <complex>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "ref/bounds/error_bound.h"

namespace attncheck::ref {

struct AttentionShape {
    std::int64_t query_rows = 0, kv_rows = 0, query_heads = 1, kv_heads = 1;
    std::int64_t head_dim = 1, value_dim = 1;

    std::int64_t group() const { return query_heads / kv_heads; }
};

/// One visible key of a query row. Listed c times it counts c times.
struct KeyColumn {
    std::int64_t key = 0;  ///< row of K and V
    double bias = 0;       ///< added to the scaled logit
    bool kept = true;      ///< false: dropped by dropout; its V and dP are hidden, its logit is not
    std::int64_t place = -1;  ///< of the bias in its tensor: there dS adds to its gradient; -1: none
};

/// Appends the visible columns of (query row, query head), in any order; hidden keys are left out.
/// Returns false when the row belongs to no sequence: all its outputs are then 0, its statistics
/// too.
using ColumnLister = std::function<bool(std::int64_t query_row, std::int64_t query_head,
                                        std::vector<KeyColumn>& columns)>;

/// Statistics of a row that sees no key (contract.md, decision 2); its output is 0.
inline constexpr double kEmptyRowMax = -static_cast<double>(FLT_MAX);
inline constexpr double kEmptyRowSum = static_cast<double>(FLT_MAX);

/// sum a_i b_i.
double inner_product(const double* a, const double* b, std::int64_t count);

/// Everything the forward knows of one (query row, query head).
template <class Scalar>
struct AttentionRow {
    std::vector<Scalar> logits, probs;  ///< per column
    std::vector<Scalar> output;         ///< [Dv]
    Scalar row_max{}, row_sum{};
};

template <class Scalar>
struct AttentionInputs {
    std::span<const Scalar> query, key, value;  ///< [T1,N1,D], [T2,N2,D], [T2,N2,Dv]
    double scale = 1;                           ///< already narrowed to fp32
    double keep_prob = 1;
    double softcap = 0;                 ///< narrowed likewise; 0: none
    std::span<const Scalar> sink = {};  ///< [N1]: a logit without a value; -infinity or empty: none
    std::span<const Scalar> bias = {};  ///< by KeyColumn::place; empty: KeyColumn::bias counts
};

/// A forward as a whole: what every function below takes. Refers to tensors and columns.
template <class Scalar>
struct AttentionForward {
    AttentionShape shape;
    const ColumnLister& list_columns;
    AttentionInputs<Scalar> in;
};

/// One row of the forward over double, std::complex<double> or Dual, so that it can be
/// differentiated exactly. NaN and infinity take their IEEE way; a dropped key's V is not touched.
template <class Scalar>
void attend_row(const AttentionShape& shape, const AttentionInputs<Scalar>& in,
                std::int64_t query_row, std::int64_t query_head, std::span<const KeyColumn> columns,
                AttentionRow<Scalar>& row);

/// The whole forward: output [T1,N1,Dv], row_max and row_sum [T1,N1] (either may be empty).
template <class Scalar>
void dense_attention(const AttentionForward<Scalar>& forward, std::span<Scalar> output,
                     std::span<Scalar> row_max = {}, std::span<Scalar> row_sum = {});

/// What the bound grants.
enum class Grant {
    rounding,  ///< the rounding errors of the declared class
    lattice    ///< rows on which every intermediate number is exact get none but 2^-20 + 3 u (|m| +
               ///< |log l|) + gamma_n of the sums of absolute terms (for exp and log near exact
               ///< arguments); all other rows as with `rounding`
};

struct ExpectedAttention {
    ExpectedTensor output;            ///< [T1,N1,Dv]
    ExpectedTensor row_max, row_sum;  ///< [T1,N1], to be stored as fp32
    ExpectedTensor
        lse;  ///< [T1,N1]: row_max + log(row_sum), not stored: bound for the pair of both
    ExpectedTensor stored_lse;  ///< [T1,N1]: the LSE of a kernel that stores it as fp32
};

/// Expected outputs with their bounds (verification: softmax attention forward, E_O). The type of
/// the precision is that of query, key, value and output. The score error multiplies v - o, and where
/// the scores are too coarse to say anything the output still lies in the hull of the visible
/// values. Rows whose visible logits are all -infinity, rows whose scores (with their biases, and
/// the finite parts of infinite ones) may leave the range of fp32 or exceed 4e7, and NaN rows whose
/// keys are all dropped are not judged (infinite bound, Overflow::any). A row without columns and
/// without a sink has stored_lse = -infinity. Throws
/// std::invalid_argument naming the tensor whose size does not fit the shape.
ExpectedAttention expected_attention(const AttentionForward<double>& forward,
                                     const Precision& precision, Grant grant = Grant::rounding);

struct AttentionGradInputs {
    AttentionInputs<double> forward;
    std::span<const double> output_grad, output;  ///< [T1,N1,Dv]; output as given, already rounded
    std::span<const double> row_max, row_sum;     ///< [T1,N1] as given
    /// Bound on |output - exact output| [T1,N1,Dv] when the expectation is to be the gradient of
    /// the exact forward rather than the formula on the given numbers; empty: the given numbers are
    /// exact.
    std::span<const double> output_error = {};
    double prob_error = 0;  ///< likewise: relative error of P that the given statistics cause
    /// [T1,N1]: relative error of P of a kernel that is not given the statistics and forms its own;
    /// empty: none. A row whose error is infinite is not judged.
    std::span<const double> statistics_error = {};
    std::size_t bias_elements = 0;    ///< KeyColumn::place < bias_elements
    Dtype bias_dtype = Dtype::fp32;   ///< of dbias
};

/// A gradient as a whole, likewise.
struct AttentionBackward {
    AttentionShape shape;
    const ColumnLister& list_columns;
    AttentionGradInputs in;

    AttentionForward<double> forward() const { return {shape, list_columns, in.forward}; }
    /// For gradients to which a sink adds nothing.
    AttentionBackward without_sink() const {
        AttentionBackward plain = *this;
        plain.in.forward.sink = {};
        return plain;
    }
};

struct AttentionGrad {
    std::vector<double> query, key, value;  ///< [T1,N1,D], [T2,N2,D], [T2,N2,Dv]
};

/// The gradients without bounds, at a fraction of their cost. Throws std::invalid_argument for a softcap.
AttentionGrad dense_attention_grad(const AttentionBackward& backward);

struct ExpectedAttentionGrad {
    ExpectedTensor query_grad, key_grad, value_grad;  ///< [T1,N1,D], [T2,N2,D], [T2,N2,Dv]
    ExpectedTensor bias_grad;  ///< [bias_elements], of bias_dtype
    ExpectedTensor sink_grad;  ///< [N1] fp32; of no sinks: none
};

/// Expected gradients with their bounds (verification: attention backward, E_dQ, E_dK, E_dV). Keys
/// that no row sees and rows without a key get 0 with bound 0. Runs on several threads when the
/// problem is large; the result does not depend on their number.
ExpectedAttentionGrad expected_attention_grad(const AttentionBackward& backward,
                                              const Precision& precision,
                                              Grant grant = Grant::rounding);

}  // namespace attncheck::ref
