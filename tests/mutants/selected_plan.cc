#include <algorithm>
#include <array>
#include <cmath>

#include "active_mutant.h"
#include "first_plan.h"
#include "selected_problem.h"

namespace attncheck::mutants {

namespace {

float effective_scale(const SelectedProblem& problem) {
    const bool forward = !problem.is_gradient;
    if (forward ? on<"NSF-x12">() : on<"NSG-x08">())
        return 1.0f / std::sqrt(static_cast<float>(problem.head_dim));
    if (forward ? on<"NSF-x13">() : on<"NSG-x09">()) return std::fabs(problem.scale);
    if ((forward ? on<"NSF-x14">() : on<"NSG-x10">()) && problem.scale == 0.0f) return 1.0f;
    return problem.scale;
}

SelectedPlan fresh_plan(const SelectedProblem& problem) {
    const bool keys_by_queries = problem.is_gradient ? on<"NSG-x44">() : on<"NSF-02">();
    const bool forgets_leading_keys = !problem.is_gradient && on<"NSF-x37">();
    SelectedPlan plan;
    plan.scale = effective_scale(problem);
    plan.sparse_mode = problem.sparse_mode;
    std::int64_t forgotten = 0;
    for (std::size_t b = 0; b < problem.query_ends.size(); ++b) {
        SelectedSequence sequence;
        sequence.first_query = plan.queries_end;
        sequence.query_len = problem.query_ends[b] - plan.queries_end;
        sequence.first_key = (keys_by_queries ? plan.queries_end : plan.keys_end) - forgotten;
        sequence.kv_len = problem.key_ends[b] - plan.keys_end;
        if (forgets_leading_keys && b == 0 && sequence.query_len == 0) forgotten = sequence.kv_len;
        plan.queries_end = problem.query_ends[b];
        plan.keys_end = problem.key_ends[b];
        if (on<"NS-x370">() && b >= 64) {
            sequence.first_key = plan.sequences[b % 64].first_key;
            sequence.kv_len = std::min(sequence.kv_len, plan.sequences[b % 64].kv_len);
        }
        plan.sequences.push_back(sequence);
    }
    return plan;
}

using PlanKey = std::array<std::int64_t, 9>;

/// The plan of the first call with these shapes.
SelectedPlan first_plan(const SelectedProblem& problem) {
    const PlanKey key{problem.is_gradient, problem.query_tokens, problem.num_query_heads,
                      problem.head_dim,    problem.key_tokens,   problem.num_kv_heads,
                      problem.value_dim,   problem.block_size,   problem.block_count};
    return first_with(key, [&] { return fresh_plan(problem); });
}

}  // namespace

SelectedPlan make_plan(const SelectedProblem& problem) {
    const SelectedPlan fresh = fresh_plan(problem);
    SelectedPlan plan = on<"NS-ALL-09a">() ? first_plan(problem) : fresh;
    plan.scale = on<"NS-ALL-09b">() ? first_plan(problem).scale : fresh.scale;
    plan.sparse_mode = on<"NS-ALL-09c">() ? first_plan(problem).sparse_mode : fresh.sparse_mode;
    return plan;
}

}  // namespace attncheck::mutants
