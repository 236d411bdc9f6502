// The verdict on outputs that were computed elsewhere: the arguments of a call as somebody has
// them, judged by the reference, the bounds and the tiers of the suite.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "properties/case/from_arguments.h"
#include "properties/operators/operator.h"

namespace attncheck::properties {

/// Arguments with the elements of their tensors, row-major as passed; those of outputs are what is
/// judged.
struct GivenCall {
    GivenArguments arguments;
    std::map<std::string, std::vector<std::uint32_t>> bits;
};

struct GivenVerdict {
    Spec spec;  ///< the shapes and attributes; its data is not that of the call
    Verdict verdict;
    std::vector<std::string> judged;  ///< outputs
};

/// `samples` rows and keys are judged where the whole reference would take long. Throws
/// std::invalid_argument when the arguments are none of the operator's, are illegal together, or
/// lack an output.
GivenVerdict judge_given(const Operator& op, const GivenCall& given,
                         const ref::RoundingClass& rounding, Profile profile,
                         std::int64_t samples);

}  // namespace attncheck::properties
