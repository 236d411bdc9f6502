// Laws of every operator's entry point that need no mathematics: agreement with an
// expectation, what a call may do to memory, to other calls and to later calls, and what it does
// with illegal arguments. An operator passes the call and its expected outputs.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "properties/case/edit_groups.h"
#include "properties/judge/half_composition.h"
#include "properties/judge/verdict.h"
#include "properties/laws/earlier_calls.h"
#include "properties/laws/property.h"
#include "properties/laws/relation_checks.h"

namespace attncheck::properties {

struct CaseProblem {
    Call call;  ///< edits not applied
    std::function<ExpectedOutputs(const ref::RoundingClass&)> expected;
    /// Judges outputs that have no expected value of their own, such as lists with ties; may be
    /// empty.
    std::function<Verdict(const CallResult&, const ref::RoundingClass&)> judge = {};
    /// For rules that allow a multiple of it.
    std::function<CompositionErrors()> composition_errors = {};
    /// A verdict that names the misreading by which outputs are wrong; nullopt: none that is known.
    std::function<std::optional<Verdict>(const CallResult&, const ref::RoundingClass&)> cause = {};
};
using MakeProblem = std::function<CaseProblem(const Spec&)>;

/// Every output within its bound of the expectation and right for the judge; unwritten elements are
/// named as such.
Verdict check_agreement(const Spec& spec, PropertyContext& context, const CaseProblem& problem);

/// Every element of every output is written, no other byte is, and inputs are as they were.
/// Why     the interface says so; buffers end at an inaccessible page in one run and begin at one
///         in the other.
/// Kills   NCG-04 ALL-11 ALL-14, reads and writes one element outside.
Verdict check_memory(const Spec& spec, PropertyContext& context, const CaseProblem& problem);

/// The same call gives the same bits again, whatever was in the outputs before and wherever the
/// buffers lie; values within two bounds where sums may take any order, and where no address is aligned to more than
/// an element.
/// Why     nothing in the formula depends on time, address or old contents.
/// Kills   accumulation into
///         old output, uninitialised scratch, results that depend on alignment.
Verdict check_repeatable(const Spec& spec, PropertyContext& context, const CaseProblem& problem);

/// Calls at once, each on a separate thread, give what each gives alone. `companions` are calls of
/// other operators: what they give is judged where they are the case.
/// Why     the interface allows calls from several threads, with whatever shapes and operators.
/// Kills   ALL-10 ALL-x16 FA-ALL-x301.
Verdict check_concurrent(const Spec& spec, PropertyContext& context,
                         const std::vector<CaseProblem>& problems,
                         const std::vector<Call>& companions = {});

/// A result does not depend on the call before it, which had tensors of the same shapes, another width or other lengths.
/// Why     a call is a pure function of its arguments. Runs in a fresh process, so that the case
///         replays.
/// Kills   ALL-09 AT-x312 to AT-x318: plans cached by shape or without one argument, scratch that keeps old
///         sums.
Verdict check_history(const Spec& spec, PropertyContext& context, const MakeProblem& problem_of,
                      const std::vector<EarlierChange>& changes);

/// A result does not depend on the call before it, which was rejected.
/// Why     all rejection happens before anything is computed or kept. The illegal argument is drawn
///         from the case's seed; runs in a fresh process, so that the case replays.
/// Kills   VAL-x24: what a rejected call leaves behind for the next one.
Verdict check_after_rejection(const Spec& spec, PropertyContext& context,
                              const CaseProblem& problem);

/// Accepts exactly what the contract accepts, with its status, and leaves the outputs alone when it
/// does not.
/// Why     all rejection happens before anything is computed; null pointers come first (161001),
///         all else is 161002.
/// Domain  a legal call with one or several arguments changed; what the change amounts to is the
///         predicate's to say.
/// Kills   the mutants VAL-*, crashes on nonsense, half-written outputs.
/// Shrinks to the smallest legal call and one edit.
Verdict check_validation(const Spec& spec, PropertyContext& context);

/// The changes of a case that follow from the description.
EditGroups edits_of_description(const Spec& spec);

/// The two properties of validation. `plain` makes a Spec cheap to run (validation reads
/// arguments, not elements); `edits` lists every single change that is tried. They get `factor`
/// times the cases of other properties, or three eighths of it where several edits meet: 8 is for
/// some 200 different edits, which are cheap to run. The first one is run on the clause tables of the
/// operator before anything is drawn.
void add_validation_properties(std::vector<Property>& list, void (*plain)(Spec&), int factor = 8,
                               EditGroups (*edits)(const Spec&) = edits_of_description);

/// agreement, non_finite, memory, repeatable, concurrent, history and after_rejection of an operator. Only the
/// problem has to be given.
struct CallProperties {
    MakeProblem problem;
    std::function<void(Spec&, Random&)> adapt_agreement = {};
    std::function<void(Spec&, Random&)> adapt_history = {};
    std::vector<EarlierChange> earlier = {};  ///< what the call before differs in, beside its data
};
void add_call_properties(std::vector<Property>& list, const CallProperties& of);

}  // namespace attncheck::properties
