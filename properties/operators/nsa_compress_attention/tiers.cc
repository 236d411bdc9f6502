// Compress attention: second and third tier of its attention part. The lists have no rounding
// error; the first tier judges them.
#include "properties/judge/attention_tiers.h"
#include "properties/laws/attention_laws.h"
#include "properties/operators/nsa_compress_attention/problem.h"

namespace attncheck::properties::compress_attention {
void make_tier_case(Spec& spec, Random& random) {
    const std::int64_t least =
        std::max<std::int64_t>(1, spec.numbers[kSelect] / spec.numbers[kStride]) *
        spec.numbers[kCount];
    properties::make_tier_case(spec, random, 1, least,
                               1'500'000 / (spec.numbers[kDim] + spec.numbers[kValueDim] + 16));
}

void add_tiers(std::vector<Property>& list) {
    list.insert(list.begin() + 1, deviation_property(attention_operator(),
                                                      compress_attention::make_tier_case));
}

}  // namespace attncheck::properties::compress_attention
