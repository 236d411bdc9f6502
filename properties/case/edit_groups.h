// The single changes that validation tries, as far as they follow from the description of a call.
// Operators add those that aim at a rule that no other operator has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "properties/case/call.h"
#include "properties/case/edit.h"

namespace attncheck::properties {

/// Edits by the rule they aim at. A rule is drawn first, then one of its edits, so that every rule
/// gets its share.
using EditGroups = std::vector<std::vector<Edit>>;

/// All that follow from the description of a case: what is below, and values of each claim.
EditGroups derived_edits(const Extents& extents);

/// Values of one argument that are illegal, or legal in an unusual way: the predicate says which.
std::vector<Edit> values_of(const std::string& name, const std::vector<std::int64_t>& values);

// ---- the parts ----

/// Absent, ranks, dtypes and extents of one tensor, around what it is, and two of its extents
/// swapped.
void add_tensor_edits(EditGroups& groups, const std::string& tensor,
                      const std::vector<std::int64_t>& shape);
/// Of every tensor; those that are absent share a group in which they are present.
void add_tensor_edits(EditGroups& groups, const Call& call);

/// Real numbers by what the description tries. Integers by what they are: a count around its value
/// and its largest one, a multiple around its value, its step and its largest one, an enumeration in
/// full and one beyond, and one without effect at values that a narrower type would confuse; the
/// ends of 64 bits for all. Texts by what is tried, and absent. Where nothing is tried by name, the
/// usual: reals that no fp32 holds, other spellings of a text.
void add_number_edits(EditGroups& groups, const Call& call);
void add_text_edits(EditGroups& groups, const Call& call);

/// A cumulative length array: absent, sizes, and values of every entry around its own and those
/// beside it.
void add_length_edits(EditGroups& groups, const std::string& array,
                      const std::vector<std::int64_t>& lengths, std::int64_t rows);
/// Of every one that is present.
void add_length_edits(EditGroups& groups, const Extents& extents);

/// Of every claim: its own values, or those of its field at its limits, around its value, and around
/// other fields that it may be compared with.
void add_claim_edits(EditGroups& groups, const Extents& extents);

/// The first value beyond each range, the other type of each tensor, another number of sequences:
/// every one has a rule to itself, and would be missed among many values.
void add_single_edits(EditGroups& groups, const Extents& extents);

}  // namespace attncheck::properties
