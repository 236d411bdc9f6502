#include "properties/case/claims.h"

#include <numeric>
#include <utility>

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

const std::string& beyond_of(const std::string& list, const Extents& e) {
    const Description& d = e.description();
    return d.lists[static_cast<std::size_t>(d.list(list))].beyond;
}

Int rows_before_last(const std::string& list, const Extents& e) {
    const auto& lengths = e.lengths(list);
    return std::accumulate(lengths.begin(), lengths.end() - 1, Int{0});
}

/// T times an extent is beyond 64 bits, or T itself is.
std::vector<Int> numbers_of_rows(const Extents& e) {
    std::vector<Int> out{kMostRows + 1, Int{1} << 40, INT64_MAX, INT64_MAX / 2, INT64_MAX / 8};
    for (const NumberField& field : e.description().numbers)
        if (!field.word.empty()) out.push_back(INT64_MAX / e[field.key]);
    return out;
}

}  // namespace

std::vector<Claim> field_claims(const std::vector<std::string>& keys, Int largest) {
    std::vector<Claim> out;
    for (const std::string& key : keys) out.push_back({.key = "all." + key, .largest = largest});
    return out;
}

Claim joint_claim(std::string name, std::vector<std::string> keys, Int largest) {
    return {.key = std::move(name),
            .largest = largest,
            .apply =
                [keys](Extents& e, Int value) {
                    for (const std::string& key : keys) e.claim(key, value);
                },
            .limits_of = keys.front()};
}

Claim row_claim(std::string list) {
    return {.key = "rows." + list,
            .largest = INT64_MAX,
            .laid_out = false,
            .apply =
                [list](Extents& e, Int rows) {
                    e.claim(beyond_of(list, e),
                            rows - rows_before_last(list, e) - e.lengths(list).back());
                },
            .host = false,
            .tried = numbers_of_rows};
}

Claim length_claim(std::string list, std::vector<std::string> kept) {
    return {.key = "long." + list,
            .largest = INT64_MAX,
            .laid_out = false,
            .apply =
                [list, kept](Extents& e, Int rows) {
                    for (const std::string& scalar : kept) e.claim(scalar, e[scalar]);
                    std::vector<Int> lengths = e.lengths(list);
                    lengths.back() = rows - rows_before_last(list, e);
                    e.claim_lengths(list, std::move(lengths));
                    e.claim(beyond_of(list, e), 0);
                },
            .tried = [list](const Extents& e) {
                const Int longest = e.description().lists[e.description().list(list)].max,
                          before = rows_before_last(list, e);
                return std::vector<Int>{before + longest, before + longest + 1, 1 << 20, INT64_MAX};
            }};
}

void claim_batches(Extents& extents, Int count, bool packed) {
    for (const ListField& list : extents.description().lists) {
        std::vector<Int> lengths = extents.lengths(list.key);  // none if a claim before said so
        lengths.resize(static_cast<std::size_t>(count),
                       packed || lengths.empty() ? 0 : lengths[0]);
        extents.claim_lengths(list.key, std::move(lengths));
    }
}

}  // namespace attncheck::properties
