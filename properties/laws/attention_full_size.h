// Attention of full size as a property: the case of an operator, judged by chosen rows and keys
// (judge/sampled_attention.h).
#pragma once

#include <functional>

#include "properties/judge/sampled_attention.h"
#include "properties/laws/attention_operator.h"
#include "properties/laws/property.h"

namespace attncheck::properties {

/// A case of full size; `problem` has its inputs alone, `pairs` are its visible pairs of a query
/// row and a key, about.
FullSizeAttention full_size(const AttentionOperator& of, const Spec& spec,
                            AttentionProblem problem, double pairs);

/// Pairs of a query row and a key that it may see, of all heads: `keys` counts those of query i of
/// sequence b.
double visible_pairs(const AttentionProblem& problem,
                     const std::function<std::int64_t(std::size_t b, std::int64_t i)>& keys);

/// The verdict on it. Judges exact sums too, where the case has equal logits over a power of two of
/// keys and whole numbers: its values and gradients of the output are then larger ones
/// (judge/exact_sums.h). `has_tiers`: the tiers judge the chosen rows.
Verdict judge_full_size(FullSizeAttention of, const Spec& spec, bool has_tiers,
                        PropertyContext& context);

/// Gives a case such data; its rows have to see 2^k keys each.
void with_exact_sums(Spec& spec);
/// For a gradient, behind the first case, which has them: the same with exact dQ and dK.
void add_exact_scores(std::vector<Spec>& cases);
/// Such keys: the largest power of two up to this length, at most 16384.
std::int64_t exact_keys_of(std::int64_t length);

/// The property `sampled`; `chosen` is what is compared: "rows and keys". Finite data that no
/// kernel may let overflow: what leaves the range of a type excuses whole rows of a gradient, and
/// finding them would be quadratic.
Property full_size_property(const char* chosen, Verdict (*check)(const Spec&, PropertyContext&));

/// Normal data of bf16 with 1 / sqrt(dim) as the scale.
Spec large_case(const Schema& schema, std::vector<std::int64_t> query,
                std::vector<std::int64_t> kv, std::uint64_t seed);

}  // namespace attncheck::properties
