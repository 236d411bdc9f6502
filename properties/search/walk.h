// The walk from a failing case to a local minimum: every step fails in the same class, the end is
// certified and confirmed in a fresh process.
#pragma once

#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "properties/search/engine.h"
#include "properties/search/shrink.h"

namespace attncheck::properties {

class Walk {
public:
    using Evaluate = std::function<Verdict(const Spec&)>;
    /// Under another class of rounding than the one that is declared.
    using EvaluateUnder = std::function<Verdict(const Spec&, const ref::RoundingClass&)>;
    /// By another law of the operator.
    using EvaluateBy = std::function<Verdict(const Property&, const Spec&)>;

    /// Runs the failing case again, alone in fresh processes: whether it is repeatable decides how
    /// often a neighbour is tried.
    Walk(const Operator& op, const Property& property, const EngineOptions& options,
         const Clock& clock, Candidate& candidate, Evaluate evaluate, EvaluateUnder evaluate_under,
         EvaluateBy evaluate_by, const Spec& spec, const Verdict& verdict);

    /// Neighbours of a case on the way, known minima of the same failure first.
    std::vector<Neighbour> neighbours_of(const Spec& spec, const KnownMinima& known) const;

    /// A neighbour on the way down. Returns the failure class when it fails in the same way.
    std::string step(const Spec& spec);

    /// Nothing to walk on, or no time left.
    bool is_over();

    /// False when the case failed in a way that another process or the system can bring about, and
    /// did not do so again.
    bool is_confirmed() const;
    bool has_failed_again() const { return failing_runs_ > 0; }

    /// What was found, before the walk.
    const Counterexample& found() const { return found_; }

    /// Where the walk ended; a repeatable minimum is added to the known ones.
    Counterexample finish(KnownMinima& known);

private:
    /// What is declared to be taken, where cases outside of it accuse nobody; nullptr: everything.
    const Scope* declared() const;
    std::vector<Neighbour> taken_neighbours(const Spec& spec) const;
    bool fails_alike(const Spec& spec);
    void go_alone(const Verdict& verdict);
    void certify();
    void confirm();
    bool is_known(const KnownMinima& known) const;
    void explain();
    void find_words();
    void name_defect();
    void listen();
    std::vector<Spec> siblings() const;
    std::string key() const { return op_.name() + " " + found_.failure; }

    const Operator& op_;
    const Property& property_;
    const EngineOptions& options_;
    const Clock& clock_;
    Candidate& candidate_;
    Evaluate evaluate_;
    EvaluateUnder evaluate_under_;
    EvaluateBy evaluate_by_;
    Counterexample found_;
    enum class Tried { holds, fails, declined };
    std::unordered_map<std::string, Tried> tried_;  ///< by case line
    double start_;
    double steps_since_ = 0;  ///< after the repeated runs: starting a worker may take seconds
    int failing_runs_ = 0, runs_ = 0;  ///< of the case as found, each in a fresh process
    int tries_ = 1;
    bool is_spent_ = false;
};

}  // namespace attncheck::properties
