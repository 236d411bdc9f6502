// What the processes of a run are asked: the steps of the run in their order, and before the first
// step of an operator its survey, which one process makes for all.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>

namespace attncheck::properties {

class Operator;

class Agenda {
public:
    struct Steps {
        std::size_t end = 0;                    ///< steps are 0..end-1
        std::function<std::size_t()> next;      ///< end: there is none
        std::function<const Operator*(std::size_t step)> surveyed;  ///< nullptr: needs no survey
    };
    struct Question {
        std::size_t number = 0;  ///< of the step; with `end` added, of a survey for it
        bool is_survey = false;
        std::string survey;  ///< its text, of a step; empty: not known
    };

    explicit Agenda(Steps steps) : steps_(std::move(steps)) {}

    /// nullopt: nothing can be asked before an answer comes, or ever.
    std::optional<Question> next();
    bool is_survey(std::size_t number) const { return number >= steps_.end; }
    /// The answer to a survey; without a text the processes make their own.
    void learned(std::size_t number, std::string text);

private:
    Steps steps_;
    std::map<const Operator*, std::optional<std::string>> surveys_;  ///< nullopt: on its way
    std::deque<std::size_t> held_;  ///< steps that wait for a survey
};

}  // namespace attncheck::properties
