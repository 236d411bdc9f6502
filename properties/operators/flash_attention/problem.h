// FlashAttention as an attention problem, as an operator that laws can run, and the changes that
// its relations make. Both directions use them; nothing here knows a relation.
#pragma once

#include "properties/laws/attention_run.h"
#include "properties/operators/flash_attention/case.h"

namespace attncheck::properties {

AttentionProblem flash_problem(FlashParts parts);
/// The problem of a case without the statistics and attention output of a gradient, which cost as
/// much as the reference forward.
AttentionProblem flash_inputs(const Spec& spec);

const AttentionOperator& flash_attention_operator();

// ---- verdicts of attention_run.h ----

Verdict verdict_on_equal_problems(const FlashParts& left, const FlashParts& right,
                                  PropertyContext& context, const std::string& relation);
Verdict verdict_on_rounded_problems(const FlashParts& left, const FlashParts& right,
                                    PropertyContext& context, const std::string& relation);
Verdict verdict_on_identical_problems(const FlashParts& left, const FlashParts& right,
                                      PropertyContext& context, const std::string& relation);

// ---- the same problem written in another way ----

/// The documented rules accept it.
bool is_legal(const FlashParts& parts);

/// Mode 1 with the [B,N1,max Sq,max Skv] mask that hides what is hidden. `noise` fills what lies
/// outside the sequences.
FlashParts with_written_mask(const FlashParts& parts, std::uint64_t noise);

/// The bias element by element: [B,N1,S1,S2], or N1 sum(Sq Skv) numbers in TND; ALiBi as pse_type
/// 0, rounded to the input type. Without a bias the problem itself. nullopt when the numbers would
/// be taken for another form.
std::optional<FlashParts> with_plain_bias(const FlashParts& parts);

/// Written mask (when there is one) and plain bias: every pair of query and key can be changed on
/// its own.
std::optional<FlashParts> with_explicit_pairs(const FlashParts& parts);

/// One sequence or batch as a separate problem, mask and bias element by element; a mode that bounds each sequence for
/// itself (2 to 4) may stay.
FlashParts single_sequence(const AttentionProblem& problem, std::size_t sequence, bool keeps_mode);

// ---- changes of a problem ----

/// Place of pair (i, j) of head n among the drop bits and the numbers of a flat bias.
std::int64_t first_pair(const ref::FlashAttentionShape& shape, std::size_t sequence);
bool drop_bit(const ref::FlashAttentionShape& shape, std::int64_t bit);

/// visit(b, n, i, j) for the pairs of one sequence, or of all, in the order of drop bits and flat
/// biases.
template <class Visit>
void for_each_pair(const ref::FlashAttentionShape& shape, std::size_t b, Visit&& visit) {
    for (std::int64_t n = 0; n < shape.query_heads; ++n)
        for (std::int64_t i = 0; i < shape.query_lengths[b]; ++i)
            for (std::int64_t j = 0; j < shape.kv_lengths[b]; ++j) visit(b, n, i, j);
}
template <class Visit>
void for_each_pair(const ref::FlashAttentionShape& shape, Visit&& visit) {
    for (std::size_t b = 0; b < shape.query_lengths.size(); ++b) for_each_pair(shape, b, visit);
}

/// The drop mask anew: kept(b, n, i, j).
void rewrite_dropout(
    ref::FlashAttentionShape& shape,
    const std::function<bool(std::size_t b, std::int64_t n, std::int64_t i, std::int64_t j)>& kept);

/// Masks, biases and drop bits with query head n from source[n].
void move_pairs(const FlashParts& parts, const std::vector<std::int64_t>& source, FlashParts& to);

// ---- domains ----

/// Moderate data and, where a relation takes several evaluations, half the lengths.
void with_smaller_lengths(Spec& spec);
void without_mask(Spec& spec);
void without_bias(Spec& spec);
void without_dropout(Spec& spec);
void with_some_mask(Spec& spec, Random& random);
void with_mask_and_bias(Spec& spec, Random& random);
bool drops_some(const Spec& spec);
void with_drops(Spec& spec, Random& random);

/// Relations between two problems: all, and in them the same problem written in another way and
/// problems whose pairs of query and key differ.
void add_flash_relations(std::vector<Property>& list, bool gradient);
void add_flash_form_relations(std::vector<Property>& list);
void add_flash_mask_forms(std::vector<Property>& list);
void add_flash_mode_forms(std::vector<Property>& list);
void add_flash_pair_relations(std::vector<Property>& list);
void add_flash_bias_relations(std::vector<Property>& list);

}  // namespace attncheck::properties
