// Several JSON reports as one.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace attncheck::properties {

/// Merges JSON reports of shards of one run: counts add up, the worst ratio is the largest, the
/// first counterexample of each failure class is kept. Throws std::runtime_error naming the file
/// that does not fit and why: another seed, library, version or option, or a shard that was there.
struct MergedReport {
    std::string json;
    int exit_status = 0;
    std::string table;
    std::vector<int> missing_shards;  ///< 1-based, of `shards`
    int shards = 1;
};
/// `path`: the file that the merged JSON will be in, which the table's replay lines name; without it they have the
/// whole case.
MergedReport merge_json(const std::vector<std::pair<std::string, std::string>>& name_and_text,
                        const std::string& path = {});

}  // namespace attncheck::properties
