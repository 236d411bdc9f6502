// Split keys: attention over parts of the cache, merged, is attention over all of it.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "properties/laws/attention_run.h"
#include "properties/operators/attention_decode/problem.h"
#include "properties/operators/attention_merge/problem.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

/// The keys of every sequence on its pages from first[b] up to last[b], as a separate problem: the
/// same cache, and a table that begins at the first of them. Only the first part has the sink.
DecodeParts part_of(const DecodeParts& whole, const std::vector<Int>& first,
                    const std::vector<Int>& last) {
    const ref::DecodeShape& s = whole.shape;
    DecodeParts part = whole;
    for (std::size_t b = 0; b < s.kv_lengths.size(); ++b) {
        const auto position = [&](Int page) { return std::min(page * s.page_size, s.kv_lengths[b]); };
        part.shape.kv_lengths[b] = position(last[b]) - position(first[b]);
        for (Int p = 0; p < s.table_columns; ++p)
            part.entry(b, p) = first[b] + p < s.pages_of(b) ? whole.entry(b, first[b] + p) : -1;
    }
    return part;
}

/// The effect of errors of the parts on their merge: of the output, where o_p is off by b_p and
/// every lse by d at most, sum w_p b_p + (e^2d - 1) sum w_p |o_p|; of the LSE d.
struct PartErrors {
    std::vector<double> output, lse;
};

PartErrors errors_of(const std::vector<ExpectedOutputs>& parts, const MergeProblem& merge,
                     const std::vector<double>& merged_lse) {
    const auto rows = merge.row_count(), dim = static_cast<std::size_t>(merge.shape.value_dim);
    const std::vector<double> values = merge.part_values(), lses = merge.lse_values();
    PartErrors errors{std::vector<double>(rows * dim), std::vector<double>(rows)};
    // A part without keys counts for nothing; one whose LSE should be finite and is not makes its
    // row agreement's concern.
    const auto is_empty = [&](std::size_t p, std::size_t row) {
        return tensor_of(parts[p], "lse").value[row] == -std::numeric_limits<double>::infinity();
    };
    for (std::size_t p = 0; p < parts.size(); ++p) {
        const std::vector<double> of_lse = allowance(tensor_of(parts[p], "lse"));
        for (std::size_t row = 0; row < rows; ++row)
            if (!is_empty(p, row))
                errors.lse[row] = std::isfinite(lses[p * rows + row])
                                      ? std::max(errors.lse[row], of_lse[row])
                                      : std::numeric_limits<double>::infinity();
    }
    for (std::size_t p = 0; p < parts.size(); ++p) {
        const std::vector<double> of_output = allowance(tensor_of(parts[p], "out"));
        for (std::size_t row = 0; row < rows; ++row) {
            const double lse = lses[p * rows + row];
            if (is_empty(p, row)) continue;
            const double spread = std::expm1(2 * errors.lse[row]),
                         weight = std::exp(lse - merged_lse[row]) * (1 + spread);
            for (std::size_t d = 0; d < dim; ++d)
                errors.output[row * dim + d] +=
                    weight * (of_output[row * dim + d] +
                              spread * std::fabs(values[(p * rows + row) * dim + d]));
        }
    }
    for (double& error : errors.output)
        if (std::isnan(error)) error = std::numeric_limits<double>::infinity();
    return errors;
}

/// The merge of the parts: the candidate's where it has one, else the exact one.
struct Merged {
    std::vector<double> output, lse;
    std::optional<Verdict> early_verdict;
};

Merged merge_of(const MergeProblem& merge, const ref::ExpectedMerge& exact,
                PropertyContext& context) {
    const char* merge_op = "attention_merge";
    if (!context.candidate.info().implements(merge_op) || !context.gives_all_of(merge_op))
        return {exact.output.value, exact.lse.value, {}};
    const Call call = merge.call();
    const CallResult result = context.candidate.run(call, {});
    Merged merged;
    merged.early_verdict = verdict_unless_ok(result);
    if (merged.early_verdict) return merged;
    merged.output = decode_all(merge.dtype, result.outputs[tensor_index(call, "out")]);
    merged.lse = decode_all(ref::Dtype::fp32, result.outputs[tensor_index(call, "lse")]);
    return merged;
}

/// Keys split at pages, and the parts merged by their LSE, give what all keys give.
/// Why     softmax over a union of keys is the LSE-weighted sum of what its parts give (Dao et al.
///         2023, Flash-Decoding).
/// Domain  moderate data, one query, no window, the LSE given; two to four parts, some of them
///         without keys. The sink belongs to the first part.
/// Bound   those of the whole, of the merge, and of what the errors of the parts do to it.
/// Kills   AD-18 19 29, AD-WILD-38 41 42 45 52: an LSE that does not belong to its output.
/// Shrinks to one sequence of one page.
Verdict split_keys(const Spec& spec, PropertyContext& context) {
    const AttentionProblem problem = decode_inputs(spec);
    const DecodeParts whole = parts_of<DecodeParts>(problem);
    const ref::DecodeShape& s = whole.shape;
    if (spec.withheld != 0) return needs("lse");
    if (s.queries != 1 || s.window_left >= 0 || !whole.gives_lse) return inapplicable();
    const AttentionRun run(decode_operator(), problem, context);
    if (run.early_verdict) return *run.early_verdict;
    Random random(mix(spec.seed));
    MergeProblem merge;
    merge.dtype = whole.dtype;
    merge.shape = {random.between(2, 4), s.batches(), s.query_heads, s.value_dim};
    std::vector<ExpectedOutputs> expected;
    std::vector<Int> first(s.kv_lengths.size()), last(first);
    for (Int p = 0; p < merge.shape.parts; ++p) {
        for (std::size_t b = 0; b < first.size(); ++b) {
            first[b] = last[b];
            last[b] = p + 1 == merge.shape.parts ? s.pages_of(b)
                                                 : random.between(first[b], s.pages_of(b));
        }
        DecodeParts part = part_of(whole, first, last);
        if (p > 0) part.sink.clear();
        const AttentionProblem own = decode_problem(std::move(part));
        const AttentionRun of_part(decode_operator(), own, context);
        if (of_part.early_verdict) return *of_part.early_verdict;
        const auto append = [](const Bits& from, Bits& to) {
            to.insert(to.end(), from.begin(), from.end());
        };
        append(of_part.bits("out"), merge.parts);
        append(of_part.bits("lse"), merge.lses);
        expected.push_back(expected_of(own, context.rounding));
    }
    const ref::ExpectedMerge exact = merge.expected(context.rounding);
    const Merged merged = merge_of(merge, exact, context);
    if (merged.early_verdict) return *merged.early_verdict;
    const PartErrors errors = errors_of(expected, merge, exact.lse.value);
    const ExpectedOutputs of_whole = expected_of(problem, context.rounding);
    const auto compare = [&](const char* name, const std::vector<double>& got,
                             const std::vector<double>& of_parts,
                             const ref::ExpectedTensor& of_merge) {
        return verdict_within(problem, name, got, run.values(name),
                              sum_of(sum_of(of_parts, allowance(of_merge)),
                                     allowance(tensor_of(of_whole, name))),
                              "parts of the keys merged against all keys");
    };
    Verdict all = compare("out", merged.output, errors.output, exact.output);
    join(all, compare("lse", merged.lse, errors.lse, exact.lse));
    return all;
}

}  // namespace

Property split_keys_law() {
    return {"split_keys", "parts of the keys, merged by their LSE, against all keys", split_keys,
            [](Spec& spec, Random& random) {
                with_moderate_data(spec, random);
                set_queries(spec, 1);
                spec.set("window_left", -1);
                spec.set("lse", 0);
            },
            moderate};
}

}  // namespace attncheck::properties
