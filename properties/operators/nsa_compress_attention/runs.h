// What relations between runs of compress attention share: a run of changed parts, ways to change a
// problem, and verdicts on two runs. Nothing here knows a relation.
//
// Statistics are handed out by query row and head [T1,N1], first copy, whatever their order in
// memory; all else lies as in the call.
#pragma once

#include "properties/laws/relation_checks.h"
#include "properties/operators/nsa_compress_attention/problem.h"

namespace attncheck::properties::compress_attention {

/// One call of the candidate; trouble is set when it did not return 0.
struct Run {
    Call call;
    CallResult result;
    std::optional<Verdict> trouble;

    Run(const Parts& parts, PropertyContext& context);
    std::vector<std::uint32_t> bits(std::string_view name) const;
    std::vector<double> values(std::string_view name) const;
    std::vector<std::int64_t> lists() const { return lists_of(bits("topk_indices")); }
    /// Where element k of bits(name) stands, in words.
    std::string place(const Spec& spec, const std::string& name, std::size_t k) const;

private:
    std::vector<std::int64_t> statistic_at_;  ///< [T1,N1]: its number in memory
};

/// softmax_max, softmax_sum [T1,N1] and attention_out.
ExpectedOutputs expected_rows(const Parts& parts, const ref::RoundingClass& rounding);

// ---- verdicts ----

/// Every output but the lists, of two runs that mean the same, within twice the bound.
Verdict verdict_on_equal_runs(const Spec& spec, const Run& left, const Run& right,
                              const ExpectedOutputs& expected, const std::string& relation);

/// Two lists of lists for one problem: the same, or both right for it, since rounding leaves the
/// order of close scores open.
Verdict verdict_on_equal_lists(const Spec& spec, PropertyContext& context, const Parts& parts,
                               const std::vector<std::int64_t>& left,
                               const std::vector<std::int64_t>& right, const std::string& relation);

// ---- changes of a problem ----

/// Query rows [T1] of sequences.
std::vector<std::int64_t> rows_in_sequences(const Parts& parts);

/// The problem with query head n from query_source[n] and key/value head n from kv_source[n].
Parts with_heads(const Parts& parts, const std::vector<std::int64_t>& query_source,
                 const std::vector<std::int64_t>& kv_source);

/// Sequence b as a problem of its own; it has queries.
Parts single_sequence(const Parts& all, std::size_t b);

// ---- domains ----

/// For relations that take two evaluations and more: moderate data, half the queries.
void with_less_data(Spec& spec, Random& random);

/// Gives every sequence that is not empty keys for `count` blocks at least.
void lengthen_keys(Spec& spec);

}  // namespace attncheck::properties::compress_attention
