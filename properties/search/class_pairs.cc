#include "properties/search/class_pairs.h"

#include <fmt/format.h>

#include <algorithm>

namespace attncheck::properties {

ClassPairs::ClassPairs(const Operator& op) : op_(op.name()) {
    for (const RequiredClass& required : op.required_classes())
        if (!required.combination) {
            number_.emplace(required.label, classes_.size());
            classes_.push_back(required.label);
        }
    for (const ExcludedPairs& row : op.excluded_pairs()) {
        const std::size_t one = number_.at(std::string(row.one));
        for (std::string_view rest = row.others; !rest.empty();) {
            const std::size_t blank = std::min(rest.find(' '), rest.size());
            excluded_.add(pair(one, number_.at(std::string(rest.substr(0, blank)))));
            rest.remove_prefix(std::min(blank + 1, rest.size()));
        }
    }
}

std::size_t ClassPairs::pair(std::size_t a, std::size_t b) const {
    const auto [low, high] = std::minmax(a, b);
    return high * (high - 1) / 2 + low;
}

bool ClassPairs::counted(std::size_t a, std::size_t b) const {
    const std::size_t colon = classes_[a].find(':');
    return colon == std::string::npos ||
           classes_[a].compare(0, colon + 1, classes_[b], 0, colon + 1) != 0;
}

void ClassPairs::note(const std::vector<std::string>& labels, PairSet& reached) const {
    std::vector<std::size_t> present;
    for (const std::string& label : labels)
        if (const auto it = number_.find(label); it != number_.end()) present.push_back(it->second);
    for (std::size_t i = 0; i < present.size(); ++i)
        for (std::size_t j = i + 1; j < present.size(); ++j)
            if (present[i] != present[j]) reached.add(pair(present[i], present[j]));
}

PairCoverage ClassPairs::coverage(const PairSet& reached) const {
    return coverage_of(reached, nullptr);
}

PairCoverage ClassPairs::coverage(const PairSet& reached, const PairSet& possible) const {
    return coverage_of(reached, &possible);
}

PairCoverage ClassPairs::coverage_of(const PairSet& reached, const PairSet* possible) const {
    PairCoverage out;
    out.op = op_;
    for (std::size_t high = 1; high < classes_.size(); ++high)
        for (std::size_t low = 0; low < high; ++low) {
            if (!counted(low, high) || excluded_.has(pair(low, high))) continue;
            if (possible && !possible->has(pair(low, high))) continue;
            ++out.possible;
            if (!reached.has(pair(low, high)))
                out.missing.push_back(fmt::format("{} + {}", classes_[low], classes_[high]));
        }
    std::sort(out.missing.begin(), out.missing.end());
    return out;
}

}  // namespace attncheck::properties
