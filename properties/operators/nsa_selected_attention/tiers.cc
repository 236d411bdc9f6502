// Selected attention and its gradient: second and third tier.
#include <algorithm>

#include "properties/judge/attention_tiers.h"
#include "properties/laws/attention_laws.h"
#include "properties/operators/nsa_selected_attention/problem.h"

namespace attncheck::properties {
namespace {

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
    if (!illegal(small)) spec = small;
    const std::int64_t unit = spec.number("block"), least = unit * spec.number("count");
    const std::int64_t dims = spec.number("dim") + spec.number("value_dim");
    // A row sees `least` keys, however long its sequence is.
    make_tier_case(spec, random, unit, least, 2'000'000 / dims * 4);
}

void add_selected_tiers(std::vector<Property>& list) {
    Property property = deviation_property(selected_attention_operator(), make_selected_tier_case);
    property.domain = [](const Spec& spec) {
        return is_tier_data(spec) &&
               has_distinct_blocks(static_cast<TopkKind>(spec.numbers[kSelTopk]));
    };
    list.insert(list.begin() + 1, std::move(property));
}

}  // namespace attncheck::properties
