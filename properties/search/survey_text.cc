// What was learned of an operator as text, so that one process learns and the others are told.
//
//   survey CALLS DECLINED TAKES_NOTHING
//   text ... / refusals ... / class ... / pairs HEX / reason ...
//   aspect NUMBER CLOSED | accepted values | refused values
//   together NUMBER=VALUE ...
//   case CASE-LINE
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sstream>
#include <stdexcept>

#include "properties/search/survey.h"

namespace attncheck::properties {
namespace {

std::set<std::int64_t> values_of(std::istream& in) {
    std::set<std::int64_t> values;
    for (std::string word; in >> word && word != "|";) values.insert(std::stoll(word));
    return values;
}

}  // namespace

std::string Scope::to_text() const {
    std::string out;
    for (std::size_t a = 0; a < limits_.size(); ++a) {
        const Limit& limit = limits_[a];
        if (!limit.closed && limit.accepted.empty() && limit.refused.empty()) continue;
        out += fmt::format("aspect {} {} | {} | {}\n", a, limit.closed ? 1 : 0,
                           fmt::join(limit.accepted, " "), fmt::join(limit.refused, " "));
    }
    for (const auto& values : combinations_) {
        out += "together";
        for (const auto& [aspect, value] : values) out += fmt::format(" {}={}", aspect, value);
        out += "\n";
    }
    for (const Spec& spec : accepted_) out += fmt::format("case {}\n", print(spec));
    return out;
}

bool Scope::take_line(const std::string& word, std::istream& rest, Profile profile) {
    if (word == "aspect") {
        std::size_t aspect = 0;
        std::string bar;
        int closed = 0;
        rest >> aspect >> closed >> bar;
        Limit& limit = limits_.at(aspect);
        limit.closed = closed != 0;
        limit.accepted = values_of(rest);
        limit.refused = values_of(rest);
    } else if (word == "together") {
        std::vector<std::pair<std::size_t, std::int64_t>> values;
        char equals = 0;
        std::size_t aspect = 0;
        for (std::int64_t value = 0; rest >> aspect >> equals >> value;)
            values.emplace_back(aspect, value);
        combinations_.push_back(std::move(values));
    } else if (word == "case") {
        std::string line;
        std::getline(rest, line);
        accepted_.push_back(parse(line, {&op_->schema()}));
        accepted_.back().profile = profile;
    } else {
        return false;
    }
    return true;
}

std::string to_text(const Survey& survey) {
    std::string out = fmt::format("survey {} {} {}\ntext {}\nrefusals {}\npairs {}\n", survey.calls,
                                  survey.declined, survey.takes_nothing ? 1 : 0, survey.taken.text,
                                  survey.taken.refusals, to_text(survey.taken.pairs));
    for (const std::string& label : survey.taken.classes) out += fmt::format("class {}\n", label);
    if (!survey.reason.empty()) out += fmt::format("reason {}\n", survey.reason);
    return out + survey.scope.to_text();
}

Survey survey_from(const std::string& text, const Operator& op, const std::string& features,
                   Profile profile) {
    Survey survey{Scope(op), 0, 0, false, {}, {}};
    survey.scope.restrict_to(features);
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        std::istringstream rest(line);
        std::string word, value;
        rest >> word;
        if (survey.scope.take_line(word, rest, profile)) continue;
        if (word == "survey") {
            int nothing = 0;
            rest >> survey.calls >> survey.declined >> nothing;
            survey.takes_nothing = nothing != 0;
            continue;
        }
        std::getline(rest >> std::ws, value);
        if (word == "reason")
            survey.reason = value;
        else if (word == "text")
            survey.taken.text = value;
        else if (word == "refusals")
            survey.taken.refusals = value;
        else if (word == "pairs")
            survey.taken.pairs = pair_set_from(value);
        else if (word == "class")
            survey.taken.classes.push_back(value);
        else
            throw std::invalid_argument(fmt::format("'{}' is no line of a survey", line));
    }
    return survey;
}

}  // namespace attncheck::properties
