// Compress attention of full size, judged by chosen rows: statistics and output of the chosen
// heads, and the lists of blocks of their key heads.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>

#include "properties/operators/nsa_compress_attention/case.h"
#include "properties/judge/sampled_attention.h"
#include "ref/operators/nsa_compress_attention_scores.h"

namespace attncheck::properties::compress_attention {
namespace {

using Int = std::int64_t;

/// The numbers of a case as the reference wants them.
struct Contents {
    Parts parts;
    std::vector<std::uint8_t> atten, topk;

    explicit Contents(const Spec& spec)
        : parts(parts_of(spec)), atten(parts.mask.contents()), topk(parts.topk_mask.contents()) {}
    ref::CompressMasks masks() const { return {atten, topk}; }
};

SampledProblem problem_of(const Spec& spec, const std::shared_ptr<const Contents>& contents) {
    SampledProblem problem;
    const Parts& parts = contents->parts;
    const ref::CompressAttentionShape& s = parts.shape;
    problem.spec = &spec;
    problem.shape = s.dense();
    problem.query_lengths = s.query_lengths;
    problem.kv_lengths = s.cmp_lengths;
    problem.dtype = problem.result = parts.dtype;
    problem.scale = parts.narrowed_scale();
    problem.query = parts.values(parts.query);
    problem.key = parts.values(parts.key);
    problem.value = parts.values(parts.value);
    for (std::size_t b = 0; b < s.query_lengths.size(); ++b)
        problem.pairs += static_cast<double>(s.query_lengths[b] * s.cmp_lengths[b] * s.query_heads);
    problem.columns = [contents, list = ref::compress_columns(s, contents->masks())](
                          Int t, Int n, std::vector<ref::KeyColumn>& columns) {
        return list(t, n, columns);
    };
    std::vector<Int> place(static_cast<std::size_t>(problem.rows()));
    const auto order = ref::compress_statistics_order(s);
    for (std::size_t p = 0; p < order.size(); ++p)
        place[static_cast<std::size_t>(order[p])] = static_cast<Int>(p);
    problem.first_element = [place, width = s.value_dim](const std::string& name, Int number) {
        return static_cast<std::size_t>(name.starts_with("softmax")
                                            ? place[static_cast<std::size_t>(number)] *
                                                  ref::kStatisticLanes
                                            : number * width);
    };
    return problem;
}

/// The lists of the (query row, key head) that the chosen rows belong to.
Verdict judge_lists(const SampledProblem& problem, const Contents& contents, const Call& call,
                    const CallResult& result, const RowSample& rows,
                    const PropertyContext& context) {
    const Parts& parts = contents.parts;
    const ref::CompressAttentionShape& s = parts.shape;
    const ref::AttentionInputs<double> in = problem.inputs();
    ref::ImportanceScores scores(s, in, contents.masks(), parts.dtype, context.rounding);
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
            place_of(*problem.spec, call, "topk_indices",
                     static_cast<std::size_t>(number * s.select_count + position)),
            one.fault ? one.fault->reason : "a row behind the last sequence holds zeros");
        return verdict;
    }
    verdict.message = fmt::format("  topk_indices: the {} lists of these rows", chosen.size());
    return verdict;
}

Verdict check_sampled_compress(const Spec& spec, PropertyContext& context) {
    const auto contents = std::make_shared<const Contents>(spec);
    const SampledProblem problem = problem_of(spec, contents);
    SampledCalls calls;
    calls.call = [&](bool) {
        Call call = make_call(contents->parts);
        lay_out(spec, call);
        return call;
    };
    calls.more = [&](const Call& call, const CallResult& result, const RowSample& rows) {
        return judge_lists(problem, *contents, call, result, rows, context);
    };
    return check_sampled(problem, calls, context);
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
