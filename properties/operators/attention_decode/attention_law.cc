// Decoding against `attention` of the same candidate.
#include <algorithm>

#include "properties/laws/attention_run.h"
#include "properties/operators/attention/case.h"
#include "properties/operators/attention_decode/problem.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

/// The same sequences packed, each with the keys of its positions in order.
AttentionProblem packed_problem(const AttentionProblem& problem, bool with_lse) {
    const auto decode = parts_of<DecodeParts>(problem);
    const ref::DecodeShape& s = decode.shape;
    NeutralParts parts = packed_parts(problem);
    parts.withheld.clear();
    parts.set("align", 1);
    parts.set("lse", with_lse ? 0 : 1);
    parts.set("sink", decode.sink.empty() ? 0 : 1);
    ref::NeutralAttentionShape& to = parts.shape;
    to.window_left = s.window_left;
    to.window_right = 0;
    to.bottom_right = true;
    parts.key.clear(), parts.value.clear();
    for (std::size_t b = 0; b < s.kv_lengths.size(); ++b)
        for (Int j = 0; j < s.kv_lengths[b]; ++j) {
            const Int row = decode.row_of(b, j);
            const auto append = [&](const Bits& cache, Int width, Bits& rows) {
                const Bits one = slice(cache, row, 1, s.kv_heads * width);
                rows.insert(rows.end(), one.begin(), one.end());
            };
            append(decode.key, s.head_dim, parts.key);
            append(decode.value, s.value_dim, parts.value);
        }
    parts.sink = decode.sink;
    parts.take_pairs();
    return neutral_problem(std::move(parts));
}

/// Decoding gives the last rows of causal attention over the same keys.
/// Why     both are one formula; only the place of the keys differs.
/// Domain  candidates that have both; moderate data.
/// Bound   those of both runs added.
/// Kills   AD-13 16 17, and every defect that only one of the two has.
/// Shrinks to one sequence, one query, one key.
Verdict last_rows(const Spec& spec, PropertyContext& context) {
    if (!context.candidate.info().implements("attention")) return inapplicable();
    const AttentionProblem problem = decode_inputs(spec);
    const bool with_lse =
        problem.statistics == Statistics::lse && context.gives_all_of("attention");
    const AttentionProblem packed = packed_problem(problem, with_lse);
    const AttentionRun decoded(decode_operator(), problem, context),
        attended(neutral_operator(), packed, context);
    if (auto early = first_early_verdict({&decoded, &attended})) return *early;
    return verdict_within_both(decoded, attended, context,
                               "decoding against attention over the same keys");
}

}  // namespace

Property last_rows_law() {
    return {"last_rows", "decoding against attention over the same keys", last_rows,
            with_moderate_data, moderate};
}

}  // namespace attncheck::properties
