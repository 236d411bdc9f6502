// Values of the inputs of flash attention: masks, biases, drop bits, and query and key with the
// structure that makes logits equal, dominated by one key, or far below zero. Every value is a
// function of the seed and the logical index.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "properties/case/data.h"
#include "properties/operators/flash_attention/case.h"

namespace attncheck::properties {
namespace {

std::uint64_t hash_of(std::uint64_t seed, std::uint64_t a, std::uint64_t b = 0) {
    return mix(mix(seed ^ 0x7f4a7c15u) + a * 0x9E3779B185EBCA87ull + b * 0xC2B2AE3D27D4EB4Full);
}

/// Zero mean, unit variance, from a hash.
double normal(std::uint64_t hash) {
    const double sum = static_cast<double>((hash & 0xFFFF) + (hash >> 16 & 0xFFFF) +
                                           (hash >> 32 & 0xFFFF) + (hash >> 48));
    return (sum - 2 * 65535.0) * (std::sqrt(3.0) / 65536.0);
}

struct ElementPlace {
    Role role;
    bool is_rope;
    int tensor;
    std::int64_t row, head, channel, rows, dim, elements;
};

/// Softmax needs moderate logits: query and key follow only the recipes that keep them so.
Recipe recipe_for(Recipe recipe, const ElementPlace& at, bool gradient) {
    const Role role = at.role;
    switch (recipe) {
        case Recipe::onehot:
        case Recipe::cancelling:
        case Recipe::subnormal:
            return role == Role::value ? recipe : Recipe::normal;
        case Recipe::spiky:
            return (role == Role::key && !at.is_rope) || role == Role::output_grad ? Recipe::normal
                                                                                  : recipe;
        case Recipe::huge:
            return role == (gradient ? Role::output_grad : Role::value) ? recipe : Recipe::normal;
        case Recipe::ones:
            return role == Role::query || role == Role::key ? Recipe::normal : recipe;
        default:
            return recipe;
    }
}

double integer(std::uint64_t hash, std::int64_t reach) {
    return static_cast<double>(
               static_cast<std::int64_t>(hash % static_cast<std::uint64_t>(2 * reach + 1))) -
           static_cast<double>(reach);
}

/// Equal probabilities of values one unit in the last place apart: many an output lies half way
/// between two numbers of the type, where rounding modes differ.
bool wants_halves(const Spec& spec, const FlashParts& parts) {
    return !parts.gradient && spec.recipe == Recipe::signs && spec.numbers[kFaLogits] == 1 &&
           parts.dtype != ref::Dtype::fp32;
}

/// +-2^(p-1) or the number behind it, p the bits of the significand; one sign per head and channel.
double half_way_value(const Spec& spec, const FlashParts& parts, const ElementPlace& at) {
    const double first = parts.dtype == ref::Dtype::fp16 ? 1024 : 128;
    const auto head = static_cast<std::uint64_t>(at.head),
               channel = static_cast<std::uint64_t>(at.channel);
    const std::uint64_t row = static_cast<std::uint64_t>(at.row) * 1024 + head;
    const double size = first + static_cast<double>(hash_of(spec.seed, row, channel) & 1);
    return hash_of(spec.seed + 1, head, channel) & 1 ? -size : size;
}

double element(const Spec& spec, const FlashParts& parts, const ElementPlace& at) {
    const Recipe recipe = recipe_for(spec.recipe, at, parts.gradient);
    const std::int64_t index[3] = {at.row, at.head, at.channel};
    if (recipe == Recipe::ints) {
        const auto row = static_cast<std::uint64_t>(at.row * 1024 + at.head);
        const std::uint64_t seed = spec.seed + 131 * static_cast<std::uint64_t>(at.tensor);
        if (at.role != Role::output_grad)
            return integer(hash_of(seed, row, static_cast<std::uint64_t>(at.channel)), 2);
        const std::uint64_t chosen = hash_of(seed, row);  // one +-1 per row: few bits in products
        return at.channel == static_cast<std::int64_t>(chosen % static_cast<std::uint64_t>(at.dim))
                   ? (chosen >> 32 & 1 ? 1 : -1)
                   : 0;
    }
    if (at.role == Role::value && wants_halves(spec, parts)) return half_way_value(spec, parts, at);
    if (recipe == Recipe::onehot)  // the output shows the probabilities
        return at.channel == at.row % at.dim ? 1 : 0;
    return recipe_value(recipe, spec.seed, {at.tensor, false, at.rows}, parts.dtype, index,
                        at.elements);
}

/// Channel 0 of query and key carries what the logits are to have beside their noise.
void shape_logits(const Spec& spec, const FlashParts& parts, std::vector<double>& query,
                  std::vector<double>& key) {
    const ref::FlashAttentionShape& s = parts.shape;
    const std::int64_t kind = spec.numbers[kFaLogits];
    const auto dim = static_cast<std::size_t>(s.head_dim),
               heads = static_cast<std::size_t>(s.kv_heads);
    if (kind == 0 || (s.scale == 0 && kind != 1)) return;
    const double sign = s.scale < 0 ? -1 : 1;
    std::size_t row = 0;
    constexpr double kOffsets[] = {0, 0, 0, -40, -120, -300, 300, -20000};
    const double offset = kOffsets[kind];
    const double part = kind == 2 ? 64 : std::sqrt(std::fabs(offset / s.scale));
    for (const std::int64_t length : s.kv_lengths) {
        const std::size_t first = row * heads * dim;
        for (std::int64_t j = 0; j < length; ++j, ++row)
            for (std::size_t n = 0; n < heads; ++n) {
                double* const k = key.data() + (row * heads + n) * dim;
                if (kind == 1)
                    std::copy_n(key.data() + first + n * dim, dim, k);
                else if (kind == 2)  // every 16th key leads
                    k[0] = j % 16 == 0 ? sign * part : 0;
                else
                    k[0] = sign * std::copysign(part, offset);
            }
    }
    if (kind != 1)
        for (std::size_t i = 0; i < query.size(); i += dim) query[i] = part;
}

}  // namespace

/// Hidden pairs with a density of the case's own; some rows see nothing. Compressed masks have
/// fixed contents.
void fill_flash_mask(const Spec& spec, FlashParts& parts) {
    ref::FlashMask& mask = parts.shape.mask;
    if (!mask.present || !flash_reads_mask(mask.sparse_mode)) return;
    std::size_t count = 1;
    for (const auto extent : mask.shape) count *= static_cast<std::size_t>(extent);
    mask.values.assign(count, 0);
    if (spec.recipe == Recipe::zeros || count == 0) return;
    const std::uint64_t percent = Random(spec.seed).pick<std::uint64_t>({5, 50, 50, 90, 97});
    const auto columns = static_cast<std::size_t>(mask.shape.back());
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint64_t hash = hash_of(spec.seed, i, 80);
        const bool blind = hash_of(spec.seed, i / columns, 79) % 11 == 0;
        // Any non-zero byte of a uint8 mask hides.
        const auto byte = static_cast<std::uint8_t>(
            parts.mask_dtype == ref::Dtype::uint8 && hash % 3 != 0 ? 1 + (hash >> 32) % 255 : 1);
        if (blind || hash % 100 < percent) mask.values[i] = byte;
    }
}

/// Biases of unit variance; slopes of the size ALiBi uses. A compressed bias depends on i - j
/// alone.
void fill_flash_bias(const Spec& spec, FlashParts& parts) {
    ref::FlashBias& bias = parts.shape.bias;
    if (!bias.present) return;
    const ref::Dtype dtype = bias.type >= 2 ? ref::Dtype::fp32 : parts.result;
    std::size_t count = 1;
    for (const auto extent : bias.shape) count *= static_cast<std::size_t>(extent);
    parts.pse.assign(count, 0);
    const bool toeplitz = is_compressed(spec);
    if (spec.recipe != Recipe::zeros)
        for (std::size_t i = 0; i < count; ++i) {
            std::uint64_t place = i;
            if (toeplitz) {
                const auto rows = static_cast<std::size_t>(bias.shape[2]),
                           columns = static_cast<std::size_t>(bias.shape[3]);
                const std::size_t row = i / columns % rows, column = i % columns;
                place = (i / columns / rows) * 1'000'003 + row + columns - column;
            }
            const double value = spec.recipe == Recipe::ints
                                     ? integer(hash_of(spec.seed, place, 81), 2)
                                     : normal(hash_of(spec.seed, place, 81));
            parts.pse[i] = ref::encode(dtype, bias.type >= 2 ? value / 4 : value);
        }
    bias.values = decode_all(dtype, parts.pse);
}

void fill_flash_dropout(const Spec& spec, FlashParts& parts) {
    ref::FlashDropout& dropout = parts.shape.dropout;
    if (!dropout.present) return;
    const auto kind = static_cast<FlashDrop>(spec.numbers[kFaDrop]);
    const auto keep = static_cast<std::uint64_t>(256 * std::min(0.9, parts.keep_prob));
    dropout.bytes.assign(static_cast<std::size_t>(extents_of(spec)["drop_bytes"]),
                         kind == FlashDrop::keep_all ? 0xFF : 0);
    if (kind != FlashDrop::random || spec.recipe == Recipe::zeros) return;
    for (std::size_t i = 0; i < dropout.bytes.size(); ++i) {
        const std::uint64_t hash = hash_of(spec.seed, i, 82);
        for (int bit = 0; bit < 8; ++bit)
            if ((hash >> (8 * bit) & 0xFF) < keep)
                dropout.bytes[i] = static_cast<std::uint8_t>(dropout.bytes[i] | 1 << bit);
    }
}

void fill_flash_data(const Spec& spec, FlashParts& parts) {
    const Extents extents = extents_of(spec);
    const auto shapes = shapes_of(extents);
    std::vector<double> query, key;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
        const TensorField& field = spec.schema->tensors[i];
        if (shapes[i].size() != 3 || field.output || field.derived) continue;
        const std::int64_t rows = shapes[i][0], heads = shapes[i][1], dim = shapes[i][2],
                           elements = rows * heads * dim;
        const auto part = bits_of(field.name);
        const bool is_rope = part == &FlashParts::query_rope || part == &FlashParts::key_rope;
        std::vector<double> values(static_cast<std::size_t>(elements));
        if (spec.recipe != Recipe::zeros)
            for_row_ranges(rows, elements, [&](std::int64_t begin, std::int64_t end) {
                ElementPlace at{field.role, is_rope, static_cast<int>(i), 0, 0, 0, rows, dim,
                                elements};
                auto k = static_cast<std::size_t>(begin * heads * dim);
                for (at.row = begin; at.row < end; ++at.row)
                    for (at.head = 0; at.head < heads; ++at.head)
                        for (at.channel = 0; at.channel < dim; ++at.channel)
                            values[k++] = element(spec, parts, at);
            });
        if (part == &FlashParts::query)
            query = std::move(values);
        else if (part == &FlashParts::key)
            key = std::move(values);
        else
            parts.*part = ref::encode_all(parts.dtype, values);
    }
    if (spec.recipe != Recipe::zeros) shape_logits(spec, parts, query, key);
    parts.query = ref::encode_all(parts.dtype, query);
    parts.key = ref::encode_all(parts.dtype, key);
}

}  // namespace attncheck::properties
