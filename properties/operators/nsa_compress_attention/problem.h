// Compress attention as an attention problem and as an operator that laws can run.
#pragma once

#include "properties/laws/attention_operator.h"
#include "properties/operators/nsa_compress_attention/case.h"

namespace attncheck::properties::compress_attention {

/// What is no number: masks as the reference takes them, windows, sparse mode.
struct Extras : AttentionExtras {
    Parts parts;  ///< without query, key and value
    std::vector<std::uint8_t> hidden, forced;

    ref::CompressMasks masks() const { return {hidden, forced}; }
};
const Extras& extras_of(const AttentionProblem& problem);

AttentionProblem problem_of(Parts parts);
/// The parts that make such a problem, its numbers among them.
Parts parts_of(const AttentionProblem& problem);

/// The verdict on block lists [T1,N2,K] for this problem; `relation` begins the message of a
/// failure.
Verdict verdict_on_lists(const AttentionProblem& problem, const std::vector<std::int64_t>& lists,
                         const ref::RoundingClass& rounding,
                         ref::Grant grant = ref::Grant::rounding, const std::string& relation = {});

const AttentionOperator& attention_operator();

}  // namespace attncheck::properties::compress_attention
