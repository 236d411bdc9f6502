// Selected attention that selects everything against `attention` of the same candidate.
#include <algorithm>
#include <cmath>

#include "properties/laws/attention_run.h"
#include "properties/operators/attention/case.h"
#include "properties/operators/nsa_selected_attention/problem.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

/// Every list names every block of its sequence, each in another order.
SelectedParts with_all_blocks(const Spec& spec) {
    SelectedParts parts = selected_parts(spec);
    Random random(mix(spec.seed));
    parts.topk.clear();
    for (Int list = 0; list < parts.shape.total_queries * parts.shape.kv_heads; ++list)
        for (const Int block : permutation(parts.shape.count, random))
            parts.topk.push_back(static_cast<std::uint32_t>(block));
    return parts;
}

/// The statistics that `attention` knows, as a pair: (LSE, 1).
void take_lse_as_pair(AttentionProblem& problem) {
    for (std::size_t row = 0; row < problem.row_sum.size(); ++row) {
        if (problem.row_max[row] == static_cast<float>(ref::kEmptyRowMax)) continue;
        problem.row_max[row] += std::log(problem.row_sum[row]);
        problem.row_sum[row] = 1;
    }
}

/// Selecting all blocks is attention.
/// Why     K blocks of a sequence, each listed once, are all its keys.
/// Domain  candidates that have both; every sequence has no key or exactly K blocks, the mask is none
///         or sparse mode 2, no rows lie behind the last sequence. The lists are random permutations;
///         a gradient is given (LSE, 1).
/// Bound   those of both runs added.
/// Kills   what is wrong in one of the two operators alone. The reference judges each of them, so no
///         mutant falls by this law and by nothing else: it is there for a misreading that reference
///         and kernel share.
/// Shrinks to one query, one block of 16 keys, one head, all data 0.
Verdict as_attention(const Spec& spec, PropertyContext& context) {
    const bool gradient = spec.schema == &selected_description(true);
    const std::string& op = neutral_description(gradient).op;
    if (!context.candidate.info().implements(op)) return inapplicable();
    if (spec.withheld != 0 || !context.gives_all_of(op)) return needs("softmax_max, softmax_sum, lse");
    AttentionProblem selected = selected_problem(with_all_blocks(spec));
    if (gradient) give_reference_forward(selected), take_lse_as_pair(selected);
    NeutralParts parts = packed_parts(selected);
    if (extras_of<SelectedParts>(selected).mask.present)
        parts.shape.window_right = 0;  // query i sees keys 0..i: the top left corner
    if (!is_legal(parts)) return inapplicable();
    const AttentionProblem plain = neutral_problem(std::move(parts));
    const AttentionRun left(neutral_operator(), plain, context),
        right(selected_attention_operator(), selected, context);
    if (auto early = first_early_verdict({&left, &right})) return *early;
    return verdict_on_other_operator(left, right, context, "against selecting all blocks");
}

bool is_attention(const Spec& spec) {
    const bool causal = spec.number("sparse") == 2;
    const Int all = spec.number("count") * spec.number("block");
    return moderate(spec) && spec.number("beyond_q") == 0 && spec.number("beyond_kv") == 0 &&
           (causal || spec.number("mask") == static_cast<Int>(MaskKind::absent)) &&
           std::ranges::all_of(spec.lists[1], [&](Int kv) { return kv == 0 || kv == all; });
}

void make_attention_case(Spec& spec, Random& random) {
    with_fewer_queries(spec, random);
    for (const char* field : {"beyond_q", "beyond_kv"}) spec.set(field, 0);
    if (spec.number("sparse") != 2)
        for (const char* field : {"mask", "mask_shape"}) spec.set(field, 0);
    for (Int& kv : spec.lists[1])
        if (kv > 0) kv = spec.number("count") * spec.number("block");
}

}  // namespace

Property selected_as_attention_law() {
    return {"as_attention", "selecting all blocks against attention of the same candidate",
            as_attention, make_attention_case, is_attention};
}

}  // namespace attncheck::properties
