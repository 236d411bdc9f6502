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

// ---- changes of a problem ----

/// The problem with query head n from query_source[n] and key/value head n from kv_source[n].
Parts with_heads(const Parts& parts, const std::vector<std::int64_t>& query_source,
                 const std::vector<std::int64_t>& kv_source);

/// Sequence b as a separate problem. The sequence has queries.
Parts single_sequence(const Parts& all, std::size_t b);

// ---- domains ----

/// For relations that take two evaluations and more: moderate data, half the queries.
void with_less_data(Spec& spec, Random& random);

/// Gives every sequence that is not empty keys for `count` blocks at least.
void lengthen_keys(Spec& spec);

}  // namespace attncheck::properties::compress_attention
