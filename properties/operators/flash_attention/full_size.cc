// Flash attention and its gradient of full size, judged by chosen rows and keys, and the cases of
// that size. The gradient's statistics and attention output are those of the candidate's own
// forward, which is judged in the same case.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "properties/operators/flash_attention/case.h"
#include "properties/judge/sampled_attention.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;
constexpr Int kLanes = 8;

bool is_of_keys(std::string_view output) { return output.starts_with("dk") || output == "dv"; }

Int width_of(const FlashParts& parts, std::string_view output) {
    if (output.starts_with("softmax")) return kLanes;
    if (output.ends_with("rope")) return parts.shape.rope_dim;
    return output == "dv" || output == "attention_out" ? parts.shape.value_dim
                                                       : parts.shape.head_dim;
}

/// Number of a row (t * heads + head) among the rows of its tensor as it lies in memory.
Int row_in_layout(FlashLayout layout, Int length, Int batches, Int heads, Int number) {
    if (layout != FlashLayout::sbh && layout != FlashLayout::bnsd) return number;
    const Int t = number / heads, n = number % heads, b = t / length, s = t % length;
    return layout == FlashLayout::sbh ? (s * batches + b) * heads + n
                                      : (b * heads + n) * length + s;
}

/// Number of a row among the statistics.
Int row_of_statistics(const FlashParts& parts, const std::vector<Int>& starts, Int number) {
    const ref::FlashAttentionShape& s = parts.shape;
    const Int heads = s.query_heads, t = number / heads, n = number % heads;
    const auto& lengths = s.query_lengths;
    if (parts.layout != FlashLayout::tnd)
        return row_in_layout(FlashLayout::bnsd, lengths[0], std::ssize(lengths), heads, number);
    if (parts.same_as_input || t >= starts.back()) return number;
    const auto after = std::upper_bound(starts.begin(), starts.end(), t);
    const auto b = static_cast<std::size_t>(after - starts.begin()) - 1;
    return starts[b] * heads + n * lengths[b] + (t - starts[b]);
}

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

SampledProblem problem_of(const Spec& spec, const std::shared_ptr<const FlashParts>& parts) {
    SampledProblem problem;
    const ref::FlashAttentionShape& s = parts->shape;
    problem.spec = &spec;
    problem.shape = s.dense();
    problem.query_lengths = s.query_lengths;
    problem.kv_lengths = s.kv_lengths;
    problem.dtype = parts->dtype;
    problem.result = parts->result;
    problem.scale = s.scale;
    problem.keep_prob = s.dropout.keep_prob;
    problem.query = parts->query_values();
    problem.key = parts->key_values();
    problem.value = parts->values(parts->value);
    problem.pairs = pairs_of(s);
    problem.columns = ref::flash_columns(s);
    problem.columns_of = [parts](const std::vector<Int>& keys) {
        return ref::flash_columns_of(parts->shape, keys);
    };
    problem.first_element = [parts, starts = row_starts(s.query_lengths)](const std::string& name,
                                                                          Int number) {
        const ref::FlashAttentionShape& of = parts->shape;
        if (name.starts_with("softmax"))
            return static_cast<std::size_t>(row_of_statistics(*parts, starts, number) * kLanes);
        const bool keys = is_of_keys(name);
        const auto& lengths = keys ? of.kv_lengths : of.query_lengths;
        return static_cast<std::size_t>(row_in_layout(parts->layout, lengths[0],
                                                      std::ssize(lengths),
                                                      keys ? of.kv_heads : of.query_heads, number) *
                                        width_of(*parts, name));
    };
    return problem;
}

GradientOutputs gradient_outputs(const ref::FlashAttentionShape& s) {
    GradientOutputs outputs{
        {{"dq", 0, s.head_dim}}, {{"dk", 0, s.head_dim}}, {{"dv", 0, s.value_dim}}};
    if (s.rope_dim > 0) {
        outputs.query.push_back({"dq_rope", s.head_dim, s.rope_dim});
        outputs.key.push_back({"dk_rope", s.head_dim, s.rope_dim});
    }
    return outputs;
}

Verdict check_sampled_flash(const Spec& spec, PropertyContext& context) {
    const auto parts = std::make_shared<FlashParts>(flash_input_parts(spec));
    SampledCalls calls;
    calls.gradient = parts->gradient;
    calls.outputs = gradient_outputs(parts->shape);
    calls.call = [&](bool gradient) {
        parts->gradient = gradient;
        Call call = make_flash_call(*parts);
        lay_out(spec, call);
        return call;
    };
    calls.give = [&](std::vector<std::uint32_t> output, std::vector<float> row_max,
                     std::vector<float> row_sum) {
        parts->output = std::move(output);
        parts->row_max = std::move(row_max);
        parts->row_sum = std::move(row_sum);
        if (spec.numbers[kFaStats] != 0) shift_statistics(parts->row_max, parts->row_sum);
        if (spec.numbers[kFaOut] != 0) perturb_output(parts->result, parts->output);
        return GivenForward{parts->values(parts->output_grad),
                            decode_all(parts->result, parts->output),
                            {parts->row_max.begin(), parts->row_max.end()},
                            {parts->row_sum.begin(), parts->row_sum.end()}};
    };
    return check_sampled(problem_of(spec, parts), calls, context);
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
