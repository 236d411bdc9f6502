// Draws of the generators of flash attention, for the tests of what they reach. No candidate runs.
#pragma once

#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "properties/operators/flash_attention/case.h"
#include "tests/properties/case/every_operator.h"

namespace attncheck::properties {

using Int = std::int64_t;

class Flash : public OperatorTest {
protected:
    bool gradient() const { return op().name() == "flash_attention_score_grad"; }
};

/// For INSTANTIATE_TEST_SUITE_P.
inline std::vector<const Operator*> flash_operators() {
    auto all = every_operator();
    std::erase_if(all, [](const Operator* op) { return !op->name().starts_with("flash"); });
    return all;
}

/// As many cases as `attncheck verify` draws for one property that has no factor of its own.
inline constexpr int kCases = 100;

/// As many cases as it draws for all properties of the operator.
inline int default_draws(const Operator& op) {
    int draws = 0;
    for (const Property& property : op.properties())
        if (!property.large) draws += kCases * property.case_factor;
    return draws;
}

/// Cases of one property, drawn as the engine draws them; without a property what the operator's
/// own generator makes.
inline std::vector<Spec> draw(const Operator& op, const char* name, int count, std::uint64_t seed,
                              Profile profile = Profile::ascend910b) {
    const Property* property = name ? op.property(name) : nullptr;
    std::vector<Spec> specs;
    for (int k = 0; k < count; ++k) {
        Random random(mix(seed) + 1000003 * static_cast<std::uint64_t>(k));
        for (int tries = 0; tries < 100; ++tries) {
            Spec spec = op.sample(random, k % 101, profile);
            if (property) property->adapt(spec, random);
            if (op.illegal(spec) || (property && property->domain && !property->domain(spec)))
                continue;
            specs.push_back(std::move(spec));
            break;
        }
    }
    return specs;
}

/// Of draws that are the same in every run.
inline constexpr std::uint64_t kCornerSeed = 1;

}  // namespace attncheck::properties
