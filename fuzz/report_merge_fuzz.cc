// Does merging reports obey its laws? Any texts are either merged or refused with
// std::runtime_error. A merged report merges alone into itself, a part of the reports may be merged
// first, and the order of the reports does not matter to the exit status. A trap means one of these
// fails.
//
// The bytes are up to three texts, separated by lines of "%%".
#include <cstdio>
#include <stdexcept>
#include <string>

#include "properties/report/merge.h"

using namespace attncheck::properties;

namespace {

using Reports = std::vector<std::pair<std::string, std::string>>;

Reports split(const std::string& text) {
    Reports reports;
    for (std::size_t begin = 0; begin != std::string::npos && reports.size() < 3;) {
        const std::size_t end = text.find("\n%%\n", begin);
        reports.emplace_back("shard " + std::to_string(reports.size() + 1),
                             text.substr(begin, end == std::string::npos ? end : end - begin));
        begin = end == std::string::npos ? end : end + 4;
    }
    return reports;
}

void require(bool holds, const char* law, const MergedReport& merged) {
    if (holds) return;
    std::fprintf(stderr, "%s:\n%s\n", law, merged.json.c_str());
    __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Reports reports = split({reinterpret_cast<const char*>(data), size});
    MergedReport merged;
    try {
        merged = merge_json(reports);
    } catch (const std::runtime_error&) {
        return 0;
    }
    const MergedReport again = merge_json({{"merged", merged.json}});
    require(again.json == merged.json, "a merged report merges into another", again);
    require(again.exit_status == merged.exit_status, "its exit status differs", again);
    if (reports.size() < 2) return 0;
    const Reports reversed(reports.rbegin(), reports.rend());
    require(merge_json(reversed).exit_status == merged.exit_status,
            "the other way round it has another exit status", merge_json(reversed));
    if (reports.size() < 3) return 0;
    const MergedReport first_two = merge_json({reports[0], reports[1]});
    const MergedReport nested = merge_json({{"first two", first_two.json}, reports[2]});
    require(nested.json == merged.json, "merging two first gives another report", nested);
    return 0;
}
