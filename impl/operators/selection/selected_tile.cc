#include "impl/operators/selection/selected_tile.h"

#include <algorithm>

namespace attncheck::impl {

std::int64_t queries_per_chunk(std::int64_t num_blocks, std::int64_t count,
                               std::int64_t group_size) {
    // 256 rows fill two tiles of a block that every query lists, and are cut often enough for tests
    // to see it; 8192, with up to 1.4 KiB each, are beyond second-level caches, but then a block
    // would otherwise meet next to no rows: 65536 tokens with 16 of 4096 blocks take 0.9 (forward)
    // and 0.86 (gradient) of the time with 4096. 16384 would be 5 % faster there and, with two
    // threads, more than a last-level cache.
    constexpr std::int64_t kLeastRows = 256, kMostRows = 8192;
    return std::clamp(kSelectedTileRows * num_blocks / count, kLeastRows, kMostRows) / group_size;
}

void BlockLists::start(const SelectedChunk& chunk) {
    const Sequence& sequence = chunk.sequence;
    entries_.clear();
    num_rounds_ = 0;
    begins_.assign(
        static_cast<std::size_t>((sequence.key_end - sequence.key_begin) / selection_.block()) + 1,
        0);
    if (!sequence.has_keys()) return;
    for (std::int64_t token = chunk.begin; token < chunk.end; ++token) {
        const std::size_t first = entries_.size();
        for (std::int64_t i = 0; i < selection_.count(); ++i) {
            const std::int64_t block = selection_.listed_block(token, chunk.kv_head, i);
            if (selection_.is_future(token - sequence.query_begin, block * selection_.block()))
                continue;
            std::int32_t round = 0;
            for (std::size_t other = first; other < entries_.size(); ++other)
                round += entries_[other].block == block ? 1 : 0;
            entries_.push_back({static_cast<std::int32_t>(block),
                                static_cast<std::int32_t>(token - chunk.begin), round});
            num_rounds_ = std::max(num_rounds_, round + 1);
        }
    }
    queries_.resize(entries_.size());
}

void BlockLists::sort(std::int32_t round) {
    std::fill(begins_.begin(), begins_.end(), 0);
    for (const Entry& entry : entries_) {
        if (entry.round == round) ++begins_[static_cast<std::size_t>(entry.block)];
    }
    std::int32_t end = 0;
    for (std::int32_t& begin : begins_) begin = end += begin;
    // Ends of the blocks; filling from behind moves them to the begins.
    for (std::size_t i = entries_.size(); i-- > 0;) {
        const Entry& entry = entries_[i];
        if (entry.round != round) continue;
        const std::int32_t at = --begins_[static_cast<std::size_t>(entry.block)];
        queries_[static_cast<std::size_t>(at)] = entry.query;
    }
}

void SelectedTile::start(const SelectedChunk& chunk, std::int64_t block,
                         const std::int32_t* queries, std::int64_t num_queries,
                         std::uint8_t* query_sees) {
    const std::int64_t key_pos = block * selection_.block();
    kv_head_ = chunk.kv_head;
    key_token_ = chunk.sequence.key_begin + key_pos;
    queries_ = queries;
    num_queries_ = num_queries;
    hidden_.clear();
    std::int32_t last = 0;
    VisibleRanges seen;
    for (std::int64_t i = 0; i < num_queries; ++i) {
        selection_.visible_ranges(chunk.begin + queries[i] - chunk.sequence.query_begin, key_pos,
                                  selection_.block(), seen);
        const auto query = static_cast<std::int32_t>(i);
        std::int32_t end = 0;
        for (int r = 0; r < seen.count; ++r) {
            const KeyRange range = seen.range[r];
            if (range.begin > end) hidden_.push_back({query, end, range.begin});
            end = range.end;
        }
        const auto size = static_cast<std::int32_t>(selection_.block());
        if (end < size) hidden_.push_back({query, end, size});
        if (query_sees != nullptr && seen.count > 0) query_sees[queries[i]] = 1;
        last = std::max(last, end);
    }
    cols_ = padded_to_vectors(last);
}

void SelectedTile::fill_hidden(float* matrix, float value) const {
    for (const HiddenRun& run : hidden_) {
        if (run.begin >= cols_) continue;
        const std::int64_t size = std::min<std::int64_t>(run.end, cols_) - run.begin;
        float* row = matrix + run.query * group_size_ * kFlashTileKeys + run.begin;
        for (std::int64_t g = 0; g < group_size_; ++g, row += kFlashTileKeys)
            std::fill_n(row, size, value);
    }
}

void SelectedTile::mark_seen(std::uint8_t* flags) const {
    std::fill_n(flags, rows() * kFlashTileKeys, std::uint8_t{1});
    for (const HiddenRun& run : hidden_) {
        for (std::int64_t g = 0; g < group_size_; ++g) {
            std::uint8_t* row = flags + (run.query * group_size_ + g) * kFlashTileKeys;
            std::fill(row + run.begin, row + run.end, std::uint8_t{0});
        }
    }
}

}  // namespace attncheck::impl
