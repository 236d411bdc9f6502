// Flash attention and its gradient: second and third tier.
#include <algorithm>

#include "properties/judge/attention_tiers.h"
#include "properties/operators/flash_attention/runs.h"

namespace attncheck::properties {
namespace {

constexpr std::int64_t kLanes = 8;  ///< copies of every statistic

Verdict check(const Spec& spec, PropertyContext& context) {
    const FlashParts parts = flash_parts(spec);
    const FlashRun run(parts, context);
    if (run.trouble) return *run.trouble;
    return judge_attention(flash_tier_problem(parts), context.rounding,
                           [&](const std::string& name) {
                               if (!name.starts_with("softmax"))
                                   return wide_values(parts, run, name);
                               std::vector<double> first, all = run.values(name);
                               for (std::size_t i = 0; i < all.size(); i += kLanes)
                                   first.push_back(all[i]);
                               return first;
                           });
}

}  // namespace

AttentionTierProblem flash_tier_problem(const FlashParts& parts) {
    AttentionTierProblem problem;
    const ref::FlashAttentionShape& s = parts.shape;
    problem.gradient = parts.gradient;
    problem.dtype = parts.result;
    problem.shape = s.dense();
    problem.columns = ref::flash_columns(s);
    problem.query = parts.query_values();
    problem.key = parts.key_values();
    problem.value = parts.values(parts.value);
    problem.scale = s.scale;
    problem.keep_prob = s.dropout.keep_prob;
    problem.query_lengths = s.query_lengths;
    problem.kv_lengths = s.kv_lengths;
    if (!parts.gradient) return problem;
    problem.output_grad = parts.values(parts.output_grad);
    problem.output = decode_all(parts.result, parts.output);
    problem.row_max.assign(parts.row_max.begin(), parts.row_max.end());
    problem.row_sum.assign(parts.row_sum.begin(), parts.row_sum.end());
    return problem;
}

void make_flash_tier_case(Spec& spec, Random& random) {
    if (spec.numbers[kFaKeep] == static_cast<std::int64_t>(FlashKeep::nine_tenths))
        spec.numbers[kFaKeep] = static_cast<std::int64_t>(FlashKeep::half);
    make_tier_case(spec, random, 1, 1,
                   2'000'000 / (spec.number("dim") + spec.number("value_dim") + 16));
}

/// 1 / 0.9 is no number of the storage type: the cast of P / keep_prob then errs the same way for
/// the largest P of every row.
bool is_flash_tier_data(const Spec& spec) {
    return is_tier_data(spec) &&
           spec.numbers[kFaKeep] != static_cast<std::int64_t>(FlashKeep::nine_tenths);
}

void add_flash_tiers(std::vector<Property>& list) {
    Property property = attention_tier_property(check, make_flash_tier_case);
    property.domain = is_flash_tier_data;
    list.insert(list.begin() + 1, std::move(property));
}

}  // namespace attncheck::properties
