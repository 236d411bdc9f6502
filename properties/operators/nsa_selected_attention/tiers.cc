// Selected attention and its gradient: second and third tier.
#include <algorithm>

#include "properties/judge/attention_tiers.h"
#include "properties/operators/nsa_selected_attention/runs.h"
#include "properties/operators/catalogue.h"

namespace attncheck::properties {
namespace {

Verdict check(const Spec& spec, PropertyContext& context) {
    const SelectedParts parts = selected_parts(spec);
    const SelectedRun run(parts, context);
    if (run.trouble) return *run.trouble;
    return judge_attention(selected_tier_problem(parts), context.rounding,
                           [&](const std::string& name) {
                               std::vector<double> all = run.values(name);
                               if (!name.starts_with("softmax")) return all;
                               std::vector<double> first;
                               for (std::size_t i = 0; i < all.size(); i += kLanes)
                                   first.push_back(all[i]);
                               return first;
                           });
}

/// A block that is listed twice makes the same rounding error twice.
bool has_distinct_blocks(TopkKind kind) {
    switch (kind) {
        case TopkKind::canonical:
        case TopkKind::ascending:
        case TopkKind::descending:
        case TopkKind::shuffled:
        case TopkKind::shared:
            return true;
        default:
            return false;
    }
}

}  // namespace

AttentionTierProblem selected_tier_problem(const SelectedParts& parts) {
    AttentionTierProblem problem;
    problem.gradient = parts.gradient;
    problem.dtype = parts.dtype;
    problem.shape = parts.shape.dense();
    problem.columns = parts.columns();
    problem.query = parts.values(parts.query);
    problem.key = parts.values(parts.key);
    problem.value = parts.values(parts.value);
    problem.scale = parts.narrowed_scale();
    problem.query_lengths = parts.shape.query_lengths;
    problem.kv_lengths = parts.shape.kv_lengths;
    if (!parts.gradient) return problem;
    problem.output_grad = parts.values(parts.output_grad);
    problem.output = parts.values(parts.output);
    problem.row_max.assign(parts.row_max.begin(), parts.row_max.end());
    problem.row_sum.assign(parts.row_sum.begin(), parts.row_sum.end());
    return problem;
}

void make_selected_tier_case(Spec& spec, Random& random) {
    spec.set("topk", static_cast<std::int64_t>(
                         random.pick({TopkKind::shuffled, TopkKind::shuffled, TopkKind::shared,
                                      TopkKind::ascending, TopkKind::canonical})));
    const std::int64_t block = random.pick<std::int64_t>({16, 16, 32, 64});
    const std::int64_t count = random.between(1, 128 / block);
    Spec small = spec;
    small.set("block", block);
    small.set("count", count);
    for (auto& length : small.lists[1])
        length = std::max<std::int64_t>(length, block * count) / block * block;
    if (!find_operator(spec.schema->op)->illegal(small)) spec = small;
    const std::int64_t unit = spec.number("block"), least = unit * spec.number("count");
    const std::int64_t dims = spec.number("dim") + spec.number("value_dim");
    // A row sees `least` keys, however long its sequence is.
    make_tier_case(spec, random, unit, least, 2'000'000 / dims * 4);
}

void add_selected_tiers(std::vector<Property>& list) {
    Property property = attention_tier_property(check, make_selected_tier_case);
    property.domain = [](const Spec& spec) {
        return is_tier_data(spec) &&
               has_distinct_blocks(static_cast<TopkKind>(spec.numbers[kSelTopk]));
    };
    list.insert(list.begin() + 1, std::move(property));
}

}  // namespace attncheck::properties
