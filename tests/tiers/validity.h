// Generated cases of every operator on emulated correct implementations, and how far the tiers'
// statistics go on them.
#pragma once

#include <iosfwd>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "rounding_emulator.h"

namespace attncheck::tiers {

/// What one line of the table sums up: an operator and a class.
struct ValidityLine {
    std::int64_t cases = 0, elements = 0, alarms = 0;
    properties::TierScores scores;
    double worst_bound = 0;  ///< largest error over its rigorous bound, of one case in eight
    std::string alarm;       ///< the first, with its case
};

/// Words of the rounding class whose roundings every emulation is to have.
struct WordOfClass {
    std::string word;      ///< "scores=half", "scores=half split=lse"; empty: none
    bool declared = true;  ///< false: the emulations have it and do not say so
    bool small = false;    ///< every case is cut down to some thousand pairs: many more of them in the same time
    bool few = false;      ///< and then has 1 to 12 queries or keys a sequence, or both, and 1 to 8 channels
};

/// The first two lines of a table of such lines.
std::string validity_head(const std::string& what);
/// The words that have an emulation.
const std::vector<std::string>& emulated_words();

class Validity {
public:
    /// Throws std::invalid_argument for a word without an emulation, and for words that no operator has together.
    explicit Validity(WordOfClass word = {});

    /// Every alarm is written there when it is found.
    void log_alarms(std::ostream& out) { alarm_log_ = &out; }

    /// Case number `index` of a seed: operator, case, emulation and declared class follow from
    /// both.
    void run_case(std::uint64_t seed, std::uint64_t index);
    /// One case with an emulation that follows from both numbers.
    void run_line(const properties::Spec& spec, std::uint64_t seed, std::uint64_t index);
    void print(std::ostream& out) const;
    /// One line of the table of words: all operators and classes together.
    std::string row(const std::string& name) const;
    void print_alarms(std::ostream& out) const;  ///< the first of each operator and class
    std::int64_t alarms() const;
    std::int64_t cases() const;
    const std::map<std::pair<std::string, std::string>, ValidityLine>& lines() const {
        return lines_;
    }

private:
    void judge(const properties::Operator& op, const properties::Spec& spec,
               const Emulation& emulation, const ref::RoundingClass& declared, bool with_bound);

    std::pair<Emulation, ref::RoundingClass> emulation_of(properties::Random& random) const;

    WordOfClass word_;
    std::vector<std::string> words_;
    std::map<std::pair<std::string, std::string>, ValidityLine> lines_;
    std::ostream* alarm_log_ = nullptr;
    mutable std::mutex mutex_;
};

}  // namespace attncheck::tiers
