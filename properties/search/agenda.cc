#include "properties/search/agenda.h"

#include <algorithm>
#include <utility>

namespace attncheck::properties {

std::optional<Agenda::Question> Agenda::next() {
    const auto ready = std::ranges::find_if(
        held_, [&](std::size_t step) { return surveys_.at(steps_.surveyed(step)).has_value(); });
    if (ready != held_.end()) {
        const std::size_t step = *ready;
        held_.erase(ready);
        return Question{step, false, *surveys_.at(steps_.surveyed(step))};
    }
    for (std::size_t step = steps_.next(); step < steps_.end; step = steps_.next()) {
        const Operator* const op = steps_.surveyed(step);
        if (!op) return Question{step, false, {}};
        const auto [known, is_first] = surveys_.try_emplace(op);
        if (known->second) return Question{step, false, *known->second};
        held_.push_back(step);
        if (is_first) return Question{steps_.end + step, true, {}};
    }
    return std::nullopt;
}

void Agenda::learned(std::size_t number, std::string text) {
    surveys_[steps_.surveyed(number - steps_.end)] = std::move(text);
}

}  // namespace attncheck::properties
