// Selected attention as an attention problem and as an operator that laws can run.
#pragma once

#include <functional>
#include <span>

#include "properties/laws/attention_operator.h"
#include "properties/laws/property.h"
#include "properties/operators/nsa_selected_attention/case.h"

namespace attncheck::properties {

AttentionProblem selected_problem(SelectedParts parts);
/// The parts that make such a problem, its numbers among them.
SelectedParts selected_parts_of(const AttentionProblem& problem);

const AttentionOperator& selected_attention_operator();

// ---- changes of a problem ----

/// The problem with query head n from query_source[n] and key/value head n from kv_source[n].
SelectedParts with_heads(const SelectedParts& parts, const std::vector<std::int64_t>& query_source,
                         const std::vector<std::int64_t>& kv_source);

/// Sequence b as a separate problem. The sequence has queries.
SelectedParts single_sequence(const SelectedParts& all, std::size_t b);

/// Lists of `count` entries: `fill` appends the new entries of an old list.
using ListChange =
    std::function<void(std::span<const std::uint32_t> list, std::vector<std::uint32_t>& out)>;
void change_lists(SelectedParts& parts, std::int64_t count, const ListChange& fill);

// ---- domains ----

/// Sets block size and count and lengthens key sequences that are too short for them.
void set_blocks(Spec& spec, std::int64_t block, std::int64_t count);

/// For relations that take two evaluations and more: moderate data, half the queries.
void with_less_data(Spec& spec, Random& random);

/// Relations that hold in both directions: all, and in them those of the lists.
void add_selected_shared_relations(std::vector<Property>& list, bool gradient);
void add_selected_list_relations(std::vector<Property>& list);

}  // namespace attncheck::properties
