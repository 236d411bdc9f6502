#include "properties/laws/attention_full_size.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "properties/case/attention_data.h"
#include "properties/judge/exact_sums.h"
#include "properties/laws/attention_parts.h"
#include "properties/laws/relation_checks.h"

namespace attncheck::properties {

FullSizeAttention full_size(const AttentionOperator& of, const Spec& spec,
                            AttentionProblem problem, double pairs) {
    FullSizeAttention made;
    made.problem = std::move(problem);
    made.seed = spec.seed;
    made.pairs = pairs;
    made.call = [&of, spec](const AttentionProblem& changed) {
        Call call = of.call(changed);
        lay_out(spec, call);
        return call;
    };
    made.alter_forward = [spec](AttentionProblem& forward) { alter_given(spec, forward); };
    return made;
}

Verdict judge_full_size(FullSizeAttention of, const Spec& spec, bool has_tiers,
                        PropertyContext& context) {
    of.has_tiers = has_tiers;
    of.exact_keys = exact_row_length(spec, of.problem, context.rounding);
    if (of.exact_keys > 0) of.exact_scores = give_exact_numbers(spec, of.problem);
    return check_sampled(std::move(of), context);
}

void with_exact_sums(Spec& spec) {
    spec.recipe = Recipe::ints;
    spec.set("scale", static_cast<std::int64_t>(ScaleKind::eighth));
    const NumberField& logits =
        spec.schema->numbers[static_cast<std::size_t>(spec.schema->number("logits"))];
    spec.set("logits", std::ranges::find(logits.names, "equal") - logits.names.begin());
    spec.set("dim", 64);
    spec.set("value_dim", 64);
}

void add_exact_scores(std::vector<Spec>& cases) {
    if (cases.front().schema->tensor("dq") < 0) return;
    Spec scores = cases.front();
    scores.recipe = Recipe::signs;
    cases.insert(cases.begin() + 1, std::move(scores));
}

double visible_pairs(const AttentionProblem& problem,
                     const std::function<std::int64_t(std::size_t b, std::int64_t i)>& keys) {
    double pairs = 0;
    for (std::size_t b = 0; b < problem.query_lengths.size(); ++b)
        for (std::int64_t i = 0; i < problem.query_lengths[b]; ++i)
            pairs += static_cast<double>(keys(b, i));
    return pairs * static_cast<double>(problem.shape.query_heads);
}

std::int64_t exact_keys_of(std::int64_t length) {
    constexpr std::uint64_t kMost = 16'384;
    return static_cast<std::int64_t>(
        std::min(kMost, std::bit_floor(static_cast<std::uint64_t>(length))));
}

Property full_size_property(const char* chosen, Verdict (*check)(const Spec&, PropertyContext&)) {
    Property property{
        /// Full size: chosen rows and keys agree with the reference.
        /// Why     what breaks only at full size breaks at the ends of sequences, at tile edges and
        ///         at powers of two: those rows are always compared, others by chance.
        /// Domain  cases of many thousand tokens; run by `verify --large` alone.
        /// Bound   that of agreement, and the deviation tier over the sampled rows.
        /// Kills   indices of 32 bits that overflow, and tiles that are lost beyond some length.
        "sampled",
        fmt::format("full size: chosen {} agree with the reference; see verify --large", chosen),
        check, [](Spec& spec, Random&) { without_extremes(spec); },
        [](const Spec& spec) { return spec.recipe < Recipe::huge && spec.edits.empty(); }};
    property.large = true;
    return property;
}

Spec large_case(const Schema& schema, std::vector<std::int64_t> query,
                std::vector<std::int64_t> kv, std::uint64_t seed) {
    Spec spec(schema);
    spec.lists = {std::move(query), std::move(kv)};
    spec.numbers[0] = 1;
    spec.set("dim", 128);
    spec.set("value_dim", 128);
    spec.set("scale", static_cast<std::int64_t>(ScaleKind::rsqrt));
    spec.recipe = Recipe::normal;
    spec.seed = seed;
    return spec;
}

}  // namespace attncheck::properties
