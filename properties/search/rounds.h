// The order of a run. Every property gets a few cases before any gets many: what finds most defects in the least time
// comes first, then all that is needed to say that a property holds, then four times as many cases in each round. A
// candidate that is too slow for this has one law after the other, each until it is conclusive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "properties/search/engine.h"

namespace attncheck::properties {

class Rounds {
public:
    struct Limits {
        double start = 0;          ///< of the run, seconds on the caller's clock
        double total_seconds = 0;  ///< of the run; 0: no limit
        double first_seconds = 0;  ///< of the first round; 0: no limit
        int at_once = 1;           ///< so many slices run side by side
    };

    Rounds(const std::vector<const Property*>& properties, Limits limits);

    /// The run starts now.
    void begin(double now) { limits_.start = now; }
    /// Properties that need no slice.
    void leave_out(std::size_t i) { properties_[i].state = State::done; }

    /// The property that `process` searches next, begun with this; nothing while there is none for it.
    std::optional<std::size_t> next(int process);
    /// What to run of the property now, in the process that keeps its search from now on.
    Slice slice(std::size_t i, int process, double now);
    /// A slice ended; `met` cases so far took so many seconds.
    void came_back(std::size_t i, std::int64_t met, double seconds, bool is_over);
    /// Searches that the process kept begin anew elsewhere.
    void lost(int process);

    /// No property waits for its first slice, or has it now.
    bool is_first_over() const;
    /// The property needs another slice or has one now.
    bool goes_on(std::size_t i) const { return properties_[i].state != State::done; }

private:
    enum class State { waiting, running, done };
    struct One {
        State state = State::waiting;
        int round = 0;
        std::optional<int> keeper;   ///< the process that has its search
        double weight = 1;           ///< in the first round, in which nothing was measured
        std::int64_t glance = 0;     ///< cases of a slice before that round, for the laws that find most; 0: had it
        std::int64_t kills = 0;      ///< what it found most of comes first then
        std::int64_t first_cases = 0;
        std::int64_t met = 0;
        double seconds = 0;
        double granted = 0;  ///< seconds of the last slice
        bool is_in_turn = false;  ///< its slice is one of a slow candidate: until it is conclusive
    };
    bool is_slow() const;
    std::optional<std::size_t> next_of_slow(int process);
    bool lacks_cases(const One& one) const;
    std::int64_t cases_of(const One& one) const;
    double need_of(const One& one) const;

    std::vector<One> properties_;
    std::vector<std::size_t> order_;
    Limits limits_;
};

}  // namespace attncheck::properties
