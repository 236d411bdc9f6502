#include "properties/cli/expected_values.h"

#include "properties/laws/attention_operator.h"
#include "properties/operators/attention_merge/problem.h"
#include "properties/operators/nsa_compress/case.h"

namespace attncheck::properties {

std::optional<ExpectedOutputs> expected_values(const Operator& op, const Spec& spec,
                                               const ref::RoundingClass& rounding) {
    if (const AttentionOperator* const attention = op.attention()) {
        const AttentionProblem problem = attention->problem(spec);
        return in_call_order(problem, expected_of(problem, rounding));
    }
    if (op.name() == "attention_merge") {
        const MergeProblem problem(spec);
        return outputs_of(problem.expected(rounding), problem.gives_lse);
    }
    if (op.name() == "nsa_compress" || op.name() == "nsa_compress_grad")
        return CompressProblem(spec).expected(rounding);
    return std::nullopt;
}

}  // namespace attncheck::properties
