// What relations between runs of selected attention share: a run of changed parts, ways to change a
// problem, and verdicts on two runs. Both directions use them; nothing here knows a relation.
//
// Legend: T1 query rows, T2 key rows, N1 query heads, N2 key/value heads, G = N1 / N2; tensors are
// row-major [rows, heads, width].
#pragma once

#include <initializer_list>

#include "properties/laws/relation_checks.h"
#include "properties/operators/nsa_selected_attention/problem.h"

namespace attncheck::properties {

/// One call of the candidate; trouble is set when it did not return 0.
struct SelectedRun {
    Call call;
    CallResult result;
    std::optional<Verdict> trouble;

    SelectedRun(const SelectedParts& parts, PropertyContext& context);
    const std::vector<std::uint32_t>& bits(std::string_view name) const;
    std::vector<double> values(std::string_view name) const;
    std::vector<std::string> output_names() const;
};
std::optional<Verdict> trouble_of(std::initializer_list<const SelectedRun*> runs);

/// Expected outputs by tensor name, in the order of the call.
ExpectedOutputs expected_of(const SelectedParts& parts, const ref::RoundingClass& rounding);

// ---- verdicts ----

/// |left - right| <= allowed; elements with an infinite allowance are not looked at. Element k is
/// that of `name` in the call of `shown`.
Verdict verdict_on_runs(const Spec& spec, const SelectedRun& shown, const std::string& name,
                        std::vector<double> left, std::vector<double> right,
                        const std::vector<double>& allowed, const std::string& relation);

/// Every output of two runs that mean the same, within the bounds of both.
Verdict verdict_on_equal_runs(const Spec& spec, const SelectedRun& left, const SelectedRun& right,
                              const ExpectedOutputs& left_expected,
                              const ExpectedOutputs& right_expected, const std::string& relation);

/// Every output of two runs to the bit; elements for which looked_at is false are skipped.
Verdict verdict_on_equal_bits(const Spec& spec, const SelectedRun& left, const SelectedRun& right,
                              const std::string& relation, const OutputFilter& looked_at = {});

// ---- changes of a problem ----

/// Keys that at least one row may see [T2,N2], and those that the heads of query row t see.
std::vector<char> seen_keys(const SelectedParts& parts);
std::vector<char> keys_seen_by(const SelectedParts& parts, std::int64_t t);

/// The problem with query head n from query_source[n] and key/value head n from kv_source[n].
SelectedParts with_heads(const SelectedParts& parts, const std::vector<std::int64_t>& query_source,
                         const std::vector<std::int64_t>& kv_source);

/// Sequence b as a problem of its own; it has queries.
SelectedParts single_sequence(const SelectedParts& all, std::size_t b);

/// Lists of `count` entries: `fill` appends the new entries of an old list.
using ListChange =
    std::function<void(std::span<const std::uint32_t> list, std::vector<std::uint32_t>& out)>;
void change_lists(SelectedParts& parts, std::int64_t count, const ListChange& fill);

// ---- domains ----

/// Sets block size and count and lengthens key sequences that are too short for them.
void set_blocks(Spec& spec, std::int64_t block, std::int64_t count);

/// Half the queries: for relations that take several evaluations.
void fewer_queries(Spec& spec);
/// For relations that take two evaluations and more: moderate data, half the queries.
void with_less_data(Spec& spec, Random& random);

/// Relations that hold in both directions: all, and in them those of the lists.
void add_selected_shared_relations(std::vector<Property>& list, bool gradient);
void add_selected_list_relations(std::vector<Property>& list);

}  // namespace attncheck::properties
