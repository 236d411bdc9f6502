// Flash attention and its gradient of full size, judged by chosen rows and keys, and the cases of
// that size. The gradient's statistics and attention output are those of the candidate's own
// forward, which is judged in the same case.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "properties/judge/sampled_attention.h"
#include "properties/operators/flash_attention/problem.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;
/// Visible pairs by the predicate of the sparse mode: what the mask hides besides is not known
/// without looking at it.
double pairs_of(const ref::FlashAttentionShape& s) {
    double pairs = 0;
    for (std::size_t b = 0; b < s.query_lengths.size(); ++b)
        for (Int i = 0; i < s.query_lengths[b]; ++i) {
            const ref::KeyRange range = ref::visible_range(s, b, i);
            pairs += static_cast<double>(range.end - range.begin);
        }
    return pairs * static_cast<double>(s.query_heads);
}

Verdict check_sampled_flash(const Spec& spec, PropertyContext& context) {
    FlashParts parts = flash_input_parts(spec);
    const auto shape = std::make_shared<const ref::FlashAttentionShape>(parts.shape);
    FullSizeAttention of;
    of.problem = flash_problem(std::move(parts));
    of.seed = spec.seed;
    of.pairs = pairs_of(*shape);
    of.columns_of = [shape](const std::vector<Int>& keys) {
        return ref::flash_columns_of(*shape, keys);
    };
    of.call = [&](const AttentionProblem& problem) {
        Call call = flash_attention_operator().call(problem);
        lay_out(spec, call);
        return call;
    };
    of.alter_forward = [&](AttentionProblem& problem) {
        if (spec.numbers[kFaStats] != 0) shift_statistics(problem.row_max, problem.row_sum);
        if (spec.numbers[kFaOut] != 0) perturb_output(problem.result, problem.output);
    };
    return check_sampled(std::move(of), context);
}

/// Finite data that no kernel may let overflow: what leaves the range of a type excuses whole rows
/// of a gradient, and finding them would be quadratic.
bool is_moderate(const Spec& spec) {
    return spec.recipe < Recipe::huge && spec.edits.empty() && !flash_is_fp8(spec);
}

Spec large_case(const Schema& schema, std::vector<Int> query, std::vector<Int> kv, Int dtype,
                FlashLayout layout, std::uint64_t seed) {
    Spec spec(schema);
    spec.lists = {std::move(query), std::move(kv)};
    spec.numbers[kFaDtype] = dtype;
    spec.numbers[kFaLayout] = static_cast<Int>(layout);
    spec.numbers[kFaDim] = spec.numbers[kFaValueDim] = 128;
    spec.set("scale", static_cast<Int>(ScaleKind::rsqrt));
    spec.recipe = Recipe::normal;
    spec.seed = seed;
    return spec;
}

}  // namespace

void add_flash_sampled(std::vector<Property>& list) {
    Property property{
        "sampled", "full size: chosen rows and keys agree with the reference; see verify --large",
        check_sampled_flash,
        [](Spec& spec, Random&) {
            if (spec.recipe >= Recipe::huge) spec.recipe = Recipe::normal;
        },
        is_moderate};
    property.large = true;
    list.push_back(std::move(property));
}

/// The size that is asked for, causal; several sequences off every tile edge with shared key heads;
/// everything visible in one of the other layouts; and a band over positions that leave 16 bits and
/// pair numbers that leave 32, which costs little.
std::vector<Spec> flash_large_cases(const Schema& schema, Int length, std::uint64_t seed) {
    constexpr Int kFp16 = 0, kBf16 = 1, kLongBand = 65'536;
    std::vector<Spec> out;
    const auto with_mask = [](Spec& spec, Int sparse) {
        spec.numbers[kFaMask] = 1;
        spec.numbers[kFaSparse] = sparse;
    };
    Random random(seed);
    const Int odd = random.between(1, 15);

    Spec causal = large_case(schema, {length}, {length}, kBf16, FlashLayout::tnd, seed);
    causal.numbers[kFaKvHeads] = 8;
    with_mask(causal, 3);
    out.push_back(causal);

    const Int half = std::max<Int>(length / 2, 64);
    Spec several = large_case(schema, {half / 2 + odd, 1, 0, half / 4 - odd},
                              {half - odd, 33, 5, half / 4}, kFp16, FlashLayout::tnd, seed + 1);
    several.numbers[kFaKvHeads] = 2;
    several.numbers[kFaGroup] = 4;
    several.numbers[kFaDim] = 96;
    several.numbers[kFaValueDim] = 64;
    with_mask(several, 3);
    out.push_back(several);

    const Int quarter = std::max<Int>(length / 4 - odd, 64);
    Spec everything = large_case(
        schema, {quarter, quarter}, {quarter + 40, quarter + 40}, kBf16,
        random.pick({FlashLayout::bnsd, FlashLayout::sbh, FlashLayout::bsnd, FlashLayout::bsh}),
        seed + 2);
    everything.numbers[kFaKvHeads] = 2;
    out.push_back(everything);

    const Int longest = std::max(length, length >= 16'384 ? kLongBand : length) + odd;
    Spec band = large_case(schema, {longest}, {longest}, kBf16, FlashLayout::tnd, seed + 3);
    band.numbers[kFaKvHeads] = 2;
    band.numbers[kFaDim] = band.numbers[kFaValueDim] = 64;
    with_mask(band, 4);
    band.numbers[kFaPre] = 500;
    band.numbers[kFaNext] = 3;
    out.push_back(band);
    return out;
}

}  // namespace attncheck::properties
