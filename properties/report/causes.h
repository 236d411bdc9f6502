// Failures that look alike, grouped: one defect fails many laws, and a reader wants it once.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "properties/judge/verdict.h"
#include "properties/report/results.h"

namespace attncheck::properties {

/// What is known of one counterexample, from a run or from its JSON report.
struct Failure {
    std::string op, property, failure, message, case_line;
    Tier tier = Tier::relation;
    std::string matters, certificate;
    bool is_replayed = false;   ///< of a case that was given, not generated
    bool is_certified = false;  ///< every neighbour of the smallest case holds
    std::int64_t case_number = 0;  ///< in the sequence of its law; 0: not known
    std::string replay = {};  ///< the command that replays it; empty: "@N" of the last run does

    /// A call with illegal arguments.
    bool is_edited() const;
    /// A diagnosis that says what the defect is: a matched filter, or a hypothesis that explains the
    /// error.
    bool is_named() const;
};

/// Failures that probably have one cause, by their place in the list; the most telling first.
struct Cause {
    std::vector<std::size_t> failures;
    std::size_t named = 0;      ///< place of a failure that is named, if has_name
    bool has_name = false;
    std::vector<std::string> likely;  ///< of the hypotheses of that failure, those that most failures share
    bool checks_nothing = false;  ///< no illegal call was rejected: one defect, not one for each argument
};

/// Causes in the order in which they are worth reading: crashes, memory, named diagnoses, wrong
/// values, deviations, relations, validation. One cause are failures of one operator
///   - that died or touched foreign memory in the same way,
///   - that have the same wrong output, or the same smallest case but for its data, or a hypothesis in common that
///     explains both,
///   - that depend on earlier calls, or are of a law about them,
///   - of calls with illegal arguments: of all operators when `rejects_nothing`, otherwise by class.
/// The grouping is a guess that keeps a report short: what is grouped is named, never dropped.
std::vector<Cause> causes_of(const std::vector<Failure>& failures, bool rejects_nothing);

/// "mask not applied", "bias not applied" of "out: mask not applied, or bias not applied, which explains 99 % of the
/// error": what a kernel may have computed instead. None of a message that names a size, or nothing.
std::vector<std::string> hypotheses_in(const std::string& message);

/// "out" of the failure classes "out is wrong" and "out: gain"; all of a class that names no output.
std::string output_of(const std::string& failure);

/// Of a law that puts a call into company. What is wrong alone has a plainer face than they are.
bool needs_company(std::string_view property);
/// A call that is right alone and wrong in company.
bool is_of_other_calls(const Failure& one);
/// Of such a law, and wrong without the company as well.
bool is_wrong_alone(const Failure& one);
inline constexpr const char* kWhenAlone = " (when called alone, too: no matter of other calls)";

/// All counterexamples of a run, in its order.
std::vector<Failure> failures_of(const RunReport& report);
/// Whether validation ran and no illegal call was rejected.
bool rejects_nothing(const RunReport& report);

/// Numbers of the counterexamples for `attncheck reproduce @N`, by place in failures: the most
/// telling one of each cause first, then the others.
std::vector<int> numbers_of(const std::vector<Cause>& causes, std::size_t failures);

}  // namespace attncheck::properties
