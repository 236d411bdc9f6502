// Cases as inputs: the bytes are a case line (properties/case/spec.h), so that what a session finds can
// be read, edited and replayed with `attncheck reproduce`. Mutation and cross-over work on the
// parsed Spec and keep it legal and small.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "properties/operators/catalogue.h"

namespace attncheck::fuzz {

/// An operator and, where it has one, its gradient; "_score" at the end of a name may be left out.
/// All operators for "".
std::vector<const properties::Operator*> family_of(std::string_view name);

/// The legal, small case of the family that the bytes are; nothing otherwise.
std::optional<properties::Spec> read_case(std::string_view family, const std::uint8_t* data,
                                          std::size_t size);

/// Few enough elements and products that a run takes milliseconds under sanitizers.
bool is_small(const properties::Spec& spec);

/// True if several edits together may lay out so much more than the case has that the call takes
/// gigabytes: its elements times the extents that they name.
bool may_edits_be_large(const properties::Spec& spec);

/// A small case from the operators' own generators.
properties::Spec sampled_case(std::string_view family, properties::Random& random,
                              properties::Profile profile = properties::Profile::ascend910b);

/// Another legal, small case: one to three fields, lengths, layouts, recipes, elements or, if asked
/// for, edits are changed. `edits` may make the call (not the Spec) illegal.
properties::Spec mutated_case(const properties::Spec& spec, bool edits, properties::Random& random);

/// A legal, small case whose every field comes from one of the two; `first` if there is none.
properties::Spec crossed_cases(const properties::Spec& first, const properties::Spec& second,
                               properties::Random& random);

/// A trap with the case and what is wrong with it, if the verdict says so.
void require_held(const properties::Spec& spec, const properties::Verdict& verdict);

}  // namespace attncheck::fuzz
