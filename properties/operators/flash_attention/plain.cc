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
    spec.numbers[kFaKvHeads] = random.pick<Int>({1, 1, 2});
    spec.numbers[kFaGroup] = random.pick<Int>({1, 1, 2, 4});
    spec.numbers[kFaDim] = spec.numbers[kFaValueDim] = random.pick<Int>({64, 64, 128, 80, 96});
    spec.numbers[kFaScale] = static_cast<Int>(ScaleKind::rsqrt);
    const auto length = [&] {
        return random.chance(40) ? random.between(1, 150)
                                 : random.pick<Int>({63, 64, 65, 96, 127, 128, 129});
    };
    const auto sequences = static_cast<std::size_t>(random.pick<Int>({1, 1, 2, 3}));
    for (std::size_t b = 0; b < sequences; ++b) {
        const bool is_new = b == 0 || spec.numbers[kFaLayout] == static_cast<Int>(FlashLayout::tnd);
        const Int kv = is_new ? length() : spec.lists[1][0];
        const Int q = !is_new ? spec.lists[0][0] : random.chance(60) ? kv : random.between(1, kv);
        spec.lists[0].push_back(q);
        spec.lists[1].push_back(kv);
    }
    const Int mode = random.pick<Int>({-1, 3, 3, 4});
    if (mode > 0) {
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
