// NsaCompressAttention: accept, plan, compute.
#include <algorithm>
#include <array>
#include <cmath>

#include "active_mutant.h"
#include "compress_attention_problem.h"
#include "first_plan.h"
#include "module_defects.h"

namespace attncheck::mutants {

namespace {

CompressAttentionPlan fresh_plan(const CompressAttentionProblem& problem) {
    CompressAttentionPlan plan;
    plan.scale = on<"NCA-x34">() ? std::fabs(problem.scale) : problem.scale;
    std::int64_t keys_end = 0, blocks_end = 0;
    for (std::size_t b = 0; b < problem.query_ends.size(); ++b) {
        CompressedSequence sequence;
        sequence.first_query = plan.queries_end;
        sequence.query_len = problem.query_ends[b] - plan.queries_end;
        sequence.first_key = on<"NCA-x27">() ? plan.queries_end : keys_end;
        sequence.num_keys = problem.key_ends[b] - keys_end;
        sequence.first_block = blocks_end;
        plan.queries_end = problem.query_ends[b];
        keys_end = problem.key_ends[b];
        blocks_end += problem.candidates(sequence.num_keys);
        plan.longest_keys = std::max(plan.longest_keys, sequence.num_keys);
        plan.sequences.push_back(sequence);
    }
    return plan;
}

/// The plan of the first call with these shapes.
CompressAttentionPlan first_plan(const CompressAttentionProblem& problem) {
    using PlanKey = std::array<std::int64_t, 9>;
    const PlanKey key{problem.query_tokens, problem.num_query_heads, problem.head_dim,
                      problem.key.shape[0], problem.num_kv_heads,    problem.value_dim,
                      problem.is_m(),       problem.is_n(),          problem.list_size};
    return first_with(key, [&] { return fresh_plan(problem); });
}

/// The number becomes that of the first call that had these shapes and these other attributes.
void take_first(CompressAttentionProblem& p, std::int64_t& taken) {
    std::vector<double> key{p.scale};
    for (const std::int64_t number :
         {p.query_tokens, p.num_query_heads, p.head_dim, p.key.shape[0], p.num_kv_heads, p.value_dim,
          p.list_size, p.sparse_mode})
        key.push_back(static_cast<double>(number));
    for (const std::int64_t* number : {&p.compress_block, &p.compress_stride, &p.select_block})
        key.push_back(number == &taken ? -1 : static_cast<double>(*number));
    taken = first_with(key, [&] { return taken; });
}

/// No block is forced where the first call with all other arguments had no mask of forced ones.
void forget_forced_blocks(CompressAttentionProblem& p) {
    std::vector<double> key{p.scale, p.has_mask ? 1.0 : 0.0};
    for (const auto* ends : {&p.query_ends, &p.key_ends}) {
        key.push_back(static_cast<double>(ends->size()));
        key.insert(key.end(), ends->begin(), ends->end());
    }
    for (const std::int64_t number :
         {p.query_tokens, p.num_query_heads, p.head_dim, p.key.shape[0], p.num_kv_heads, p.value_dim, p.list_size,
          p.sparse_mode, p.compress_block, p.compress_stride, p.select_block})
        key.push_back(static_cast<double>(number));
    const bool had_forced_blocks = first_with(key, [&] { return p.has_topk_mask; });
    p.has_topk_mask = p.has_topk_mask && had_forced_blocks;
}

CompressAttentionPlan make_plan(const CompressAttentionProblem& problem) {
    if (on<"NCA-ALL-09a">()) {
        CompressAttentionPlan plan = first_plan(problem);
        plan.scale = problem.scale;
        return plan;
    }
    CompressAttentionPlan plan = fresh_plan(problem);
    if (on<"NCA-ALL-09b">()) plan.scale = first_plan(problem).scale;
    return plan;
}

/// Defects in how the operands are addressed.
void distort_views(CompressAttentionProblem& problem) {
    if (on<"NCA-ALL-02">()) problem.value.forget_strides();
    if (on<"NCA-x301">()) problem.query.is_narrow = true;
    if (on<"NCA-x302">()) problem.key.expect_positive_channels();
    if (on<"NCA-ALL-03">()) {
        const auto address = reinterpret_cast<std::uintptr_t>(problem.query.data);
        problem.query.data -= address % 64 / sizeof(std::uint16_t);
    }
    if (on<"NCA-ALL-05">() && problem.num_kv_heads == 1)
        problem.key.stride[0] = problem.key.stride[1];
    if (on<"NCA-x36">()) {
        problem.mask.stride[1] = 1;
        problem.mask.stride[0] = problem.mask.shape[1];
    }
    if (on<"NCA-x37">()) problem.topk.forget_strides();
}

}  // namespace

}  // namespace attncheck::mutants

int attncheck_nsa_compress_attention(const attncheck_nsa_compress_attention_args* args) {
    using namespace attncheck::mutants;
    const Composed composed(args);
    CompressAttentionProblem problem;
    if (const int status = accept(composed.args(), problem)) return status;
    if (problem.is_undefined) return ATTNCHECK_OK;
    distort_views(problem);
    if (on<"NCA-ALL-x303">()) take_first(problem, problem.compress_block);
    if (on<"NCA-ALL-x330">()) take_first(problem, problem.compress_stride);
    if (on<"NCA-ALL-x331">()) take_first(problem, problem.select_block);
    if (on<"NCA-ALL-x350">()) forget_forced_blocks(problem);
    attend_compressed(problem, make_plan(problem));
    return ATTNCHECK_OK;
}
