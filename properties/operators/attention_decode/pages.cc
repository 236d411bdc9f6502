// The pages of the cache that hold the positions of a sequence.
#include <algorithm>
#include <numeric>

#include "properties/operators/attention_decode/case.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

constexpr Int kHugePage = 0x7fff'fff0;

Int page_size_of(const Extents& e) { return std::max<Int>(e["page"], 1); }

Int pages_of(const Extents& e, std::size_t b) {
    const Int size = page_size_of(e), length = std::max<Int>(e.lengths("kv")[b], 0);
    return length / size + (length % size > 0);
}

/// Pages that sequence b has in common with sequence 0, from the first on.
Int common_pages(const Extents& e, std::size_t b) {
    if (b == 0) return 0;
    const Int size = page_size_of(e);
    switch (static_cast<PageSharing>(e["shared"])) {
        case PageSharing::prefix:
            return (std::min(e.lengths("kv")[0], e.lengths("kv")[b]) / size + 1) / 2;
        case PageSharing::all:
            return std::min(pages_of(e, 0), pages_of(e, b));
        default:
            return 0;
    }
}

/// Pages that sequences use, each once.
Int used_pages(const Extents& e) {
    Int used = 0;
    for (std::size_t b = 0; b < e.lengths("kv").size(); ++b)
        used += pages_of(e, b) - common_pages(e, b);
    return used;
}

/// Place in the cache of the pages in the order of their use.
std::vector<Int> places(const Extents& e) {
    std::vector<Int> out(static_cast<std::size_t>(decode_pages(e)));
    std::iota(out.begin(), out.end(), Int{0});
    const auto order = static_cast<PageOrder>(e["pages"]);
    if (order == PageOrder::descending) std::reverse(out.begin(), out.end());
    if (order != PageOrder::shuffled) return out;
    Random random(mix(e.seed() ^ 0x70616765u));
    for (std::size_t n = out.size(); n-- > 1;)
        std::swap(out[n], out[static_cast<std::size_t>(random.between(0, static_cast<Int>(n)))]);
    return out;
}

/// Elements that no kernel may read.
Int tail_entry(const Extents& e, Random& random) {
    auto kind = static_cast<TailEntries>(e["tail"]);
    if (kind == TailEntries::mixed)
        kind = random.pick({TailEntries::minus_one, TailEntries::huge, TailEntries::foreign});
    if (kind == TailEntries::minus_one) return -1;
    if (kind == TailEntries::huge) return random.pick<Int>({kHugePage, INT32_MAX, INT32_MIN});
    return random.between(0, std::max<Int>(decode_pages(e), 1) - 1);
}

}  // namespace

Int decode_pages(const Extents& e) { return used_pages(e) + e["spare"]; }

Int decode_table_columns(const Extents& e) {
    Int most = 0;
    for (std::size_t b = 0; b < e.lengths("kv").size(); ++b) most = std::max(most, pages_of(e, b));
    return most + e["slack"];
}

std::vector<std::int32_t> decode_block_table(const Extents& e) {
    const std::vector<Int> place = places(e);
    const auto columns = static_cast<std::size_t>(decode_table_columns(e));
    Random random(mix(e.seed() ^ 0x7461696cu));
    std::vector<std::int32_t> table;
    std::size_t next = 0;
    for (std::size_t b = 0; b < e.lengths("kv").size(); ++b) {
        const auto pages = static_cast<std::size_t>(pages_of(e, b)),
                   common = static_cast<std::size_t>(common_pages(e, b));
        for (std::size_t p = 0; p < columns; ++p)
            table.push_back(p >= pages   ? static_cast<std::int32_t>(tail_entry(e, random))
                            : p < common ? table[p]
                                         : static_cast<std::int32_t>(place[next++]));
    }
    return table;
}

void fill_unowned(DecodeParts& parts, std::uint32_t bits) {
    std::vector<char> owned(static_cast<std::size_t>(parts.shape.pages * parts.shape.page_size));
    for (std::size_t b = 0; b < parts.shape.kv_lengths.size(); ++b)
        for (Int j = 0; j < parts.shape.kv_lengths[b]; ++j)
            owned[static_cast<std::size_t>(parts.row_of(b, j))] = 1;
    const auto fill = [&](Bits& cache, Int width) {
        for (std::size_t row = 0; row < owned.size(); ++row)
            if (!owned[row])
                std::fill_n(cache.begin() + static_cast<Int>(row) * width, width, bits);
    };
    fill(parts.key, parts.shape.kv_heads * parts.shape.head_dim);
    fill(parts.value, parts.shape.kv_heads * parts.shape.value_dim);
}

}  // namespace attncheck::properties
