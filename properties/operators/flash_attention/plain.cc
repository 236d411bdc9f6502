// Cases of FlashAttention as people run it: widths 64, 80, 96 and 128, causal, window or no mask, grouped heads, lengths
// around those of tiles.
#include "properties/operators/flash_attention/case.h"

namespace attncheck::properties {

Spec plain_flash(const Schema& schema, Random& random) {
    using Int = std::int64_t;
    Spec spec(schema);
    spec.numbers[kFaDtype] = random.pick<Int>({0, 1, 1, 0, 2});
    spec.numbers[kFaLayout] = static_cast<Int>(
        random.pick({FlashLayout::bsnd, FlashLayout::bsnd, FlashLayout::tnd, FlashLayout::bnsd}));
    draw_plain_shape(spec, random, spec.numbers[kFaLayout] == static_cast<Int>(FlashLayout::tnd));
    const bool is_written = spec.numbers[kFaLayout] != static_cast<Int>(FlashLayout::tnd) && random.chance(8);
    const Int mode = is_written ? random.between(0, 1) : random.pick<Int>({-1, 2, 3, 3, 4});
    if (mode >= 0) {
        spec.numbers[kFaMask] = 1;
        spec.numbers[kFaSparse] = mode;
    }
    if (mode == 4) {
        spec.numbers[kFaPre] = random.between(1, 80);
        spec.numbers[kFaNext] = random.chance(60) ? 0 : random.between(0, 20);
    }
    spec.seed = random.next() >> 40;
    return spec;
}

}  // namespace attncheck::properties
