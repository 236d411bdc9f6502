// The numbers of a case: arguments, what the candidate made of them, and what was expected.
#pragma once

#include <optional>
#include <string>

#include "properties/candidate/candidate.h"
#include "properties/judge/verdict.h"
#include "properties/operators/operator.h"

namespace attncheck::properties {

struct CaseValues {
    Call call;
    std::optional<ExpectedOutputs> expected;
    CallResult result;  ///< of one call alone
};

/// Runs the call once and asks the reference. `expected` is empty for an edited case.
CaseValues values_of(const Operator& op, const Spec& spec, Call call, Candidate& candidate,
                     const ref::RoundingClass& rounding);

/// Tensors of so many elements are printed.
inline constexpr std::size_t kMostPrinted = 64;

/// Prints the tensors and other arguments of a call; the values of those that are small.
void print_arguments(const Call& call);

/// Prints expected and computed values of small outputs; false if there is none.
bool print_outputs(const CaseValues& values);

/// Writes NAME.npy for every tensor that is present, NAME.expected.npy and NAME.bound.npy for
/// outputs, and case.txt with the case line, into a folder that is made if it is not there.
/// Floating-point tensors are written as float32, which holds every storage type exactly. Throws
/// std::runtime_error naming the path.
void dump_values(const CaseValues& values, const std::string& case_line, const std::string& folder);

}  // namespace attncheck::properties
