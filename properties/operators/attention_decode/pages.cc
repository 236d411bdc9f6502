// The pages of the cache that hold the positions of a sequence.
#include <algorithm>
#include <numeric>

#include "properties/operators/attention_decode/case.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

constexpr Int kHugePage = 0x7fff'fff0;

/// What the pages of a case follow from, read once: a table asks for each of its entries.
class Pages {
public:
    explicit Pages(const Extents& e)
        : size_(std::max<Int>(e["page"], 1)),
          lengths_(e.lengths("kv")),
          sharing_(static_cast<PageSharing>(e["shared"])) {}

    std::size_t sequences() const { return lengths_.size(); }

    Int of(std::size_t b) const {
        const Int length = std::max<Int>(lengths_[b], 0);
        return length / size_ + (length % size_ > 0);
    }

    /// Pages that sequence b has in common with sequence 0, from the first on.
    Int common(std::size_t b) const {
        if (b == 0) return 0;
        switch (sharing_) {
            case PageSharing::prefix:
                return (std::min(lengths_[0], lengths_[b]) / size_ + 1) / 2;
            case PageSharing::all:
                return std::min(of(0), of(b));
            default:
                return 0;
        }
    }

    /// Pages that sequences use, each once.
    Int used() const {
        Int used = 0;
        for (std::size_t b = 0; b < sequences(); ++b) used += of(b) - common(b);
        return used;
    }

    /// Pages of the sequence that has most.
    Int most() const {
        Int most = 0;
        for (std::size_t b = 0; b < sequences(); ++b) most = std::max(most, of(b));
        return most;
    }

private:
    Int size_;
    std::vector<Int> lengths_;
    PageSharing sharing_;
};

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
Int tail_entry(TailEntries kind, Int pages, Random& random) {
    if (kind == TailEntries::mixed)
        kind = random.pick({TailEntries::minus_one, TailEntries::huge, TailEntries::foreign});
    if (kind == TailEntries::minus_one) return -1;
    if (kind == TailEntries::huge) return random.pick<Int>({kHugePage, INT32_MAX, INT32_MIN});
    return random.between(0, std::max<Int>(pages, 1) - 1);
}

}  // namespace

Int decode_pages(const Extents& e) { return Pages(e).used() + e["spare"]; }

Int decode_table_columns(const Extents& e) { return Pages(e).most() + e["slack"]; }

std::vector<std::int32_t> decode_block_table(const Extents& e) {
    const Pages pages(e);
    const std::vector<Int> place = places(e);
    const auto columns = static_cast<std::size_t>(decode_table_columns(e));
    const auto tail = static_cast<TailEntries>(e["tail"]);
    Random random(mix(e.seed() ^ 0x7461696cu));
    std::vector<std::int32_t> table;
    std::size_t next = 0;
    for (std::size_t b = 0; b < pages.sequences(); ++b) {
        const auto own = static_cast<std::size_t>(pages.of(b)),
                   common = static_cast<std::size_t>(pages.common(b));
        for (std::size_t p = 0; p < columns; ++p)
            if (p >= own)
                table.push_back(static_cast<std::int32_t>(
                    tail_entry(tail, static_cast<Int>(place.size()), random)));
            else
                table.push_back(p < common ? table[p] : static_cast<std::int32_t>(place[next++]));
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
