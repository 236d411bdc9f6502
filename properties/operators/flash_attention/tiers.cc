// Flash attention and its gradient: second and third tier.
#include <algorithm>

#include "properties/judge/attention_tiers.h"
#include "properties/laws/attention_laws.h"
#include "properties/operators/flash_attention/problem.h"

namespace attncheck::properties {
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
    Property property = deviation_property(flash_attention_operator(), make_flash_tier_case);
    property.domain = is_flash_tier_data;
    list.insert(list.begin() + 1, std::move(property));
}

}  // namespace attncheck::properties
