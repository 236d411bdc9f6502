// What the exit status of the program means, once for the program, its help and its reports.
#pragma once

#include <string>

namespace attncheck::properties {

inline constexpr int kHeld = 0, kFalsified = 1, kUsage = 2, kNothingChecked = 3, kNotJudged = 4,
                     kInterrupted = 130;

struct ExitMeaning {
    int status;
    const char* meaning;
    const char* verdict;  ///< one word, in reports
};

inline constexpr ExitMeaning kExitMeanings[] = {
    {kHeld, "every property held", "held"},
    {kFalsified, "some property was falsified", "falsified"},
    {kUsage, "usage, or the library cannot be loaded", "unusable"},
    {kNothingChecked, "nothing was checked, or some property met too few cases to say that it holds", "inconclusive"},
    {kNotJudged, "some property could not be judged: the system or the suite failed, not the library", "not_judged"},
    {kInterrupted, "interrupted before anything was falsified", "interrupted"}};

/// "0 every property held; 1 some property was falsified; ..."
std::string exit_meanings();

/// "held", "falsified", ...: the status in a word.
std::string verdict_of(int exit_status);

/// The status of a run, or of merged ones: what was falsified is a verdict whatever else happened.
int exit_status_of(bool is_falsified, bool is_interrupted, bool has_error, bool says_nothing);

}  // namespace attncheck::properties
