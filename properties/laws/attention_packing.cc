// The attention law of sequences that share a call.
#include <fmt/format.h>

#include <algorithm>

#include "properties/laws/attention_laws.h"
#include "properties/laws/attention_run.h"

namespace attncheck::properties {

/// Sequences packed together, and batches, give what each gives alone.
/// Why     no row sees another sequence; offsets are the cumulative lengths, rows of masks are
///         positions inside the sequence and their pitch is that of the longest (contract decisions
///         4 and 7).
/// Domain  up to four of the sequences, each in one of the ways to write it alone that the candidate takes.
/// Bound   twice that of the packed run: a sequence alone has the same rows and keys. Lists the
///         same or right.
/// Kills   FA-05 13 35 39 46 47, NSF-02 x08 x09 x50, NSG-x05 x16 x20,
///         NCA-12 x09 x10 x12 x24 x27 x33.
/// Shrinks to two sequences, one query each, or the first with no key.
Verdict packing(const AttentionOperator& of, const Spec& spec, PropertyContext& context) {
    constexpr std::size_t kMostSequences = 4;
    constexpr int kWays = 6;  ///< to write one, until the candidate takes it
    const AttentionProblem problem = of.problem(spec);
    const AttentionRun packed(of, problem, context);
    if (packed.early_verdict) return *packed.early_verdict;
    const ExpectedOutputs expected = expected_of(problem, context.rounding);
    const auto first_query = row_starts(problem.query_lengths),
               first_key = row_starts(problem.kv_lengths);
    Random random(mix(spec.seed));
    std::vector<std::int64_t> order = permutation(std::ssize(problem.query_lengths), random);
    order.resize(std::min(order.size(), kMostSequences));
    Verdict all = inapplicable();
    const auto add = [&](const Verdict& one) {
        if (all.kind == Verdict::Kind::inapplicable) all = {};
        join(all, one);
    };
    for (const std::int64_t sequence : order) {
        const auto b = static_cast<std::size_t>(sequence);
        std::optional<AttentionProblem> alone;
        std::optional<AttentionRun> tried;
        for (int way = 0; way < kWays && (!tried || is_declined(*tried)); ++way) {
            auto one = of.single_sequence(problem, b, random);
            if (!one) continue;
            tried.reset();
            alone = std::move(one);
            tried.emplace(of, *alone, context);
        }
        if (!tried) continue;
        const AttentionRun& run = *tried;
        if (run.early_verdict) return *run.early_verdict;
        const std::string relation =
            fmt::format("{} {} packed against alone", problem.sequence_word, b);
        for (const AttentionOutput& output : problem.outputs()) {
            if (output.is_sum) continue;
            const std::string& name = output.name;
            const auto width = static_cast<std::size_t>(output.heads * output.width),
                       first = width * static_cast<std::size_t>(output.of_keys ? first_key[b]
                                                                               : first_query[b]),
                       count = width * static_cast<std::size_t>(output.of_keys
                                                                    ? problem.kv_lengths[b]
                                                                    : problem.query_lengths[b]);
            if (output.is_list()) {
                Bits lists = packed.bits(name);
                std::copy_n(run.bits(name).begin(), count,
                            lists.begin() + static_cast<std::ptrdiff_t>(first));
                add(verdict_on_lists(of, {problem, packed.bits(name)}, {problem, lists}, context,
                                     relation));
                continue;
            }
            add(verdict_on_part(packed, run, expected, name, first, count, relation));
        }
    }
    return all;
}

}  // namespace attncheck::properties
