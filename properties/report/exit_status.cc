#include "properties/report/exit_status.h"

#include <fmt/format.h>

namespace attncheck::properties {

std::string exit_meanings() {
    std::string text;
    for (const ExitMeaning& one : kExitMeanings)
        text += fmt::format("{}{} {}", text.empty() ? "" : "; ", one.status, one.meaning);
    return text;
}

std::string verdict_of(int exit_status) {
    for (const ExitMeaning& one : kExitMeanings)
        if (one.status == exit_status) return one.verdict;
    return {};
}

int exit_status_of(bool is_falsified, bool is_interrupted, bool has_error, bool says_nothing) {
    return is_falsified     ? kFalsified
           : is_interrupted ? kInterrupted
           : has_error      ? kNotJudged
           : says_nothing   ? kNothingChecked
                            : kHeld;
}

}  // namespace attncheck::properties
