#include "properties/case/attention_draws.h"

#include <algorithm>
#include <numeric>

#include "properties/case/description.h"

namespace attncheck::properties {

std::int64_t total(const std::vector<std::int64_t>& lengths) {
    return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
}

std::int64_t attention_cost(const Spec& spec, std::int64_t pairs, std::int64_t dims) {
    const std::int64_t kv_heads = spec.number("kv_heads"), heads = kv_heads * spec.number("group");
    return pairs * heads * dims +
           8 * (total(spec.lists[1]) * kv_heads + total(spec.lists[0]) * heads) * dims;
}

void remove_sequence(Spec& spec, std::size_t b) {
    for (auto& list : spec.lists) list.erase(list.begin() + static_cast<std::ptrdiff_t>(b));
}

void draw_layouts(Spec& spec, Random& random, Layout most, int cases, int tensors) {
    if (!random.chance(cases)) return;
    for (std::size_t i = 0; i < spec.schema->tensors.size(); ++i) {
        if (!random.chance(tensors)) continue;
        const TensorField& field = spec.schema->tensors[i];
        const Layout last = field.output    ? Layout::spread
                            : field.derived ? Layout::reversed
                                            : most;
        spec.layouts[i] = static_cast<Layout>(random.between(1, static_cast<int>(last)));
    }
}

void draw_given(Spec& spec, Random& random, int stats, int out) {
    if (spec.schema->number("stats") < 0) return;
    spec.set("stats", random.chance(stats));
    spec.set("out", random.chance(out));
}

void with_more_heads(Spec& spec, Random& random) {
    if (spec.number("kv_heads") > 1) return;
    spec.set("kv_heads", random.between(2, 3));
    spec.set("group", std::min<std::int64_t>((spec.number("group") + 1) / 2, 64));
}

void with_larger_group(Spec& spec, Random& random) {
    if (spec.number("group") == 1) spec.set("group", random.between(2, 3));
}

void ChangedCases::with_one_group() {
    with([](Spec& to) {
        to.set("group", to.number("group") * to.number("kv_heads"));
        to.set("kv_heads", 1);
    });
}

}  // namespace attncheck::properties
