// Block lists and mask of selected attention, and what its other inputs draw in another way.
// Every value is a function of the seed and the logical index.
#include <algorithm>
#include <numeric>

#include "properties/case/values.h"
#include "properties/operators/nsa_selected_attention/case.h"

namespace attncheck::properties {
namespace {

/// Indices that no kernel may read: rows of sequences without keys and rows beyond the last length.
constexpr std::int64_t kUnreadIndices[] = {-1, INT32_MAX, INT32_MIN, 5};

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
    const auto queries = ref::selected_queries(s);
    std::size_t at = 0;
    for (std::int64_t t = 0; t < s.total_queries; ++t) {
        const ref::PackedQuery& query = queries[static_cast<std::size_t>(t)];
        for (std::int64_t n = 0; n < s.kv_heads; ++n) {
            const auto head = static_cast<std::uint64_t>(n);
            if (query.sequence < 0 || query.kv_length == 0) {
                for (std::int64_t i = 0; i < s.count; ++i)
                    parts.topk[at++] = static_cast<std::uint32_t>(
                        kUnreadIndices[hash_of(spec.seed, static_cast<std::uint64_t>(t), head,
                                             static_cast<std::uint64_t>(i)) %
                                     std::size(kUnreadIndices)]);
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

/// In sparse mode 2 nobody reads it.
void fill_mask(const Spec& spec, SelectedParts& parts) {
    if (!parts.mask.present) return;
    const std::int64_t rows = parts.mask.shape[0], columns = parts.mask.shape[1];
    parts.mask.bits.assign(static_cast<std::size_t>(rows * columns), 0);
    if (spec.recipe == Recipe::zeros) return;
    const HiddenPairs hides(spec.seed, 79, static_cast<std::size_t>(columns));
    for (std::size_t place = 0; place < parts.mask.bits.size(); ++place) {
        const std::uint64_t hash = pair_hash(spec.seed, place, 85);
        // Any non-zero byte of a uint8 mask hides.
        const std::uint32_t byte =
            parts.mask.dtype == ref::Dtype::uint8
                ? (hash % 3 == 0 ? 1u : 1u + static_cast<std::uint32_t>(hash >> 32) % 255u)
                : 1u;
        if (hides(place)) parts.mask.bits[place] = byte;
    }
}

}  // namespace

void fill_selected_lists(const Spec& spec, SelectedParts& parts) {
    fill_topk(spec, parts);
    fill_mask(spec, parts);
}

InputRecipe selected_recipe(const Spec& spec, const SelectedParts& parts) {
    return {.scale = parts.narrowed_scale(),
            .hash =
                [seed = spec.seed](const InputElement& at) {
                    return hash_of(seed + static_cast<std::uint64_t>(at.tensor) * 1315423911u,
                                   static_cast<std::uint64_t>(at.row),
                                   static_cast<std::uint64_t>(at.head),
                                   static_cast<std::uint64_t>(at.channel));
                },
            // One key of each block, for a row sees whole blocks: the first or the last one.
            .leads = [block = parts.shape.block, is_last = pair_hash(spec.seed, 0, 91) % 2 == 1](
                         std::int64_t position, std::int64_t, std::int64_t,
                         std::int64_t) { return position % block == (is_last ? block - 1 : 0); }};
}

}  // namespace attncheck::properties
