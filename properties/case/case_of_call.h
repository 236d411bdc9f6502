// The other way from a Spec to a call, for calls that laws made: the fields that a case with these
// arguments would have. Arguments that came from elsewhere are from_arguments.h's concern.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "properties/case/call.h"
#include "properties/case/spec.h"

namespace attncheck::properties {

struct CaseOfCall {
    Spec spec;  ///< without data; all tensors dense
    /// Fields that decide a number of the call and have no value that gives it, as a law's own scale.
    std::vector<std::size_t> unsaid;
};

/// The fields that the call was laid out for, corrected where a law has changed an argument since.
/// nullopt: it was laid out for no case.
std::optional<CaseOfCall> case_of(const Call& call);

}  // namespace attncheck::properties
