// Expected values of a case, for those who show them instead of judging by them.
#include "properties/laws/attention_operator.h"
#include "properties/operators/operator.h"

namespace attncheck::properties {

std::optional<ExpectedOutputs> Operator::expected(const Spec& spec,
                                                  const ref::RoundingClass& rounding) const {
    if (!attention()) return std::nullopt;
    const AttentionProblem problem = attention()->problem(spec);
    return in_call_order(problem, expected_of(problem, rounding));
}

}  // namespace attncheck::properties
