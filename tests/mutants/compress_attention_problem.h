// A validated call of NsaCompressAttention.
//
// Legend: T1 packed query tokens, C packed compressed keys, N1, N2 query and kv heads, G = N1/N2,
// D head dim, Dv value dim. l, d block size and stride of the compression, l' block size of the
// selection, isM = l'/d, isN = floor(l/d), K blocks listed per query. s position of a query in its
// sequence, t its packed position. S_q, Cmp lengths of a sequence, Sel = ceil(Cmp/isM) its
// candidates.
#pragma once

#include <cstdint>
#include <vector>

#include "attncheck/candidate.h"
#include "storage.h"
#include "view.h"

namespace attncheck::mutants {

struct CompressAttentionProblem {
    bool is_undefined = false;  ///< accepted by a defect only: what to compute is undefined
    Half type = Half::fp16;
    std::int64_t query_tokens = 0, num_query_heads = 0, num_kv_heads = 0, head_dim = 0,
                 value_dim = 0;
    std::int64_t compress_block = 0, compress_stride = 0, select_block = 0, list_size = 0;
    std::int64_t sparse_mode = 0;
    float scale = 1.0f;
    bool has_mask = false, has_topk_mask = false;
    std::vector<std::int64_t> query_ends, key_ends;  ///< cumulative lengths
    View query, key, value, output;
    BasicView<float> row_max, row_sum;
    BasicView<std::int32_t> topk;
    BasicView<std::uint8_t> mask, topk_mask;

    std::int64_t group_size() const { return num_query_heads / num_kv_heads; }
    std::int64_t is_m() const { return select_block / compress_stride; }
    std::int64_t is_n() const { return compress_block / compress_stride; }
    std::int64_t candidates(std::int64_t compressed) const {
        return (compressed + is_m() - 1) / is_m();
    }
};

struct CompressedSequence {
    std::int64_t first_query = 0, query_len = 0;
    std::int64_t first_key = 0, num_keys = 0;
    std::int64_t first_block = 0;  ///< candidates of the sequences before it
};

/// What has to be decided before the rows are computed.
struct CompressAttentionPlan {
    std::vector<CompressedSequence> sequences;
    std::int64_t queries_end = 0, longest_keys = 0;
    float scale = 1.0f;
};

/// ATTNCHECK_OK and `problem` filled in, or the status of the first constraint that is broken.
/// Order: absent arguments, layout, ranks, dtypes, attributes, shape relations, length arrays,
/// masks, output shapes.
int accept(const attncheck_nsa_compress_attention_args* args, CompressAttentionProblem& problem);

/// Per query head over the compressed keys i of its sequence that the mask does not hide:
///
///   S[i] = scale * <q, k_i>,  P[i] = exp(S[i] - row_max) / row_sum,  O = sum_i P[i] v_i
///
/// and per kv head the list of compress_attention_scores.h. fp32, one rounding at the end. A row
/// without a visible key: output 0, statistics -FLT_MAX and +FLT_MAX, P = 0. Rows beyond the last
/// length: 0. Statistics lie per sequence in the order [N1, S_q] over the rows of [T1, N1].
void attend_compressed(const CompressAttentionProblem& problem, const CompressAttentionPlan& plan);

}  // namespace attncheck::mutants
