// The inputs of compress attention beyond those of all attention operators: both masks,
// and which keys lead. Every value is a function of the seed and the logical index alone.
#include "properties/operators/nsa_compress_attention/case.h"

namespace attncheck::properties::compress_attention {
namespace {

std::uint64_t hash_of(std::uint64_t seed, std::int64_t a, std::int64_t b, std::int64_t c) {
    return mix(mix(mix(seed ^ 0x2f9be6cc) + static_cast<std::uint64_t>(a) * 0x9E3779B185EBCA87ull) +
               static_cast<std::uint64_t>(b) * 0xC2B2AE3D27D4EB4Full +
               static_cast<std::uint64_t>(c));
}

/// One mask; marked(row, column, hash) says what it contains. Any non-zero byte of uint8 marks.
template <class Marked>
void fill_mask(const Spec& spec, int tensor, MaskTensor& mask, const Marked& marked) {
    if (!mask.present) return;
    const std::int64_t rows = mask.shape[0], columns = mask.shape[1];
    mask.bits.assign(static_cast<std::size_t>(rows * columns), 0);
    if (spec.recipe == Recipe::zeros) return;
    for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t column = 0; column < columns; ++column) {
            const std::uint64_t hash = hash_of(spec.seed, row, column, 80 + tensor);
            const std::uint32_t byte = mask.dtype == ref::Dtype::uint8 && hash % 3 != 0
                                           ? 1u + static_cast<std::uint32_t>(hash >> 32) % 255u
                                           : 1u;
            if (marked(row, column, hash))
                mask.bits[static_cast<std::size_t>(row * columns + column)] = byte;
        }
}

}  // namespace

void fill_masks(const Spec& spec, Parts& parts) {
    const ref::CompressAttentionShape& s = parts.shape;
    const std::int64_t l = s.compress_block, d = s.compress_stride, select = s.select_block,
                       keys = s.keys_per_select();
    const std::uint64_t percent = Random(spec.seed).pick<std::uint64_t>({5, 30, 50, 50, 80, 95}),
                        forced = Random(spec.seed + 1).pick<std::uint64_t>({5, 10, 30, 50});
    fill_mask(
        spec, kAttenMask, parts.mask, [&](std::int64_t row, std::int64_t i, std::uint64_t hash) {
            switch (static_cast<Hides>(spec.numbers[kHides])) {
                case Hides::random:
                    return hash_of(spec.seed, row, 0, 79) % 7 == 0 || hash / 3 % 100 < percent;
                case Hides::causal:
                    return i * d + l - 1 > row;
                case Hides::ramp:
                    return i > row;
                case Hides::all:
                    return true;
                case Hides::striped:
                    return i / keys % 2 == 1;
            }
            return false;
        });
    fill_mask(spec, kForcedBlocks, parts.topk_mask,
              [&](std::int64_t row, std::int64_t j, std::uint64_t hash) {
                  const std::int64_t own = row / select;
                  switch (static_cast<Forces>(spec.numbers[kForces])) {
                      case Forces::random:
                          return hash / 3 % 100 < forced;
                      case Forces::paper:
                          return j == 0 || j == own || j == own - 1;
                      case Forces::most:
                          return hash / 3 % 10 != 0;
                      case Forces::last:
                          return j + 1 == parts.topk_mask.shape[1];
                      case Forces::all:
                          return true;
                  }
                  return false;
              });
}

InputRecipe recipe_of(const Spec& spec, const Parts& parts) {
    const bool single = static_cast<LogitKind>(spec.numbers[kLogits]) == LogitKind::single;
    return {.scale = parts.narrowed_scale(),
            .hash =
                [seed = spec.seed](const InputElement& at) {
                    return hash_of(seed + static_cast<std::uint64_t>(at.tensor), at.row, at.head,
                                   at.channel);
                },
            .leads = [single, seed = spec.seed, keys = parts.shape.keys_per_select()](
                         std::int64_t position, std::int64_t first, std::int64_t length,
                         std::int64_t head) {
                if (!single) return position % keys == 0;
                return position == static_cast<std::int64_t>(hash_of(seed, first, head, 81) %
                                                             static_cast<std::uint64_t>(length));
            }};
}

}  // namespace attncheck::properties::compress_attention
