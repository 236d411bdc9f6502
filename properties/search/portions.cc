#include "properties/search/portions.h"

#include <algorithm>

namespace attncheck::properties {
namespace {

constexpr std::int64_t kCases = 500;  ///< of a portion: its survey of clauses and plain cases are a small part

}  // namespace

std::int64_t wanted_cases(const Property& property, const EngineOptions& options) {
    if (options.cases == 0) return 0;
    return std::max<std::int64_t>(1, options.cases * property.case_factor / property.case_divisor);
}

int portions_of(const Property& property, const EngineOptions& options) {
    if (options.replay_only) return 1;
    if (options.cases == 0) return options.shards;
    return static_cast<int>((wanted_cases(property, options) + kCases - 1) / kCases);
}

std::vector<Portion> own_portions(const Property& property, const EngineOptions& options) {
    if (options.replay_only) return {};
    if (options.cases == 0) return {{options.shard, options.shards, 0, 0}};
    const int all = portions_of(property, options);
    const std::int64_t wanted = wanted_cases(property, options);
    std::vector<Portion> own;
    std::int64_t before = 0;
    for (int k = 0; k < all; ++k) {
        const std::int64_t cases = (wanted + all - 1 - k) / all;
        if ((options.dealt_from + k) % options.shards == options.shard) own.push_back({k, all, cases, before});
        before += cases;
    }
    return own;
}

bool has_first_portion(const EngineOptions& options) {
    return options.dealt_from % options.shards == options.shard;
}

}  // namespace attncheck::properties
