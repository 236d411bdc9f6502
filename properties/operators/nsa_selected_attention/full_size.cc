// Selected attention and its gradient of full size, judged by chosen rows and keys, and the cases
// of that size. The gradient's statistics and attention output are those of the candidate's own
// forward.
#include <algorithm>
#include <utility>

#include "properties/judge/sampled_attention.h"
#include "properties/operators/nsa_selected_attention/problem.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;
Verdict check_sampled_selected(const Spec& spec, PropertyContext& context) {
    FullSizeAttention of;
    of.problem = selected_problem(selected_input_parts(spec));
    of.seed = spec.seed;
    of.pairs = static_cast<double>(of.problem.query_rows() * spec.numbers[kSelBlock] *
                                   spec.numbers[kSelCount]);
    of.call = [&](const AttentionProblem& problem) {
        Call call = selected_attention_operator().call(problem);
        lay_out(spec, call);
        return call;
    };
    of.alter_forward = [&](AttentionProblem& problem) {
        if (spec.numbers[kSelStats] != 0) shift_statistics(problem.row_max, problem.row_sum);
        if (spec.numbers[kSelOut] != 0) perturb_output(problem.result, problem.output);
    };
    return check_sampled(std::move(of), context);
}

Spec large_case(const Schema& schema, std::vector<Int> query, std::vector<Int> kv, Int dtype,
                std::uint64_t seed) {
    Spec spec(schema);
    spec.lists = {std::move(query), std::move(kv)};
    spec.numbers[kSelDtype] = dtype;
    spec.numbers[kSelDim] = spec.numbers[kSelValueDim] = 128;
    spec.numbers[kSelMask] = static_cast<Int>(MaskKind::boolean);
    spec.numbers[kSelMaskShape] = static_cast<Int>(MaskExtent::single);
    spec.numbers[kSelSparse] = 2;
    spec.set("scale", static_cast<Int>(ScaleKind::rsqrt));
    spec.recipe = Recipe::normal;
    spec.seed = seed;
    return spec;
}

}  // namespace

void add_selected_sampled(std::vector<Property>& list) {
    Property property{
        "sampled", "full size: chosen rows and keys agree with the reference; see verify --large",
        check_sampled_selected,
        [](Spec& spec, Random&) {
            if (spec.recipe >= Recipe::huge) spec.recipe = Recipe::normal;
        },
        [](const Spec& spec) { return spec.recipe < Recipe::huge && spec.edits.empty(); }};
    property.large = true;
    list.push_back(std::move(property));
}

/// One long sequence with blocks from its past, and several off every tile edge with wide groups,
/// D != Dv and blocks listed twice.
std::vector<Spec> selected_large_cases(const Schema& schema, Int length, std::uint64_t seed) {
    constexpr Int kFp16 = 0, kBf16 = 1, kBlock = 64, kCount = 4;
    const Int odd = Random(seed).between(1, 15);
    const Int longest = std::max(length / kBlock, kCount) * kBlock;
    Spec one = large_case(schema, {longest - odd}, {longest}, kBf16, seed);
    one.numbers[kSelKvHeads] = 1;
    one.numbers[kSelGroup] = 4;
    one.numbers[kSelBlock] = kBlock;
    one.numbers[kSelCount] = kCount;
    one.numbers[kSelTopk] = static_cast<Int>(TopkKind::scored);

    const Int half = longest / 2 / 16 * 16;
    Spec several =
        large_case(schema, {half / 2 + odd, 1, 0, half / 4 - odd},
                   {half, 64, 0, std::max<Int>(half / 2 / 16 * 16, 64)}, kFp16, seed + 1);
    several.numbers[kSelKvHeads] = 2;
    several.numbers[kSelGroup] = 2;
    several.numbers[kSelDim] = 192;
    several.numbers[kSelBlock] = 16;
    several.numbers[kSelCount] = 4;
    several.numbers[kSelTopk] = static_cast<Int>(TopkKind::repeated);
    return {one, several};
}

}  // namespace attncheck::properties
