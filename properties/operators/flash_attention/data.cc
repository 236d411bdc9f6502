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

/// Softmax needs moderate logits: query and key follow only the recipes that keep them so.
Recipe recipe_for(Recipe recipe, std::string_view tensor, bool gradient) {
    const bool score = tensor.starts_with("query") || tensor.starts_with("key");
    switch (recipe) {
        case Recipe::onehot:
        case Recipe::cancelling:
        case Recipe::subnormal:
            return tensor == "value" ? recipe : Recipe::normal;
        case Recipe::spiky:
            return tensor == "key" || tensor == "dy" ? Recipe::normal : recipe;
        case Recipe::huge:
            return tensor == (gradient ? "dy" : "value") ? recipe : Recipe::normal;
        default:
            return score && recipe == Recipe::ones ? Recipe::normal : recipe;
    }
}

double integer(std::uint64_t hash, std::int64_t reach) {
    return static_cast<double>(
               static_cast<std::int64_t>(hash % static_cast<std::uint64_t>(2 * reach + 1))) -
           static_cast<double>(reach);
}

struct ElementPlace {
    const char* name;
    int tensor;
    std::int64_t row, head, channel, rows, dim, elements;
};

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
    const std::string_view name = at.name;
    const Recipe recipe = recipe_for(spec.recipe, name, parts.gradient);
    const std::int64_t index[3] = {at.row, at.head, at.channel};
    if (recipe == Recipe::ints) {
        const auto row = static_cast<std::uint64_t>(at.row * 1024 + at.head);
        const std::uint64_t seed = spec.seed + 131 * static_cast<std::uint64_t>(at.tensor);
        if (name != "dy")
            return integer(hash_of(seed, row, static_cast<std::uint64_t>(at.channel)), 2);
        const std::uint64_t chosen = hash_of(seed, row);  // one +-1 per row: few bits in products
        return at.channel == static_cast<std::int64_t>(chosen % static_cast<std::uint64_t>(at.dim))
                   ? (chosen >> 32 & 1 ? 1 : -1)
                   : 0;
    }
    if (name == "value" && wants_halves(spec, parts)) return half_way_value(spec, parts, at);
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
    if (!mask.present || (mask.sparse_mode != 0 && mask.sparse_mode != 1 && mask.sparse_mode != 5))
        return;
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
    const auto pse = static_cast<FlashPse>(spec.numbers[kFaPse]);
    const bool toeplitz = pse == FlashPse::compressed || pse == FlashPse::compressed_batch;
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
    std::int64_t bits = 0;
    const ref::FlashAttentionShape& s = parts.shape;
    for (std::size_t b = 0; b < s.query_lengths.size(); ++b)
        bits += s.query_heads * s.query_lengths[b] * s.kv_lengths[b];
    const auto kind = static_cast<FlashDrop>(spec.numbers[kFaDrop]);
    const auto keep = static_cast<std::uint64_t>(256 * std::min(0.9, parts.keep_prob));
    dropout.bytes.assign(static_cast<std::size_t>((bits + 7) / 8),
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
    const ref::FlashAttentionShape& s = parts.shape;
    const auto fill = [&](const char* name, std::int64_t rows, std::int64_t heads,
                          std::int64_t dim) {
        std::vector<double> values(static_cast<std::size_t>(rows * heads * dim));
        if (spec.recipe == Recipe::zeros) return values;
        const std::int64_t elements = rows * heads * dim;
        for_row_ranges(rows, elements, [&](std::int64_t begin, std::int64_t end) {
            ElementPlace at{name, spec.schema->tensor(name), 0, 0, 0, rows, dim, elements};
            auto i = static_cast<std::size_t>(begin * heads * dim);
            for (at.row = begin; at.row < end; ++at.row)
                for (at.head = 0; at.head < heads; ++at.head)
                    for (at.channel = 0; at.channel < dim; ++at.channel)
                        values[i++] = element(spec, parts, at);
        });
        return values;
    };
    auto query = fill("query", s.total_queries, s.query_heads, s.head_dim);
    auto key = fill("key", s.total_keys, s.kv_heads, s.head_dim);
    if (spec.recipe != Recipe::zeros) shape_logits(spec, parts, query, key);
    const auto encode_all = [&](const std::vector<double>& values) {
        return ref::encode_all(parts.dtype, values);
    };
    parts.query = encode_all(query);
    parts.key = encode_all(key);
    parts.value = encode_all(fill("value", s.total_keys, s.kv_heads, s.value_dim));
    if (s.rope_dim > 0) {
        parts.query_rope =
            encode_all(fill("query_rope", s.total_queries, s.query_heads, s.rope_dim));
        parts.key_rope = encode_all(fill("key_rope", s.total_keys, s.kv_heads, s.rope_dim));
    }
    if (parts.gradient)
        parts.output_grad = encode_all(fill("dy", s.total_queries, s.query_heads, s.value_dim));
}

}  // namespace attncheck::properties
