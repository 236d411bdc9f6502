// Generated cases of every operator on emulated correct implementations, and how far the tiers'
// statistics go on them.
#pragma once

#include <iosfwd>
#include <map>
#include <mutex>
#include <string>

#include "properties/operators/operator.h"
#include "rounding_emulator.h"

namespace attncheck::tiers {

/// What one line of the table sums up: an operator and a class.
struct ValidityLine {
    std::int64_t cases = 0, elements = 0, alarms = 0;
    properties::TierScores scores;
    double worst_bound = 0;  ///< largest error over its rigorous bound, of one case in eight
    std::string alarm;       ///< the first, with its case
};

/// A word of the rounding class whose roundings every emulation is to have.
struct WordOfClass {
    std::string word;      ///< "scores=half"; empty: none
    bool declared = true;  ///< false: the emulations have it and do not say so
};

class Validity {
public:
    /// `operators`: begin of their names; empty: all.
    explicit Validity(WordOfClass word = {}, std::string operators = {})
        : word_(std::move(word)), operators_(operators_with_tiers(operators)) {}

    /// Case number `index` of a seed: operator, case, emulation and declared class follow from
    /// both.
    void run_case(std::uint64_t seed, std::uint64_t index);
    void print(std::ostream& out) const;
    std::int64_t alarms() const;
    std::int64_t cases() const;
    const std::map<std::pair<std::string, std::string>, ValidityLine>& lines() const {
        return lines_;
    }

private:
    /// The operators whose noise the suite predicts.
    static std::vector<const properties::Operator*> operators_with_tiers(const std::string& begin);

    WordOfClass word_;
    std::vector<const properties::Operator*> operators_;
    std::map<std::pair<std::string, std::string>, ValidityLine> lines_;
    mutable std::mutex mutex_;
};

}  // namespace attncheck::tiers
