// Decoding against `attention` of the same candidate.
#include <algorithm>

#include "properties/laws/attention_run.h"
#include "properties/operators/attention/case.h"
#include "properties/operators/attention_decode/problem.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

/// The same sequences packed, each with the keys of its positions in order.
AttentionProblem packed_problem(const DecodeParts& decode, bool with_lse) {
    const ref::DecodeShape& s = decode.shape;
    NeutralParts parts;
    parts.fields = Spec(neutral_description(false)).numbers;
    parts.set("dtype", decode_dtype_field(decode.dtype));
    parts.set("layout", static_cast<Int>(NeutralLayout::packed));
    parts.set("align", 1);
    parts.set("lse", with_lse ? 0 : 1);
    parts.set("sink", decode.sink.empty() ? 0 : 1);
    parts.dtype = parts.result = decode.dtype;
    parts.scale = decode.scale;
    parts.softcap = decode.softcap;
    parts.query = decode.query;
    ref::NeutralAttentionShape& to = parts.shape;
    to.query_lengths.assign(s.kv_lengths.size(), s.queries);
    to.kv_lengths = s.kv_lengths;
    to.total_queries = s.batches() * s.queries;
    to.query_heads = s.query_heads, to.kv_heads = s.kv_heads;
    to.head_dim = s.head_dim, to.value_dim = s.value_dim;
    to.packed = true;
    to.scale = static_cast<float>(decode.scale);
    to.softcap = static_cast<float>(decode.softcap);
    to.window_left = s.window_left;
    to.window_right = 0;
    to.bottom_right = true;
    const Int key = s.kv_heads * s.head_dim, value = s.kv_heads * s.value_dim;
    for (std::size_t b = 0; b < s.kv_lengths.size(); ++b)
        for (Int j = 0; j < s.kv_lengths[b]; ++j, ++to.total_keys) {
            const Int row = decode.row_of(b, j);
            parts.key.insert(parts.key.end(), decode.key.begin() + row * key,
                             decode.key.begin() + (row + 1) * key);
            parts.value.insert(parts.value.end(), decode.value.begin() + row * value,
                               decode.value.begin() + (row + 1) * value);
        }
    for (const float sink : decode.sink)
        parts.sink.push_back(ref::encode(ref::Dtype::fp32, sink));
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
    const AttentionProblem packed = packed_problem(parts_of<DecodeParts>(problem), with_lse);
    const AttentionRun decoded(decode_operator(), problem, context),
        attended(neutral_operator(), packed, context);
    if (auto trouble = first_trouble({&decoded, &attended})) return *trouble;
    const ExpectedOutputs left = expected_of(problem, context.rounding),
                          right = expected_of(packed, context.rounding);
    Verdict all;
    for (const auto& [name, expected] : right)
        join(all, verdict_within(problem, name, decoded.values(name), attended.values(name),
                                 sum_of(allowance(tensor_of(left, name)), allowance(expected)),
                                 "decoding against attention over the same keys"));
    return all;
}

}  // namespace

Property last_rows_law() {
    return {"last_rows", "decoding against attention over the same keys", last_rows,
            with_moderate_data, moderate};
}

}  // namespace attncheck::properties
