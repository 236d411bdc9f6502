// Values of flash attention that few callers use. They come behind the generator, as a function of the
// case that it drew.
#include "properties/operators/flash_attention/case.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

/// One head and D of at most 8: a case of many rows is as cheap as a short one.
Spec one_thin_head(const Spec& spec, Random& random) {
    Spec thin = spec;
    thin.overrides.clear();
    thin.numbers[kFaKvHeads] = thin.numbers[kFaGroup] = 1;
    thin.numbers[kFaDim] = random.pick<Int>({1, 3, 8});
    thin.numbers[kFaValueDim] = random.between(1, thin.numbers[kFaDim]);
    thin.numbers[kFaRope] = thin.numbers[kFaBeyondQ] = thin.numbers[kFaBeyondKv] = 0;
    return thin;
}

/// A few queries of one head with more keys than a cache or an index of 16 bits holds. The oracle is
/// exact at any length, and D of at most 8 keeps a case as cheap as a short one.
Spec long_and_thin(const Spec& spec, Random& random) {
    Spec thin = one_thin_head(spec, random);
    if (has_slopes(thin) || is_compressed(thin)) {
        thin.numbers[kFaPse] = thin.numbers[kFaStart] = 0;
        thin.numbers[kFaPseType] = 1;
    }
    const Int keys = random.pick<Int>({4097, 4097, 8193, 32'769, 65'537});
    thin.lists = {{keys > 10'000 ? 1 : random.between(1, 4)}, {keys}};
    // Or nobody asks for those keys, and the next sequence begins behind them.
    if (is_tnd(thin) && random.chance(60)) thin.lists = {{0, random.between(1, 5)}, {65'536 + random.between(0, 40), random.between(1, 20)}};
    return thin;
}

/// More than twice the 1024 rows that a compressed bias has.
Spec with_long_compressed_bias(const Spec& spec, Random& random) {
    Spec thin = one_thin_head(spec, random);
    const Int rows = random.between(2050, 2300);
    thin.lists = {{rows}, {rows}};
    thin.recipe = Recipe::normal;
    thin.numbers[kFaLogits] = 0;
    thin.set("scale", static_cast<Int>(ScaleKind::rsqrt));
    return thin;
}

}  // namespace

void draw_rare_flash_values(Spec& spec) {
    Random random(mix(spec.seed ^ 0x7a7e) ^ static_cast<std::uint64_t>(spec.numbers[kFaDim]));
    if (spec.numbers[kFaDrop] == static_cast<Int>(FlashDrop::random) &&
        spec.numbers[kFaKeep] != 0 && random.chance(12))
        spec.numbers[kFaKeep] = static_cast<Int>(
            random.pick({FlashKeep::hundredth, FlashKeep::thousandth}));
    constexpr int kLongCompressed = 2;
    if (is_compressed(spec) && random.chance(kLongCompressed)) {
        Spec thin = with_long_compressed_bias(spec, random);
        if (!illegal(thin)) spec = std::move(thin);
        return;
    }
    if (random.between(0, 999) >= 4) return;
    Spec thin = long_and_thin(spec, random);
    if (!illegal(thin)) spec = std::move(thin);
}

}  // namespace attncheck::properties
