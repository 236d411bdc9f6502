#include "properties/search/journal.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <string_view>

namespace attncheck::properties {
namespace {

constexpr std::string_view kOutcomes = "jhido";

/// A letter for the outcome, the number of the failure behind a point, and how many such cases follow each other.
std::string key_of(CaseJournal& journal, Outcome outcome, const std::string& failure) {
    std::string key(1, static_cast<char>(outcome));
    if (failure.empty()) return key;
    const auto known = std::ranges::find(journal.failures, failure);
    key += fmt::format(".{}", known - journal.failures.begin());
    if (known == journal.failures.end()) journal.failures.push_back(failure);
    return key;
}

std::int64_t number_of(std::string_view& text) {
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{} || number < 0) throw std::runtime_error("has a journal of cases that cannot be read");
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return number;
}

}  // namespace

void add_to(CaseJournal& journal, Outcome outcome, const std::string& failure) {
    const std::string key = key_of(journal, outcome, failure) + "x";
    std::int64_t times = 1;
    const std::size_t last = journal.text.rfind(' ') + 1;  // 0 where there is none
    if (journal.text.compare(last, key.size(), key) == 0) {
        std::string_view number = std::string_view(journal.text).substr(last + key.size());
        times += number_of(number);
        journal.text.resize(last);
    } else if (!journal.text.empty()) {
        journal.text += ' ';
    }
    journal.text += fmt::format("{}{}", key, times);
}

void for_each_case(const CaseJournal& journal,
                   const std::function<void(Outcome outcome, const std::string& failure)>& tell) {
    std::string_view text = journal.text;
    const auto expect = [&](bool is_right) {
        if (!is_right) throw std::runtime_error("has a journal of cases that cannot be read");
    };
    while (!text.empty()) {
        const char letter = text.front();
        expect(kOutcomes.find(letter) != std::string_view::npos);
        text.remove_prefix(1);
        std::string failure;
        if (text.starts_with('.')) {
            text.remove_prefix(1);
            const auto number = static_cast<std::size_t>(number_of(text));
            expect(number < journal.failures.size());
            failure = journal.failures[number];
        }
        expect(text.starts_with('x'));
        text.remove_prefix(1);
        for (std::int64_t times = number_of(text); times > 0; --times) tell(static_cast<Outcome>(letter), failure);
        expect(text.empty() || text.front() == ' ');
        if (!text.empty()) text.remove_prefix(1);
    }
}

}  // namespace attncheck::properties
