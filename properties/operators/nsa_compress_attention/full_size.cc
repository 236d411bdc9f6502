// Compress attention of full size, judged by chosen rows: statistics and output of the chosen
// heads, and the lists of blocks of their key heads.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "properties/judge/sampled_attention.h"
#include "properties/operators/nsa_compress_attention/problem.h"
#include "ref/operators/nsa_compress_attention_scores.h"

namespace attncheck::properties::compress_attention {
namespace {

using Int = std::int64_t;

/// The lists of the (query row, key head) that the chosen rows belong to.
Verdict judge_lists(const AttentionProblem& problem, const Call& call, const CallResult& result,
                    const RowSample& rows, const PropertyContext& context) {
    const ref::CompressAttentionShape& s = extras_of(problem).parts.shape;
    const AttentionNumbers numbers(problem);
    const ref::AttentionInputs<double> in = numbers.inputs();
    ref::ImportanceScores scores(s, in, extras_of(problem).masks(), problem.dtype,
                                 context.rounding);
    const auto lists = lists_of(result.outputs[tensor_index(call, "topk_indices")]);
    std::set<Int> chosen;
    for (const Int number : rows.numbers) {
        const Int t = number / s.query_heads, n = number % s.query_heads;
        chosen.insert(t * s.kv_heads + n / s.group());
    }
    Verdict verdict;
    for (const Int number : chosen) {
        const Int t = number / s.kv_heads;
        const std::span<const Int> list{lists.data() + number * s.select_count,
                                        static_cast<std::size_t>(s.select_count)};
        const bool beyond = scores.query(t).sequence < 0;
        ref::ListJudgement one;
        if (!beyond) one = ref::judge_list(scores(t, number % s.kv_heads), list);
        verdict.worst_ratio = std::max(verdict.worst_ratio, one.worst_ratio);
        const bool wrong = beyond
                               ? std::any_of(list.begin(), list.end(), [](Int i) { return i != 0; })
                               : one.fault.has_value();
        if (!wrong) continue;
        const Int position = one.fault ? one.fault->position : 0;
        verdict.kind = Verdict::Kind::failed;
        verdict.tier = Tier::bound;
        verdict.failure = "topk_indices is wrong";
        verdict.message = fmt::format(
            "topk_indices: {}  {}",
            problem.place("topk_indices",
                          static_cast<std::size_t>(number * s.select_count + position)),
            one.fault ? one.fault->reason : "a row behind the last sequence holds zeros");
        return verdict;
    }
    verdict.message = fmt::format("  topk_indices: the {} lists of these rows", chosen.size());
    return verdict;
}

Verdict check_sampled_compress(const Spec& spec, PropertyContext& context) {
    FullSizeAttention of;
    of.problem = problem_of(parts_of(spec));
    of.seed = spec.seed;
    for (std::size_t b = 0; b < of.problem.query_lengths.size(); ++b)
        of.pairs += static_cast<double>(of.problem.query_lengths[b] * of.problem.kv_lengths[b] *
                                        of.problem.shape.query_heads);
    of.call = [&](const AttentionProblem& problem) {
        Call call = attention_operator().call(problem);
        lay_out(spec, call);
        return call;
    };
    of.more = [&context](const AttentionProblem& problem, const Call& call,
                         const CallResult& result, const RowSample& rows) {
        return judge_lists(problem, call, result, rows, context);
    };
    return check_sampled(std::move(of), context);
}

}  // namespace

void add_sampled(std::vector<Property>& list) {
    Property property{
        "sampled", "full size: chosen rows agree with the reference; see verify --large",
        check_sampled_compress,
        [](Spec& spec, Random&) {
            if (spec.recipe >= Recipe::huge) spec.recipe = Recipe::normal;
        },
        [](const Spec& spec) { return spec.recipe < Recipe::huge && spec.edits.empty(); }};
    property.large = true;
    list.push_back(std::move(property));
}

/// The compressed keys of a long sequence, hidden as in the paper where the mask has room, and
/// several sequences.
std::vector<Spec> large_cases(const Schema& schema, Int length, std::uint64_t seed) {
    constexpr Int kRoomForMasks = 16'384;
    const Int odd = Random(seed).between(1, 15);
    const auto with = [&](std::vector<Int> query, std::vector<Int> cmp, std::uint64_t own_seed) {
        Spec spec(schema);
        spec.lists = {std::move(query), std::move(cmp)};
        for (const auto& [field, value] : {std::pair<Field, Int>{kDtype, 1},
                                           {kKvHeads, 1},
                                           {kGroup, 4},
                                           {kDim, 128},
                                           {kValueDim, 128},
                                           {kBlock, 32},
                                           {kStride, 16},
                                           {kSelect, 64},
                                           {kCount, 4}})
            spec.numbers[field] = value;
        spec.set("scale", static_cast<Int>(ScaleKind::rsqrt));
        spec.recipe = Recipe::normal;
        spec.seed = own_seed;
        return spec;
    };
    Spec one = with({length - odd}, {std::max<Int>((length - odd) / 16 - 1, 16)}, seed);
    if (length <= kRoomForMasks) {
        one.numbers[kMask] = static_cast<Int>(MaskKind::boolean);
        one.numbers[kHides] = static_cast<Int>(Hides::causal);
        one.numbers[kSparse] = 1;
    }
    Spec several =
        with({length / 4 + odd, 1, length / 8},
             {std::max<Int>(length / 64, 16), 16, std::max<Int>(length / 128 + odd, 16)}, seed + 1);
    several.numbers[kDtype] = 0;
    several.numbers[kKvHeads] = 2;
    several.numbers[kGroup] = 2;
    several.numbers[kDim] = 72;
    several.numbers[kValueDim] = 40;
    return {one, several};
}

}  // namespace attncheck::properties::compress_attention
