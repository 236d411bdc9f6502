#include "properties/search/class_pairs.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <stdexcept>

namespace attncheck::properties {

void PairSet::add(std::size_t pair) {
    if (words.size() <= pair / 64) words.resize(pair / 64 + 1);
    words[pair / 64] |= std::uint64_t{1} << pair % 64;
}

bool PairSet::has(std::size_t pair) const {
    return pair / 64 < words.size() && (words[pair / 64] >> pair % 64 & 1) != 0;
}

void PairSet::add_all(const PairSet& other) {
    if (words.size() < other.words.size()) words.resize(other.words.size());
    for (std::size_t i = 0; i < other.words.size(); ++i) words[i] |= other.words[i];
}

std::string to_text(const PairSet& set) {
    std::string text;
    for (const std::uint64_t word : set.words) text += fmt::format("{:016x}", word);
    return text;
}

PairSet pair_set_from(std::string_view text) {
    constexpr std::size_t kDigits = 16;
    PairSet set;
    for (; !text.empty(); text.remove_prefix(kDigits)) {
        std::uint64_t word = 0;
        const auto [end, error] =
            std::from_chars(text.data(), text.data() + std::min(kDigits, text.size()), word, 16);
        if (error != std::errc{} || end != text.data() + kDigits)
            throw std::invalid_argument("pairs hold something that is no hexadecimal number");
        set.words.push_back(word);
    }
    return set;
}

std::string pairs_text(std::int64_t reached, std::int64_t possible) {
    return fmt::format("pairs {} of {}", reached, possible);
}

ClassPairs::ClassPairs(const Operator& op) : op_(op.name()) {
    for (const RequiredClass& required : op.required_classes())
        if (!required.label.starts_with("corner:")) {
            number_.emplace(required.label, classes_.size());
            classes_.push_back(required.label);
        }
    for (const ExcludedPairs& row : excluded_pairs()) {
        if (row.op != op_) continue;
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
    PairCoverage out;
    out.op = op_;
    for (std::size_t high = 1; high < classes_.size(); ++high)
        for (std::size_t low = 0; low < high; ++low) {
            if (!counted(low, high) || excluded_.has(pair(low, high))) continue;
            ++out.possible;
            if (!reached.has(pair(low, high)))
                out.missing.push_back(fmt::format("{} + {}", classes_[low], classes_[high]));
        }
    std::sort(out.missing.begin(), out.missing.end());
    return out;
}

}  // namespace attncheck::properties
