// Values of the inputs of compress attention: both masks, and the structure that query and key get
// so that logits are equal, dominated by some keys, or far below zero. Every value is a function of
// the seed and the logical index alone.
#include <algorithm>
#include <cmath>

#include "properties/case/data.h"
#include "properties/operators/nsa_compress_attention/case.h"

namespace attncheck::properties::compress_attention {
namespace {

std::uint64_t hash_of(std::uint64_t seed, std::int64_t a, std::int64_t b, std::int64_t c) {
    return mix(mix(mix(seed ^ 0x2f9be6cc) + static_cast<std::uint64_t>(a) * 0x9E3779B185EBCA87ull) +
               static_cast<std::uint64_t>(b) * 0xC2B2AE3D27D4EB4Full +
               static_cast<std::uint64_t>(c));
}

bool is_broadcast(const Spec& spec, int tensor) {
    return spec.layouts[static_cast<std::size_t>(tensor)] == Layout::broadcast;
}

/// One mask; marked(row, column, hash) says what it contains. Any non-zero byte of uint8 marks.
template <class Marked>
void fill_mask(const Spec& spec, int tensor, Parts::Mask& mask, const Marked& marked) {
    if (!mask.present) return;
    const std::int64_t rows = mask.shape[0], columns = mask.shape[1];
    mask.bits.assign(static_cast<std::size_t>(rows * columns), 0);
    if (spec.recipe == Recipe::zeros) return;
    const bool broadcast = is_broadcast(spec, tensor);
    for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t c = 0; c < columns; ++c) {
            const std::int64_t column = broadcast ? 0 : c;
            const std::uint64_t hash = hash_of(spec.seed, row, column, 80 + tensor);
            const std::uint32_t byte = mask.dtype == ref::Dtype::uint8 && hash % 3 != 0
                                           ? 1u + static_cast<std::uint32_t>(hash >> 32) % 255u
                                           : 1u;
            if (marked(row, column, hash))
                mask.bits[static_cast<std::size_t>(row * columns + c)] = byte;
        }
}

/// The recipe of one tensor: softmax needs moderate logits, so query and key follow only the
/// recipes that keep them so, and huge or subnormal numbers go where products are linear.
Recipe recipe_for(Recipe recipe, int tensor) {
    switch (recipe) {
        case Recipe::onehot:
        case Recipe::cancelling:
        case Recipe::subnormal:
        case Recipe::huge:
            return tensor == kValue ? recipe : Recipe::normal;
        case Recipe::spiky:
            return tensor == kKey ? Recipe::normal : recipe;
        default:
            return tensor != kValue && recipe == Recipe::ones ? Recipe::normal : recipe;
    }
}

double element(const Spec& spec, const Parts& parts, int tensor, std::int64_t row,
               std::int64_t head, std::int64_t c, std::int64_t rows, std::int64_t dim,
               std::int64_t elements) {
    const Recipe recipe = recipe_for(spec.recipe, tensor);
    if (recipe == Recipe::ints)  // -2..2: logits and sums of a case stay exact in fp32
        return static_cast<double>(
                   hash_of(spec.seed + static_cast<std::uint64_t>(tensor), row, head, c) % 5) -
               2;
    if (recipe == Recipe::onehot)  // the output shows the probabilities
        return c == row % dim ? 1 : 0;
    const std::int64_t index[3] = {row, head, c};
    return recipe_value(recipe, spec.seed, {tensor, false, rows}, parts.dtype, index, elements);
}

/// Offset that all logits of a sequence share, or 0.
double logit_offset(LogitKind kind) {
    switch (kind) {
        case LogitKind::minus40:
            return -40;
        case LogitKind::minus120:
            return -120;
        case LogitKind::minus300:
            return -300;
        case LogitKind::plus300:
            return 300;
        case LogitKind::minus20000:
            return -20000;  // below any stand-in for minus infinity
        default:
            return 0;
    }
}

/// Where a key row stands: position in its sequence, first row and length of that; rows beyond the
/// last sequence form one of their own.
struct KeyPlace {
    std::int64_t position, first, length;
};

std::vector<KeyPlace> key_places(const ref::CompressAttentionShape& s) {
    std::vector<KeyPlace> places;
    std::int64_t first = 0;
    const auto add = [&](std::int64_t length) {
        for (std::int64_t j = 0; j < length; ++j) places.push_back({j, first, length});
        first += length;
    };
    for (const std::int64_t length : s.cmp_lengths) add(length);
    add(s.total_keys - first);
    return places;
}

/// Channel 0 of query and key carries what the logits are to have beside their noise.
void shape_logits(const Spec& spec, const Parts& parts, std::vector<double>& query,
                  std::vector<double>& key) {
    const auto kind = static_cast<LogitKind>(spec.numbers[kLogits]);
    const ref::CompressAttentionShape& s = parts.shape;
    const double scale = parts.narrowed_scale();
    if (kind == LogitKind::plain || (scale == 0 && kind != LogitKind::equal)) return;
    const auto dim = static_cast<std::size_t>(s.head_dim),
               heads = static_cast<std::size_t>(s.kv_heads);
    const double sign = scale < 0 ? -1 : 1, offset = logit_offset(kind);
    const bool leads = kind == LogitKind::dominant || kind == LogitKind::single;
    // 64 * 64 leads by 200 and more at every scale that is not zero or less than a tenth.
    const double part = leads ? 64 : std::sqrt(std::fabs(offset / scale));
    if (kind != LogitKind::equal)
        for (std::size_t i = 0; i < query.size(); i += dim) query[i] = part;
    const std::vector<KeyPlace> places = key_places(s);
    for (std::size_t j = 0; j < places.size(); ++j)
        for (std::size_t n = 0; n < heads; ++n) {
            const auto [position, first, length] = places[j];
            double* const here = key.data() + (j * heads + n) * dim;
            if (kind == LogitKind::equal) {
                std::copy_n(key.data() + (static_cast<std::size_t>(first) * heads + n) * dim, dim,
                            here);
                continue;
            }
            const auto chosen = static_cast<std::int64_t>(
                hash_of(spec.seed, first, static_cast<std::int64_t>(n), 81) %
                static_cast<std::uint64_t>(length));
            const bool is_leader = kind == LogitKind::single ? position == chosen
                                                             : position % s.keys_per_select() == 0;
            here[0] = leads ? (is_leader ? sign * part : 0) : sign * std::copysign(part, offset);
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

void fill_data(const Spec& spec, Parts& parts) {
    const ref::CompressAttentionShape& s = parts.shape;
    const auto shapes = properties::shapes_of(extents_of(spec));
    const auto fill = [&](int tensor) {
        const auto& shape = shapes[static_cast<std::size_t>(tensor)];
        const std::int64_t rows = shape[0], heads = shape[1], dim = shape[2];
        const bool broadcast = is_broadcast(spec, tensor);
        std::vector<double> values(static_cast<std::size_t>(rows * heads * dim));
        if (spec.recipe == Recipe::zeros) return values;
        std::size_t at = 0;
        for (std::int64_t row = 0; row < rows; ++row)
            for (std::int64_t head = 0; head < heads; ++head)
                for (std::int64_t c = 0; c < dim; ++c)
                    values[at++] = element(spec, parts, tensor, row, broadcast ? 0 : head, c,
                                           rows, dim, rows * heads * dim);
        return values;
    };
    auto query = fill(kQuery), key = fill(kKey);
    if (spec.recipe != Recipe::zeros) {
        shape_logits(spec, parts, query, key);
        // Slices of a broadcast tensor are one, whatever the shaping did to them.
        if (is_broadcast(spec, kKey))
            for (std::size_t k = 0; k < key.size(); ++k) {
                const auto dim = static_cast<std::size_t>(s.head_dim),
                           row = dim * static_cast<std::size_t>(s.kv_heads);
                key[k] = key[k / row * row + k % dim];
            }
    }
    const auto encode_all = [&](const std::vector<double>& values) {
        return ref::encode_all(parts.dtype, values);
    };
    parts.query = encode_all(query);
    parts.key = encode_all(key);
    parts.value = encode_all(fill(kValue));
}

}  // namespace attncheck::properties::compress_attention
