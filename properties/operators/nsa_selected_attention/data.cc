// Values of the inputs of selected attention: block lists, mask, and the structure that query and
// key get so that logits are equal, dominated by one key, or far below zero. Every value is a
// function of the seed and the logical index alone.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "properties/case/data.h"
#include "properties/case/values.h"
#include "properties/operators/nsa_selected_attention/case.h"

namespace attncheck::properties {
namespace {

/// Indices nobody may look at: rows of sequences without keys and rows beyond the last length.
constexpr std::int64_t kNotLookedAt[] = {-1, INT32_MAX, INT32_MIN, 5};

std::uint64_t hash_of(std::uint64_t seed, std::uint64_t a, std::uint64_t b, std::uint64_t c) {
    return mix(mix(mix(seed ^ 0x51ed270b) + a * 0x9E3779B185EBCA87ull) + b * 0xC2B2AE3D27D4EB4Full +
               c);
}

/// K blocks out of `blocks`, distinct (count <= blocks).
std::vector<std::int64_t> distinct_blocks(std::uint64_t seed, std::int64_t blocks,
                                          std::int64_t count) {
    std::vector<std::int64_t> all(static_cast<std::size_t>(blocks));
    std::iota(all.begin(), all.end(), std::int64_t{0});
    Random random(seed);
    for (std::int64_t i = 0; i < count; ++i)
        std::swap(all[static_cast<std::size_t>(i)],
                  all[static_cast<std::size_t>(random.between(i, blocks - 1))]);
    all.resize(static_cast<std::size_t>(count));
    return all;
}

/// The list of one query and kv head. diagonal is the block of the query's own position, clipped to
/// the sequence.
std::vector<std::int64_t> block_list(TopkKind kind, std::uint64_t hash, std::uint64_t shared_hash,
                                     std::int64_t blocks, std::int64_t count,
                                     std::int64_t diagonal) {
    if (kind == TopkKind::first)
        return std::vector<std::int64_t>(static_cast<std::size_t>(count), 0);
    if (kind == TopkKind::same)
        return std::vector<std::int64_t>(
            static_cast<std::size_t>(count),
            static_cast<std::int64_t>(hash % static_cast<std::uint64_t>(blocks)));
    auto list = distinct_blocks(kind == TopkKind::shared ? shared_hash : hash, blocks, count);
    Random random(hash + 1);
    const auto any = [&] { return static_cast<std::size_t>(random.between(0, count - 1)); };
    switch (kind) {
        case TopkKind::canonical:
            std::iota(list.begin(), list.end(), std::int64_t{0});
            break;
        case TopkKind::ascending:
            std::sort(list.begin(), list.end());
            break;
        case TopkKind::descending:
            std::sort(list.rbegin(), list.rend());
            break;
        case TopkKind::scored: {
            for (auto& block : list)
                if (block > diagonal && random.chance(80)) block = random.between(0, diagonal);
            list[any()] = 0;
            list[any()] = diagonal;
            break;
        }
        case TopkKind::repeated:
            list[any()] = list[any()];
            break;
        case TopkKind::diagonal:
            list[any()] = diagonal;
            list[any()] = diagonal;
            break;
        case TopkKind::future:
            for (auto& block : list)
                block = diagonal + 1 < blocks ? random.between(diagonal + 1, blocks - 1) : block;
            break;
        case TopkKind::last:
            list[0] = blocks - 1;
            break;
        default:
            break;
    }
    return list;
}

void fill_topk(const Spec& spec, SelectedParts& parts) {
    const ref::SelectedAttentionShape& s = parts.shape;
    parts.topk.assign(static_cast<std::size_t>(s.total_queries * s.kv_heads * s.count), 0);
    if (spec.recipe == Recipe::zeros) return;
    const auto kind = static_cast<TopkKind>(spec.numbers[kSelTopk]);
    const int tensor = tensor_with(Role::list, *spec.schema);
    const bool broadcast = spec.layouts[static_cast<std::size_t>(tensor)] == Layout::broadcast;
    const auto queries = ref::selected_queries(s);
    std::size_t at = 0;
    for (std::int64_t t = 0; t < s.total_queries; ++t) {
        const ref::SelectedQuery& query = queries[static_cast<std::size_t>(t)];
        for (std::int64_t n = 0; n < s.kv_heads; ++n) {
            const auto head = static_cast<std::uint64_t>(broadcast ? 0 : n);
            if (query.sequence < 0 || query.kv_length == 0) {
                for (std::int64_t i = 0; i < s.count; ++i)
                    parts.topk[at++] = static_cast<std::uint32_t>(
                        kNotLookedAt[hash_of(spec.seed, static_cast<std::uint64_t>(t), head,
                                             static_cast<std::uint64_t>(i)) %
                                     std::size(kNotLookedAt)]);
                continue;
            }
            const std::int64_t blocks = query.kv_length / s.block;
            for (const auto block : block_list(
                     kind, hash_of(spec.seed, static_cast<std::uint64_t>(t), head, 77),
                     hash_of(spec.seed, static_cast<std::uint64_t>(query.sequence), head, 78),
                     blocks, s.count, std::min(query.position / s.block, blocks - 1)))
                parts.topk[at++] = static_cast<std::uint32_t>(block);
        }
    }
}

/// Hidden pairs with a density of the case's own; some rows see nothing. In sparse mode 2 nobody
/// reads it.
void fill_mask(const Spec& spec, SelectedParts& parts) {
    if (!parts.mask.present) return;
    const std::int64_t rows = parts.mask.shape[0], columns = parts.mask.shape[1];
    parts.mask.bits.assign(static_cast<std::size_t>(rows * columns), 0);
    if (spec.recipe == Recipe::zeros) return;
    const int tensor = tensor_with(Role::mask, *spec.schema);
    const bool broadcast = spec.layouts[static_cast<std::size_t>(tensor)] == Layout::broadcast;
    const std::uint64_t percent = Random(spec.seed).pick<std::uint64_t>({5, 50, 50, 90, 97});
    for (std::int64_t row = 0; row < rows; ++row) {
        const bool blind = hash_of(spec.seed, static_cast<std::uint64_t>(row), 0, 79) % 11 == 0;
        for (std::int64_t column = 0; column < columns; ++column) {
            const std::uint64_t hash =
                hash_of(spec.seed, static_cast<std::uint64_t>(row),
                        static_cast<std::uint64_t>(broadcast ? 0 : column), 80);
            const bool hidden = blind || hash % 100 < percent;
            // Any non-zero byte of a uint8 mask hides.
            const std::uint32_t byte =
                parts.mask.dtype == ref::Dtype::uint8
                    ? (hash % 3 == 0 ? 1u : 1u + static_cast<std::uint32_t>(hash >> 32) % 255u)
                    : 1u;
            parts.mask.bits[static_cast<std::size_t>(row * columns + column)] = hidden ? byte : 0;
        }
    }
}

/// The recipe of one tensor: softmax needs moderate logits, so query and key follow only the
/// recipes that keep them so, and huge or subnormal numbers go where products are linear.
Recipe recipe_for(Recipe recipe, Role role, bool gradient) {
    const bool score = role == Role::query || role == Role::key;
    switch (recipe) {
        case Recipe::onehot:
        case Recipe::cancelling:
        case Recipe::subnormal:
            return role == Role::value ? recipe : Recipe::normal;
        case Recipe::spiky:
            return role == Role::key || role == Role::output_grad ? Recipe::normal : recipe;
        case Recipe::huge:
            return role == (gradient ? Role::output_grad : Role::value) ? recipe : Recipe::normal;
        default:
            return score && recipe == Recipe::ones ? Recipe::normal : recipe;
    }
}

struct Filler {
    const Spec& spec;
    const SelectedParts& parts;

    double integer(std::uint64_t hash, std::int64_t reach) const {
        return static_cast<double>(
                   static_cast<std::int64_t>(hash % static_cast<std::uint64_t>(2 * reach + 1))) -
               static_cast<double>(reach);
    }

    /// One element. `row` and `head` are logical; `position` is that of the key in its sequence.
    double value(Role role, int tensor, std::int64_t row, std::int64_t head, std::int64_t c,
                 std::int64_t rows, std::int64_t dim, std::int64_t elements) const {
        const Recipe recipe = recipe_for(spec.recipe, role, parts.gradient);
        const std::int64_t index[3] = {row, head, c};
        const auto hash = [&](std::int64_t r, std::int64_t h, std::int64_t d) {
            return hash_of(spec.seed + static_cast<std::uint64_t>(tensor) * 1315423911u,
                           static_cast<std::uint64_t>(r), static_cast<std::uint64_t>(h),
                           static_cast<std::uint64_t>(d));
        };
        if (recipe == Recipe::ints) {
            if (role != Role::output_grad) return integer(hash(row, head, c), 2);
            // One +-1 per row: products with it have as few bits as the values themselves.
            const std::uint64_t chosen = hash(row, head, 0);
            return c == static_cast<std::int64_t>(chosen % static_cast<std::uint64_t>(dim))
                       ? (chosen >> 32 & 1 ? 1 : -1)
                       : 0;
        }
        if (recipe == Recipe::onehot)  // the output shows the probabilities
            return c == row % dim ? 1 : 0;
        return recipe_value(recipe, spec.seed, {tensor, false, rows}, parts.dtype, index, elements);
    }

    /// Offset that all logits of a sequence share, or 0.
    double logit_offset() const {
        switch (static_cast<LogitKind>(spec.numbers[kSelLogits])) {
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

    /// Channel 0 of query and key carries what the logits are to have beside their noise.
    void shape_logits(std::vector<double>& query, std::vector<double>& key,
                      std::span<const std::int64_t> key_positions,
                      std::span<const std::int64_t> key_firsts) const {
        const auto kind = static_cast<LogitKind>(spec.numbers[kSelLogits]);
        const auto dim = static_cast<std::size_t>(parts.shape.head_dim),
                   heads = static_cast<std::size_t>(parts.shape.kv_heads);
        const double scale = parts.narrowed_scale();
        if (kind == LogitKind::plain || (scale == 0 && kind != LogitKind::equal)) return;
        const double sign = scale < 0 ? -1 : 1;
        if (kind == LogitKind::equal) {
            for (std::size_t j = 0; j < key_positions.size(); ++j)
                std::copy_n(
                    key.begin() + static_cast<std::ptrdiff_t>(
                                      static_cast<std::size_t>(key_firsts[j]) * heads * dim),
                    heads * dim, key.begin() + static_cast<std::ptrdiff_t>(j * heads * dim));
            return;
        }
        const double offset = logit_offset();
        // 64 * 64 leads by 200 and more at every scale that is not zero or a tenth of it.
        const double part = kind == LogitKind::dominant ? 64 : std::sqrt(std::fabs(offset / scale));
        for (std::size_t i = 0; i < query.size(); i += dim) query[i] = part;
        for (std::size_t j = 0; j < key_positions.size(); ++j)
            for (std::size_t n = 0; n < heads; ++n) {
                double& first = key[(j * heads + n) * dim];
                if (kind == LogitKind::dominant)
                    first = key_positions[j] % parts.shape.block == 0 ? sign * part : 0;
                else
                    first = sign * std::copysign(part, offset);
            }
    }
};

/// Key position in its sequence and first key row of the sequence, for every key row.
void key_places(const ref::SelectedAttentionShape& s, std::vector<std::int64_t>& positions,
                std::vector<std::int64_t>& firsts) {
    std::int64_t first = 0;
    for (const std::int64_t length : s.kv_lengths) {
        for (std::int64_t j = 0; j < length; ++j) {
            positions.push_back(j);
            firsts.push_back(first);
        }
        first += length;
    }
    for (std::int64_t row = first; row < s.total_keys; ++row) {
        positions.push_back(row - first);
        firsts.push_back(first);
    }
}

}  // namespace

void fill_selected_lists(const Spec& spec, SelectedParts& parts) {
    fill_topk(spec, parts);
    fill_mask(spec, parts);
}

void fill_selected_data(const Spec& spec, SelectedParts& parts) {
    const Filler filler{spec, parts};
    const auto shapes = shapes_of(extents_of(spec));
    const auto fill = [&](Role role) {
        const int tensor = tensor_with(role, *spec.schema);
        const auto& shape = shapes[static_cast<std::size_t>(tensor)];
        const std::int64_t rows = shape[0], heads = shape[1], dim = shape[2];
        const bool broadcast = spec.layouts[static_cast<std::size_t>(tensor)] == Layout::broadcast;
        std::vector<double> values(static_cast<std::size_t>(rows * heads * dim));
        if (spec.recipe == Recipe::zeros) return values;
        for_row_ranges(rows, rows * heads * dim, [&](std::int64_t begin, std::int64_t end) {
            auto at = static_cast<std::size_t>(begin * heads * dim);
            for (std::int64_t row = begin; row < end; ++row)
                for (std::int64_t head = 0; head < heads; ++head)
                    for (std::int64_t c = 0; c < dim; ++c)
                        values[at++] = filler.value(role, tensor, row, broadcast ? 0 : head, c,
                                                    rows, dim, rows * heads * dim);
        });
        return values;
    };
    auto query = fill(Role::query), key = fill(Role::key);
    if (spec.recipe != Recipe::zeros) {
        std::vector<std::int64_t> positions, firsts;
        key_places(parts.shape, positions, firsts);
        filler.shape_logits(query, key, positions, firsts);
    }
    const auto encode_all = [&](const std::vector<double>& values) {
        return ref::encode_all(parts.dtype, values);
    };
    parts.query = encode_all(query);
    parts.key = encode_all(key);
    parts.value = encode_all(fill(Role::value));
    if (parts.gradient) parts.output_grad = encode_all(fill(Role::output_grad));
}

}  // namespace attncheck::properties
