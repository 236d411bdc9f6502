// Selected attention and its gradient of full size, judged by chosen rows and keys, and the cases
// of that size. The gradient's statistics and attention output are those of the candidate's own
// forward.
#include <algorithm>
#include <memory>
#include <utility>

#include "properties/operators/nsa_selected_attention/case.h"
#include "properties/judge/sampled_attention.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;
constexpr Int kLanes = 8;

SampledProblem problem_of(const Spec& spec, const SelectedParts& parts) {
    SampledProblem problem;
    const ref::SelectedAttentionShape& s = parts.shape;
    problem.spec = &spec;
    problem.shape = s.dense();
    problem.query_lengths = s.query_lengths;
    problem.kv_lengths = s.kv_lengths;
    problem.dtype = problem.result = parts.dtype;
    problem.scale = parts.narrowed_scale();
    problem.query = parts.values(parts.query);
    problem.key = parts.values(parts.key);
    problem.value = parts.values(parts.value);
    problem.pairs = static_cast<double>(s.total_queries * s.query_heads * s.block * s.count);
    problem.columns = parts.columns();
    problem.first_element = [dense = problem.shape](const std::string& name, Int number) {
        const bool of_values = name == "dv" || name == "attention_out";
        const Int width = name.starts_with("softmax") ? kLanes
                          : of_values                 ? dense.value_dim
                                                      : dense.head_dim;
        return static_cast<std::size_t>(number * width);
    };
    return problem;
}

Verdict check_sampled_selected(const Spec& spec, PropertyContext& context) {
    SelectedParts parts = selected_input_parts(spec);
    const SampledProblem problem = problem_of(spec, parts);
    SampledCalls calls;
    calls.gradient = parts.gradient;
    calls.outputs = {{{"dq", 0, parts.shape.head_dim}},
                     {{"dk", 0, parts.shape.head_dim}},
                     {{"dv", 0, parts.shape.value_dim}}};
    calls.call = [&](bool gradient) {
        parts.gradient = gradient;
        Call call = make_selected_call(parts);
        lay_out(spec, call);
        return call;
    };
    calls.give = [&](std::vector<std::uint32_t> output, std::vector<float> row_max,
                     std::vector<float> row_sum) {
        parts.output = std::move(output);
        parts.row_max = std::move(row_max);
        parts.row_sum = std::move(row_sum);
        if (spec.numbers[kSelStats] != 0) shift_statistics(parts.row_max, parts.row_sum);
        if (spec.numbers[kSelOut] != 0) perturb_output(parts.dtype, parts.output);
        return GivenForward{parts.values(parts.output_grad),
                            parts.values(parts.output),
                            {parts.row_max.begin(), parts.row_max.end()},
                            {parts.row_sum.begin(), parts.row_sum.end()}};
    };
    return check_sampled(problem, calls, context);
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
