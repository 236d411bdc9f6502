#include <algorithm>
#include <array>
#include <cmath>

#include "active_mutant.h"
#include "first_plan.h"
#include "flash_problem.h"
#include "flash_side.h"

namespace attncheck::mutants {

namespace {

template <IdText kForward, IdText kGradient>
bool has(const FlashProblem& problem) {
    return on_side<kForward, kGradient>(problem.is_gradient);
}

float effective_scale(const FlashProblem& problem) {
    const float scale = static_cast<float>(problem.scale);
    if (has<"FA-32", "FAG-x87">(problem))
        return 1.0f / std::sqrt(static_cast<float>(problem.head_dim));
    if (has<"FA-x101", "FAG-x88">(problem)) return std::fabs(scale);
    if (has<"FA-x102", "FAG-x89">(problem) && scale == 0.0f) return 1.0f;
    return scale;
}

void add_sequences(const FlashProblem& problem, FlashPlan& plan) {
    const bool is_tnd = problem.is_tnd();
    std::int64_t first_pair = 0;
    for (std::size_t b = 0; b < problem.query_lens.size(); ++b) {
        FlashSequence sequence;
        sequence.batch = is_tnd ? 0 : static_cast<std::int64_t>(b);
        sequence.query_len = problem.query_lens[b];
        sequence.kv_len = problem.kv_lens[b];
        if (is_tnd) {
            sequence.first_query = plan.queries_end;
            sequence.first_key =
                has<"FA-39", "FAG-x90">(problem) ? plan.queries_end : plan.keys_end;
            plan.queries_end += sequence.query_len;
            plan.keys_end += sequence.kv_len;
        }
        sequence.first_pair = first_pair;
        const bool is_skipped = has<"FA-x103", "FAG-x91">(problem) && sequence.query_len == 0;
        if (is_skipped) plan.keys_end -= sequence.kv_len;  // a defect: its keys not stepped over
        first_pair += problem.num_query_heads * sequence.query_len * sequence.kv_len;
        plan.longest_query = std::max(plan.longest_query, sequence.query_len);
        plan.longest_kv = std::max(plan.longest_kv, sequence.kv_len);
        plan.sequences.push_back(sequence);
    }
}

/// Mode 7: the last sequence with queries; mode 8: the first one.
std::int64_t band_sequence(const FlashProblem& problem) {
    const std::int64_t count = static_cast<std::int64_t>(problem.query_lens.size());
    const bool from_end = problem.sparse_mode == 7;
    const bool takes_any = has<"FA-11", "FAG-x92">(problem);
    if (problem.sparse_mode < 7) return -1;
    for (std::int64_t k = 0; k < count; ++k) {
        const std::int64_t b = from_end ? count - 1 - k : k;
        if (takes_any || problem.query_lens[static_cast<std::size_t>(b)] != 0) return b;
    }
    return -1;
}

/// The bytes of the drop mask that are used, packed.
std::vector<std::uint8_t> drop_bytes(const FlashProblem& problem, const FlashPlan& plan) {
    if (!problem.has_drop_mask) return {};
    const FlashSequence& last = plan.sequences.back();
    const std::int64_t bits =
        last.first_pair + problem.num_query_heads * last.query_len * last.kv_len;
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>((bits + 7) / 8));
    const auto* data = static_cast<const std::uint8_t*>(problem.drop_mask.data);
    for (std::size_t k = 0; k < bytes.size(); ++k) {
        const std::int64_t number = static_cast<std::int64_t>(k);
        bytes[k] = data[has<"FA-x104", "FAG-x93">(problem) ? number
                                                           : offset_of(problem.drop_mask, number)];
    }
    return bytes;
}

FlashPlan fresh_plan(const FlashProblem& problem) {
    FlashPlan plan;
    add_sequences(problem, plan);
    plan.sparse_mode = problem.sparse_mode;
    plan.pre_tokens = problem.pre_tokens;
    plan.next_tokens = problem.next_tokens;
    plan.band_sequence = band_sequence(problem);
    plan.scale = effective_scale(problem);
    plan.keep_factor = 1.0f / static_cast<float>(problem.keep_prob);
    if (!plan.sequences.empty()) plan.drop_bytes = drop_bytes(problem, plan);
    return plan;
}

/// The shapes of a call.
std::vector<double> shapes_of(const FlashProblem& problem) {
    std::vector<double> shapes;
    for (const std::int64_t extent :
         {std::int64_t{problem.is_gradient}, static_cast<std::int64_t>(problem.layout),
          std::ssize(problem.query_lens), problem.query_rows, problem.num_query_heads,
          problem.head_dim, problem.key_rows, problem.num_kv_heads, problem.value_dim})
        shapes.push_back(static_cast<double>(extent));
    return shapes;
}

/// The plan of the first call with these shapes.
FlashPlan first_plan(const FlashProblem& problem) {
    return first_with(shapes_of(problem), [&] { return fresh_plan(problem); });
}

/// The scale of the first call that had these shapes, this mode and these tokens.
float first_scale(const FlashProblem& problem, float scale) {
    std::vector<double> key = shapes_of(problem);
    for (const std::int64_t attribute :
         {problem.sparse_mode, problem.pre_tokens, problem.next_tokens, problem.pse_type})
        key.push_back(static_cast<double>(attribute));
    key.push_back(problem.keep_prob);
    return first_with(key, [&] { return scale; });
}

}  // namespace

void take_first_plan(FlashProblem& p) {
    const auto others = [&](int taken) {
        std::vector<double> key = shapes_of(p);
        for (const std::int64_t attribute :
             {p.sparse_mode, p.pre_tokens, p.next_tokens, std::int64_t{p.has_mask}, std::int64_t{p.has_drop_mask},
              taken == 1 ? -1 : p.pse_type, taken == 2 ? -1 : std::int64_t{p.statistics_as_input}})
            key.push_back(static_cast<double>(attribute));
        key.push_back(p.keep_prob), key.push_back(p.scale);
        for (const auto* lengths : {&p.query_lens, &p.kv_lens}) key.insert(key.end(), lengths->begin(), lengths->end());
        if (taken != 0) key.insert(key.end(), p.prefix.begin(), p.prefix.end());
        return key;
    };
    if (on<"FA-ALL-x230">()) p.prefix = first_with(others(0), [&] { return p.prefix; });
    if (on<"FA-ALL-x231">()) p.pse_type = first_with(others(1), [&] { return p.pse_type; });
    if (on<"FA-ALL-x232">())
        p.statistics_as_input = first_with(others(2), [&] { return p.statistics_as_input; });
}

FlashPlan make_plan(const FlashProblem& problem) {
    FlashPlan plan = fresh_plan(problem);
    if (on<"FA-ALL-09a">()) {
        plan.sequences = first_plan(problem).sequences;
        plan.longest_kv = std::max(plan.longest_kv, first_plan(problem).longest_kv);
    }
    if (on<"FA-ALL-09b">()) plan.scale = first_plan(problem).scale;
    if (on<"FA-ALL-09c">()) plan.sparse_mode = first_plan(problem).sparse_mode;
    if (on<"FA-ALL-09d">()) plan.keep_factor = first_plan(problem).keep_factor;
    if (on<"FA-ALL-09e">()) plan.next_tokens = first_plan(problem).next_tokens;
    if (on<"FA-ALL-x303">()) plan.scale = first_scale(problem, plan.scale);
    return plan;
}

}  // namespace attncheck::mutants
