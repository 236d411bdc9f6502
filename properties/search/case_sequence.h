// The sequence of generated cases of one property, portion after portion: which case comes next, and when a portion or
// all of them have had enough. It runs no case. Outcomes of earlier cases decide which cases follow, so the same
// outcomes give the same sequence: --resume tells it those of its journal and goes on behind them.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "properties/report/clause_coverage.h"
#include "properties/search/case_source.h"
#include "properties/search/case_tally.h"
#include "properties/search/draws.h"
#include "properties/search/foreseen_declines.h"
#include "properties/search/journal.h"
#include "properties/search/portions.h"

namespace attncheck::properties {

class CaseSequence {
public:
    /// Everything is kept by reference. `foreseen` forgets its calls at the beginning of a portion.
    CaseSequence(const Operator& op, const Property& property, const EngineOptions& options,
                 ForeseenDeclines& foreseen);

    /// The next case; nothing when the portion has found none that the candidate takes.
    std::optional<Spec> next();
    /// Every portion has had enough.
    bool is_through() const { return next_portion_ == portions_.size() && (portions_.empty() || is_portion_over()); }

    // What became of the last case, in this order.
    void add_drawn() { tally_.add_drawn(); }
    /// `clause`: the one that decided the case, for validation.
    void add(const Spec& spec, Outcome outcome, const std::string& clause);
    /// A failure class that the portion met, known from other portions or not.
    void add_failure(const std::string& failure) { failures_.insert(failure); }
    /// The class was met by an accident.
    void remove_failure(const std::string& failure) { failures_.erase(failure); }
    bool has_failure(const std::string& failure) const { return failures_.contains(failure); }

    /// The last case lies outside of what the candidate is known to take.
    bool explores() const { return source_->explores(); }
    /// The last case lies inside of what the candidate is known to take.
    bool is_inside_scope() const { return source_->scope() && !source_->explores(); }
    /// So many cases of the property are enough, or more would not help.
    bool has_met(std::int64_t cases) const { return tally_.has_met(cases); }
    /// Number of the last case with a verdict, from 1, in the whole property, of which this process may have a part.
    std::int64_t case_number() const { return judged_ + judged_before_; }

    /// What a report says of the cases: their counts, the clauses that they reached.
    void describe(PropertyReport& report) const;
    /// The verdict of a property without a failure.
    void conclude(PropertyReport& report) const { tally_.conclude(report, is_outside_); }

    /// Hash of one case line. A report has the sum over its cases.
    static std::uint64_t digest(const Spec& spec);

private:
    void begin_portion();
    void begin_round();
    void put_small_plain_cases_first();
    bool is_portion_over() const;
    std::optional<ClauseCoverage> clauses() const;
    std::string id() const { return op_.name() + "." + property_.name; }

    const Operator& op_;
    const Property& property_;
    const EngineOptions& options_;
    ForeseenDeclines& foreseen_;
    const std::vector<Portion> portions_;
    std::size_t next_portion_ = 0;
    std::optional<ClauseCoverage> clauses_before_;  ///< of the portions before
    std::optional<CaseSource> source_;              ///< of the portion
    CaseTally tally_;
    std::set<std::string> failures_;  ///< of the portion
    bool is_outside_ = false;         ///< a portion found no case that the candidate takes
    std::vector<Drawn> round_;
    std::size_t next_of_round_ = 0;
    std::uint64_t rounds_ = 0;          ///< of the portion
    std::int64_t judged_ = 0;           ///< cases with a verdict
    std::int64_t judged_before_ = 0;    ///< of the property, before those that are counted here
};

}  // namespace attncheck::properties
