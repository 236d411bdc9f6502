// Compress attention: second and third tier of its attention part. The lists have no rounding
// error; the first tier judges them.
#include "properties/judge/attention_tiers.h"
#include "properties/operators/nsa_compress_attention/runs.h"

namespace attncheck::properties::compress_attention {
namespace {

Verdict check(const Spec& spec, PropertyContext& context) {
    const Parts parts = parts_of(spec);
    const Run run(parts, context);
    if (run.trouble) return *run.trouble;
    return judge_attention(tier_problem(parts), context.rounding,
                           [&](const std::string& name) { return run.values(name); });
}

}  // namespace

AttentionTierProblem tier_problem(const Parts& parts) {
    AttentionTierProblem problem;
    problem.dtype = parts.dtype;
    problem.shape = parts.shape.dense();
    // The lister refers to the mask: it has to live as long.
    const auto atten = std::make_shared<const std::vector<std::uint8_t>>(parts.mask.contents());
    const auto columns = ref::compress_columns(parts.shape, {*atten, {}});
    problem.columns = [atten, columns](std::int64_t t, std::int64_t n,
                                       std::vector<ref::KeyColumn>& to) {
        return columns(t, n, to);
    };
    problem.query = parts.values(parts.query);
    problem.key = parts.values(parts.key);
    problem.value = parts.values(parts.value);
    problem.scale = parts.narrowed_scale();
    problem.query_lengths = parts.shape.query_lengths;
    problem.kv_lengths = parts.shape.cmp_lengths;
    return problem;
}

void make_tier_case(Spec& spec, Random& random) {
    const std::int64_t least =
        std::max<std::int64_t>(1, spec.numbers[kSelect] / spec.numbers[kStride]) *
        spec.numbers[kCount];
    properties::make_tier_case(spec, random, 1, least,
                               1'500'000 / (spec.numbers[kDim] + spec.numbers[kValueDim] + 16));
}

void add_tiers(std::vector<Property>& list) {
    list.insert(list.begin() + 1, attention_tier_property(check, [](Spec& spec, Random& random) {
                    make_tier_case(spec, random);
                }));
}

}  // namespace attncheck::properties::compress_attention
