#ifndef ATTNCHECK_IMPL_SELECTED_TILE_H
#define ATTNCHECK_IMPL_SELECTED_TILE_H

#include <algorithm>
#include <cstdint>
#include <vector>

#include "impl/operators/flash_attention/plan.h"
#include "impl/operators/selection/key_selection.h"

/// Selected attention block by block: consecutive queries of one sequence and kv head, a *chunk*,
/// with their lists turned round, so that a block of keys meets all queries of the chunk that list
/// it. A *tile* is a block and some of those queries, with the G rows of each.
///
/// A query meets its blocks in an order that depends on its own list alone, and each row of a tile
/// is computed by itself: how queries are cut into chunks and tiles changes no bits of sums over
/// keys.
namespace attncheck::impl {

/// Some queries of one sequence and kv head, by their tokens.
struct SelectedChunk {
    Sequence sequence;
    std::int64_t kv_head, begin, end;

    std::int64_t size() const { return end - begin; }
};

/// How many queries of a sequence of `num_blocks` blocks make a chunk: enough to fill a tile per
/// block if lists were random, as far as the caches allow.
std::int64_t queries_per_chunk(std::int64_t num_blocks, std::int64_t count,
                               std::int64_t group_size);

/// The lists of a chunk turned round. Blocks in the future of a query are left out.
class BlockLists {
public:
    explicit BlockLists(const KeySelection& selection) : selection_(selection) {}

    void start(const SelectedChunk& chunk);

    /// visit(block of the sequence, queries, count): blocks ascending, queries ascending and
    /// counted from the chunk's first. What is listed n times comes in n rounds through the blocks,
    /// so that a visit never has a query twice.
    template <class Visit>
    void for_each_block(const Visit& visit) {
        for (std::int32_t round = 0; round < num_rounds_; ++round) {
            sort(round);
            for (std::size_t block = 0; block + 1 < begins_.size(); ++block) {
                const std::int32_t begin = begins_[block], count = begins_[block + 1] - begin;
                if (count > 0)
                    visit(static_cast<std::int64_t>(block), queries_.data() + begin, count);
            }
        }
    }

private:
    struct Entry {
        std::int32_t block, query, round;
    };
    // Fills queries_ and begins_ with the entries of a round.
    void sort(std::int32_t round);

    const KeySelection& selection_;
    std::int32_t num_rounds_ = 0;
    std::vector<Entry> entries_;        // in order of the queries
    std::vector<std::int32_t> begins_;  // [blocks + 1]
    std::vector<std::int32_t> queries_;
};

/// Rows of a tile at most; it has whole queries.
inline constexpr std::int64_t kSelectedTileRows = kFlashTileRows;
static_assert(kSelectedTileRows >= kMaxHeadsPerGroup && kMaxSelectedBlock <= kFlashTileKeys);

/// Queries of a chunk and a block that all of them list. Matrices of a tile have the G rows of
/// every query, [rows(), kFlashTileKeys].
class SelectedTile {
public:
    SelectedTile(const KeySelection& selection, std::int64_t group_size)
        : selection_(selection), group_size_(group_size) {}

    /// Marks the queries that see a key, unless null.
    void start(const SelectedChunk& chunk, std::int64_t block, const std::int32_t* queries,
               std::int64_t num_queries, std::uint8_t* query_sees);

    std::int64_t kv_head() const { return kv_head_; }
    std::int64_t key_token() const { return key_token_; }
    /// Indices in the chunk.
    const std::int32_t* queries() const { return queries_; }
    std::int64_t num_queries() const { return num_queries_; }
    std::int64_t rows() const { return num_queries_ * group_size_; }
    /// A multiple of 16 that holds every key that is seen; 0 if there is none.
    std::int64_t cols() const { return cols_; }

    /// In the first cols() columns.
    void fill_hidden(float* matrix, float value) const;
    /// 1 where a pair is seen, [rows(), kFlashTileKeys].
    void mark_seen(std::uint8_t* flags) const;

    /// visit(source, target, count) for every query: where its G rows of `width` elements are in
    /// [queries of the chunk, G, width] and in [num_queries, G, width] of the tile.
    template <class Visit>
    void for_each_query(std::int64_t width, const Visit& visit) const {
        const std::int64_t size = group_size_ * width;
        for (std::int64_t i = 0; i < num_queries_; ++i) visit(queries_[i] * size, i * size, size);
    }
    template <class Element>
    void gather(const Element* from, std::int64_t width, Element* to) const {
        for_each_query(width, [&](std::int64_t source, std::int64_t target, std::int64_t size) {
            std::copy_n(from + source, size, to + target);
        });
    }
    void scatter(const float* from, float* to) const {
        for (std::int64_t i = 0; i < num_queries_; ++i, from += group_size_)
            std::copy_n(from, group_size_, to + queries_[i] * group_size_);
    }

private:
    struct HiddenRun {
        std::int32_t query, begin, end;
    };

    const KeySelection& selection_;
    std::int64_t group_size_, kv_head_ = 0, key_token_ = 0, num_queries_ = 0, cols_ = 0;
    const std::int32_t* queries_ = nullptr;
    std::vector<HiddenRun> hidden_;
};

/// Cuts the queries of a block into tiles of nearly equal height: visit(queries, count).
template <class Visit>
void for_each_tile_of_block(const std::int32_t* queries, std::int64_t count,
                            std::int64_t group_size, const Visit& visit) {
    const std::int64_t most = kSelectedTileRows / group_size, tiles = (count + most - 1) / most;
    for (std::int64_t i = 0; i < tiles; ++i) {
        const std::int64_t begin = count * i / tiles, end = count * (i + 1) / tiles;
        visit(queries + begin, end - begin);
    }
}

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_SELECTED_TILE_H
