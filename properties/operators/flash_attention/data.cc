// Masks, biases and drop bits of flash attention, and what its other inputs draw in a way of their
// own. Every value is a function of the seed and the logical index.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "properties/operators/flash_attention/case.h"

namespace attncheck::properties {
namespace {

/// Equal probabilities of values one unit in the last place apart: many an output lies half way
/// between two numbers of the type, where rounding modes differ.
bool wants_halves(const Spec& spec, const FlashParts& parts) {
    return !parts.gradient && spec.recipe == Recipe::signs && spec.numbers[kFaLogits] == 1 &&
           parts.dtype != ref::Dtype::fp32;
}

/// +-2^(p-1) or the number behind it, p the bits of the significand; one sign per head and channel.
double half_way_value(std::uint64_t seed, ref::Dtype dtype, const InputElement& at) {
    const double first = dtype == ref::Dtype::fp16 ? 1024 : 128;
    const auto head = static_cast<std::uint64_t>(at.head),
               channel = static_cast<std::uint64_t>(at.channel);
    const std::uint64_t row = static_cast<std::uint64_t>(at.row) * 1024 + head;
    const double size = first + static_cast<double>(pair_hash(seed, row, channel) & 1);
    return pair_hash(seed + 1, head, channel) & 1 ? -size : size;
}

}  // namespace

/// A bias of -inf takes a key's weight as a mask does. Without a mask every row sees every key, and one
/// keeps its bias: a row of nothing but -inf has no result. Nor has one whose scale, which
/// multiplies a bias of type 1 too, makes NaN or +inf of it.
bool hides_by_bias(const Spec& spec, const FlashParts& parts) {
    const ref::FlashBias& bias = parts.shape.bias;
    return (bias.type == 0 || (bias.type == 1 && parts.shape.scale > 0)) &&
           bias.shape.size() == 4 && !is_compressed(spec) && !parts.shape.mask.present &&
           spec.recipe != Recipe::ints &&
           spec.recipe != Recipe::specials && mix(spec.seed ^ 0xb1a5) % 2 == 0;
}

/// Which keys are hidden so: a quarter of them or nearly all, but for the first or one of the last, behind tiles of -inf alone.
class HiddenByBias {
public:
    HiddenByBias(const Spec& spec, std::int64_t columns) : columns_(static_cast<std::size_t>(columns)) {
        Random random(mix(spec.seed ^ 0xb1a6));
        percent_ = random.pick<std::uint64_t>({25, 97});
        kept_ = random.chance(50) ? 0 : columns_ - 1 - static_cast<std::size_t>(random.between(0, std::min<std::int64_t>(columns - 1, 15)));
    }
    bool operator()(std::size_t place, std::uint64_t hash) const {
        return place % columns_ != kept_ && mix(hash) % 100 < percent_;
    }

private:
    std::size_t columns_, kept_ = 0;
    std::uint64_t percent_ = 0;
};

/// Compressed masks have fixed contents.
void fill_flash_mask(const Spec& spec, FlashParts& parts) {
    ref::FlashMask& mask = parts.shape.mask;
    if (!mask.present || !flash_reads_mask(mask.sparse_mode)) return;
    std::size_t count = 1;
    for (const auto extent : mask.shape) count *= static_cast<std::size_t>(extent);
    mask.values.assign(count, 0);
    if (spec.recipe == Recipe::zeros || count == 0) return;
    const HiddenPairs hides(spec.seed, 79, static_cast<std::size_t>(mask.shape.back()));
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint64_t hash = pair_hash(spec.seed, i, 85);
        // Any non-zero byte of a uint8 mask hides.
        const auto byte = static_cast<std::uint8_t>(
            parts.mask_dtype == ref::Dtype::uint8 && hash % 3 != 0 ? 1 + (hash >> 32) % 255 : 1);
        if (hides(i)) mask.values[i] = byte;
    }
}

/// Biases of unit variance; slopes of the size ALiBi uses. A compressed bias depends on i - j
/// alone.
void fill_flash_bias(const Spec& spec, FlashParts& parts) {
    ref::FlashBias& bias = parts.shape.bias;
    if (!bias.present) return;
    std::size_t count = 1;
    for (const auto extent : bias.shape) count *= static_cast<std::size_t>(extent);
    parts.pse.assign(count, 0);
    const bool toeplitz = is_compressed(spec);
    std::optional<HiddenByBias> hides;
    if (hides_by_bias(spec, parts) && bias.shape[3] > 0) hides.emplace(spec, bias.shape[3]);
    if (spec.recipe != Recipe::zeros)
        for (std::size_t i = 0; i < count; ++i) {
            std::uint64_t place = i;
            if (toeplitz) {
                const auto rows = static_cast<std::size_t>(bias.shape[2]),
                           columns = static_cast<std::size_t>(bias.shape[3]);
                const std::size_t row = i / columns % rows, column = i % columns;
                place = (i / columns / rows) * 1'000'003 + row + columns - column;
            }
            const std::uint64_t hash = pair_hash(spec.seed, place, 81);
            double value = spec.recipe == Recipe::ints ? whole_number(hash, 2) : normal_of(hash);
            if (hides && (*hides)(i, hash))
                value = -std::numeric_limits<double>::infinity();
            parts.pse[i] = ref::encode(parts.bias_type(), bias.type >= 2 ? value / 4 : value);
        }
    parts.take_bias();
}

void fill_flash_dropout(const Spec& spec, FlashParts& parts) {
    ref::FlashDropout& dropout = parts.shape.dropout;
    if (!dropout.present) return;
    const auto kind = static_cast<FlashDrop>(spec.numbers[kFaDrop]);
    const double prob = std::min(0.9, parts.keep_prob);
    const auto keep = static_cast<std::uint64_t>(256 * prob),
               rare = static_cast<std::uint64_t>(65'536 * prob);
    const bool is_rare = prob < 0.1;  // 8 bits of a hash are too few then
    dropout.bytes.assign(static_cast<std::size_t>(extents_of(spec)["drop_bytes"]),
                         kind == FlashDrop::keep_all ? 0xFF : 0);
    if (kind != FlashDrop::random || spec.recipe == Recipe::zeros) return;
    for (std::size_t i = 0; i < dropout.bytes.size(); ++i) {
        const std::uint64_t hash = pair_hash(spec.seed, i, 82);
        for (int bit = 0; bit < 8; ++bit)
            if (is_rare ? (pair_hash(spec.seed, 8 * i + static_cast<std::uint64_t>(bit), 83) &
                           0xFFFF) < rare
                        : (hash >> (8 * bit) & 0xFF) < keep)
                dropout.bytes[i] = static_cast<std::uint8_t>(dropout.bytes[i] | 1 << bit);
    }
}

InputRecipe flash_recipe(const Spec& spec, const FlashParts& parts) {
    InputRecipe how{
        .scale = parts.shape.scale,
        .hash = indexed_hash(spec.seed),
        .leads = [seed = spec.seed](std::int64_t position, std::int64_t, std::int64_t length,
                                    std::int64_t) { return leads_in_steps(seed, position, length); },
        .shapes_rows_beyond = false};
    if (wants_halves(spec, parts))
        how.own = [seed = spec.seed,
                   dtype = parts.dtype](const InputElement& at) -> std::optional<double> {
            if (at.role != Role::value) return std::nullopt;
            return half_way_value(seed, dtype, at);
        };
    return how;
}

}  // namespace attncheck::properties
