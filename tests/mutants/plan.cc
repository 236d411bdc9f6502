#include "plan.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <vector>

#include "active_mutant.h"
#include "first_plan.h"
#include "scratch.h"

namespace attncheck::mutants {

namespace {

std::int64_t counted_blocks(const Problem& problem, std::int64_t length, bool is_first) {
    const std::int64_t l = problem.block, d = problem.stride;
    if (problem.is_gradient) return blocks_of(length, l, d);
    if (on<"NC-01">()) return length / d;
    if (on<"NC-x01">()) return std::max<std::int64_t>(0, (length - l) / d + 1);
    if (on<"NC-x02">() && is_first && length == 0) return 1;
    return blocks_of(length, l, d);
}

Plan fresh_plan(const Problem& problem) {
    Plan plan;
    plan.sequences.reserve(problem.ends.size());
    std::int64_t begin = 0;
    for (const std::int64_t end : problem.ends) {
        Sequence sequence;
        sequence.first_token = begin;
        sequence.length =
            std::max<std::int64_t>(0, end - begin);  // negative only in calls accepted by a defect
        sequence.first_block = plan.blocks;
        sequence.blocks = counted_blocks(problem, sequence.length, plan.sequences.empty());
        if (on<"NC-x03">() && !problem.is_gradient) sequence.first_token -= begin % problem.stride;
        if (on<"NC-x30">() && !problem.is_gradient && plan.sequences.size() >= 16)
            sequence.first_token = plan.sequences[15].first_token;
        plan.blocks += sequence.blocks;
        plan.sequences.push_back(sequence);
        begin = end;
    }
    plan.end = begin;
    return plan;
}

using PlanKey = std::array<std::int64_t, 7>;

Plan cached_plan(const Problem& problem) {
    const PlanKey key{problem.is_gradient, problem.tokens, problem.heads, problem.head_dim,
                      problem.blocks,      problem.block,  problem.stride};
    return first_with(key, [&] { return fresh_plan(problem); });
}

/// The last plan, whoever asked for it: another thread's, if that came in between.
Plan last_plan(const Problem& problem) {
    static std::mutex mutex;
    static std::vector<std::int64_t> shape;
    static Plan plan;
    std::vector<std::int64_t> asked{problem.tokens, problem.block, problem.stride};
    asked.insert(asked.end(), problem.ends.begin(), problem.ends.end());
    {
        const std::lock_guard lock(mutex);
        if (asked != shape) shape = asked, plan = fresh_plan(problem);
    }
    widen_race(true);
    const std::lock_guard lock(mutex);
    return plan;
}

}  // namespace

Plan make_plan(const Problem& problem) {
    if (on<"ALL-x16">()) return last_plan(problem);
    return on<"ALL-09">() ? cached_plan(problem) : fresh_plan(problem);
}

Share share_of(std::int64_t blocks, int index, int workers) {
    const std::int64_t chunk = (blocks + workers - 1) / workers;
    return {std::min(blocks, index * chunk), std::min(blocks, (index + 1) * chunk)};
}

}  // namespace attncheck::mutants
