// Importance scores of NsaCompressAttention: how much of the attention of a query falls on each
// selection block, with a bound on the error of any fp32 implementation.
//
//   P[t,n1,i]     softmax over the visible compressed keys; 0 where hidden
//   S[t,n1,j]   = sum_{m < M} sum_{n < N} P[t, n1, M (j+1) - m - n],   M = l'/d,  N = floor(l/d)
//   Pg[t,n2,j]  = sum_{g < G} S[t, n2 G + g, j]
//
// for j = 0 .. Sel_b - 1; indices outside 0 .. Cmp_b - 1 are skipped. The window of block j is one
// compressed key later than the keys that overlap it: that is how the operator is defined. Where
// topk_mask[s, j] != 0 the block is forced: it precedes every block that is not.
// Sources: nsa.md 6.4 (after arXiv 2502.11089, eq. 9), contract.md decisions 2, 7 and 12.
//
// Bound. A kernel computes, for each head, p^_i = p_i (1 + theta_i) / C with |theta_i| <= e^eps_i -
// 1 as for attention itself and one C for all i: the error of the row sum. Then
//
//   |Pg^_a - Pg^_b - (Pg_a - Pg_b)| <= sum_g [ (1 + c) (local_a + local_b) + c |S_a - S_b| ]
//
//   local_j = sum_i w_i p_i (theta_i + eta) + what exp flushes,   eta = the sums of the window and
//   the group        c >= |1/C - 1|
//
// so the error of a row sum over 14000 keys does not blur the order within a head. Granted: any
// order of summation, normalisation before or after the window, P = exp(s - lse) with a stored lse,
// online softmax. Not granted: P rounded to the input type (the scores are those of the fp32 P),
// and windows as differences of prefix sums.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ref/operators/nsa_compress_attention.h"

namespace attncheck::ref {

/// What a column gives to the windows it lies in, as far as any correct kernel must agree on it.
enum class ColumnKind : std::uint8_t {
    nothing,  ///< hidden
    vanishing,  ///< lower than the maximum by 200 or more: exp is 0 in fp32, not in binary64
    top,      ///< attains the maximum, and <q, k> is exact in fp32: all such P have the same bits
    other
};

/// The scores of one (query row, kv head). A copyable value; nothing refers to the inputs.
struct BlockScores {
    std::int64_t heads = 0;                 ///< G
    std::int64_t keys = 0;                  ///< Cmp_b
    std::vector<double> score, bound;       ///< [Sel_b], exact and |computed - exact|
    std::vector<std::uint8_t> forced;       ///< [Sel_b], non-zero: forced by topk_mask
    std::vector<double> head_score, local;  ///< [G, Sel_b], of each head
    std::vector<double> common;             ///< [G], c
    std::vector<ColumnKind> kinds;          ///< [G, Cmp_b]
    std::int64_t keys_per_select = 1, strides_per_key = 1;  ///< M, N
    /// False: a score is NaN or not decided by fp32 at all; then a list need only be in range and
    /// distinct (contract.md, decision 12).
    bool ordered = true;
    bool symmetric_ties = false;  ///< Grant::lattice

    std::int64_t blocks() const { return static_cast<std::int64_t>(score.size()); }

    /// Error of score[a] - score[b].
    double difference_bound(std::int64_t a, std::int64_t b) const;

    /// True if every correct kernel finds blocks a and b equal, so that their order is fixed: both
    /// forced, both without error and equal, or (Grant::lattice only) their windows hold, place by
    /// place, the same: nothing, or a P with the bits of every other one that attains the maximum.
    /// The last asks of a kernel that it sums every window in the same order. A P that vanishes in
    /// fp32 is nothing beside one that attains the maximum. Alone it is 0 in fp32 and more than 0 in
    /// binary64, and either order is right.
    bool tied(std::int64_t a, std::int64_t b) const;
};

/// Times P[M (j+1) - offset] is counted in block j, 0 <= offset <= M + N - 2.
std::int64_t window_weight(std::int64_t offset, std::int64_t keys_per_select,
                           std::int64_t strides_per_key);

/// Softmax statistics to take P from, [T1,N1] by row and head: P = exp(s - row_max) / row_sum.
/// Empty: those of the exact scores. Bounds hold for the latter only.
struct GivenStatistics {
    std::span<const double> row_max, row_sum;
};

/// Computes scores row by row. Shape, inputs and masks are kept by reference: they must outlive it.
/// Several threads may each use one of their own.
class ImportanceScores {
public:
    /// Throws std::invalid_argument when something does not fit the shape.
    ImportanceScores(const CompressAttentionShape& shape, const AttentionInputs<double>& in,
                     const CompressMasks& masks, const Precision& precision,
                     Grant grant = Grant::rounding, const GivenStatistics& given = {});
    ~ImportanceScores();

    const CompressAttentionShape& shape() const;
    const PackedQuery& query(std::int64_t t) const;

    /// No blocks for a row behind the last sequence.
    BlockScores operator()(std::int64_t t, std::int64_t kv_head);

private:
    class Work;
    std::unique_ptr<Work> work_;
};

}  // namespace attncheck::ref
