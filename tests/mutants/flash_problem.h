// A validated call of FlashAttentionScore or its gradient.
//
// Legend: B batch, N1, N2 query and kv heads, G = N1/N2, S1, S2 (TND: T1, T2 packed) query and key
// rows, D head dim, Dv value dim, Dr rope dim. Sequence b has query_len S1_b and kv_len S2_b; in
// the other layouts all sequences have the same lengths. i, j positions of a query and a key in
// their sequence; delta = kv_len - query_len.
#pragma once

#include <cstdint>
#include <vector>

#include "attncheck/candidate.h"
#include "flash_view.h"

namespace attncheck::mutants {

struct FlashSequence {
    std::int64_t batch = 0;  ///< where the operands have it; 0 in TND
    std::int64_t first_query = 0, query_len = 0;
    std::int64_t first_key = 0, kv_len = 0;
    std::int64_t first_pair = 0;  ///< sum of N1 * query_len * kv_len over the earlier sequences
};

/// How the elements of pse are found.
enum class PseForm {
    none,
    plain,       ///< [1|B, N1, S1|1, S2]
    compressed,  ///< [1|B, N1, 1024, S2]: the last 1024 rows of a bias that depends on i - j
    keys,        ///< TND, N1 * sum(kv_len) elements
    pairs,       ///< TND, N1 * sum(query_len * kv_len) elements
    slopes       ///< [N1] or [B, N1], pse_type 2 and 3
};

struct FlashProblem {
    bool is_gradient = false;
    bool is_undefined = false;  ///< accepted by a defect only: what to compute is undefined
    FlashLayout layout = FlashLayout::bsh;
    std::int32_t dtype = 0;
    std::int64_t batches = 0, num_query_heads = 0, num_kv_heads = 0;
    std::int64_t head_dim = 0, value_dim = 0, rope_dim = 0;  ///< rope_dim 0: no rope
    std::vector<std::int64_t> query_lens, kv_lens;           ///< per sequence
    std::int64_t query_rows = 0, key_rows = 0;               ///< S1, S2; TND: T1, T2
    double scale = 1, keep_prob = 1;
    std::int64_t pre_tokens = 0, next_tokens = 0, sparse_mode = 0, pse_type = 1;
    std::int64_t inert = 0;  ///< the attribute without effect
    std::int64_t query_start = 0, key_start = 0;
    bool one_start_given = false;  ///< only one of the two start arrays
    std::int64_t lone_start = 0;   ///< its element, unused
    bool statistics_as_input = false;
    std::vector<std::int64_t> prefix;

    FlashView query, query_rope, key, key_rope, value, output;  ///< output: read by the gradient
    FlashView output_grad, dq, dq_rope, dk, dk_rope, dv;        ///< gradient only
    StatisticsView row_max, row_sum;                            ///< read by the gradient
    PseForm pse_form = PseForm::none;
    Grid pse, mask;
    bool has_mask = false, mask_is_total = false;  ///< total: [sum S1_b, sum S2_b]
    bool has_drop_mask = false;
    attncheck_tensor drop_mask{};

    std::int64_t group_size() const { return num_query_heads / num_kv_heads; }
    bool is_tnd() const { return layout == FlashLayout::tnd; }
};

/// What has to be decided before the rows are computed.
struct FlashPlan {
    std::vector<FlashSequence> sequences;
    std::int64_t queries_end = 0, keys_end = 0;  ///< TND: last cumulative lengths
    std::int64_t longest_query = 0, longest_kv = 0;
    std::int64_t band_sequence = -1;  ///< modes 7 and 8
    std::int64_t sparse_mode = 0, pre_tokens = 0, next_tokens = 0;
    float scale = 1, keep_factor = 1;
    std::vector<std::uint8_t> drop_bytes;
};

FlashPlan make_plan(const FlashProblem& problem);
/// A defect: one of its attributes becomes that of the first call whose other ones were these.
void take_first_plan(FlashProblem& problem);

/// ATTNCHECK_OK and `problem` filled in, or the status of the first constraint that is broken.
/// Order: absent arguments, layouts, ranks, dtypes, attributes, shapes, length arrays, optional
/// tensors (ropes, pse, drop mask, padding mask, mask and tokens), output shapes.
int accept(const attncheck_flash_attention_score_args* args, FlashProblem& problem);
int accept(const attncheck_flash_attention_score_grad_args* args, FlashProblem& problem);

}  // namespace attncheck::mutants
