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

}  // namespace

std::vector<Claim> field_claims(const std::vector<std::string>& keys, Int largest) {
    std::vector<Claim> out;
    for (const std::string& key : keys) out.push_back({.key = "all." + key, .largest = largest});
    return out;
}

Claim joint_claim(std::string name, std::vector<std::string> keys, Int largest) {
    return {.key = std::move(name), .largest = largest, .apply = [keys](Extents& e, Int value) {
                for (const std::string& key : keys) e.claim(key, value);
            }};
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
            .host = false};
}

Claim length_claim(std::string list, std::vector<std::string> kept) {
    return {.key = "long." + list,
            .largest = INT64_MAX,
            .laid_out = false,
            .apply = [list, kept](Extents& e, Int rows) {
                for (const std::string& scalar : kept) e.claim(scalar, e[scalar]);
                std::vector<Int> lengths = e.lengths(list);
                lengths.back() = rows - rows_before_last(list, e);
                e.claim_lengths(list, std::move(lengths));
                e.claim(beyond_of(list, e), 0);
            }};
}

}  // namespace attncheck::properties
