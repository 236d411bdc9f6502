// A validated call of NsaSelectedAttention or its gradient.
//
// Legend: T1, T2 packed query and key tokens, N1, N2 query and kv heads, G = N1/N2, D head dim, Dv
// value dim, B block size, K block count. s position of a query in its sequence, t its packed
// position. S_q, S_kv lengths of a sequence.
#pragma once

#include <cstdint>
#include <vector>

#include "attncheck/candidate.h"
#include "storage.h"
#include "view.h"

namespace attncheck::mutants {

struct SelectedSequence {
    std::int64_t first_query = 0, query_len = 0;
    std::int64_t first_key = 0, kv_len = 0;
};

struct SelectedProblem {
    bool is_gradient = false;
    bool is_undefined = false;  ///< accepted by a defect only: what to compute is undefined
    Half type = Half::fp16;
    std::int64_t query_tokens = 0, key_tokens = 0, num_query_heads = 0, num_kv_heads = 0;
    std::int64_t head_dim = 0, value_dim = 0, block_size = 0, block_count = 0, sparse_mode = 0;
    float scale = 1.0f;
    bool has_mask = false;
    std::vector<std::int64_t> query_ends, key_ends;  ///< cumulative lengths
    View query, key, value, output;                  ///< output: read by the gradient
    BasicView<float> row_max, row_sum;               ///< the same
    BasicView<std::int32_t> topk;
    BasicView<const std::uint8_t> mask;
    View output_grad, dq, dk, dv;  ///< gradient only

    std::int64_t group_size() const { return num_query_heads / num_kv_heads; }
    std::int64_t columns() const { return block_size * block_count; }
};

/// What has to be decided before the rows are computed.
struct SelectedPlan {
    std::vector<SelectedSequence> sequences;
    std::int64_t queries_end = 0, keys_end = 0;  ///< last cumulative lengths
    float scale = 1.0f;
    std::int64_t sparse_mode = 0;
};

SelectedPlan make_plan(const SelectedProblem& problem);

/// ATTNCHECK_OK and `problem` filled in, or the status of the first constraint that is broken.
/// Order: absent arguments, layout, ranks, dtypes, attributes, shape relations, length arrays,
/// mask, output shapes, list entries.
int accept(const attncheck_nsa_selected_attention_args* args, SelectedProblem& problem);
int accept(const attncheck_nsa_selected_attention_grad_args* args, SelectedProblem& problem);

}  // namespace attncheck::mutants
