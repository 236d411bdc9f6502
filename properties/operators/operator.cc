#include "properties/operators/operator.h"

#include <algorithm>

namespace attncheck::properties {

Spec Operator::sample(Random& random, int size, Profile profile) const {
    Spec spec = draw(random, size, profile);
    spec.profile = profile;
    return spec;
}

Spec Operator::plain(Random& random, Profile profile) const {
    Spec spec = draw_plain(random, profile);
    spec.profile = profile;
    std::ranges::fill(spec.layouts, Layout::dense);
    spec.recipe = Recipe::normal;
    return spec;
}

Spec Operator::draw_plain(Random& random, Profile profile) const {
    constexpr int kSize = 30;
    return draw(random, kSize, profile);
}

bool Operator::implemented_by(const CandidateInfo& candidate) const {
    return std::ranges::all_of(entry_points(), [&](const std::string& entry) {
        return candidate.implements(entry);
    });
}

const Property* Operator::property(std::string_view name) const {
    const auto it = std::ranges::find(properties(), name, &Property::name);
    return it == properties().end() ? nullptr : &*it;
}

}  // namespace attncheck::properties
