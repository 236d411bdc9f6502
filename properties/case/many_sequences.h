// Cases of many short sequences: kernels keep tables of sequences, and a table has a size.
#pragma once

#include "properties/case/spec.h"

namespace attncheck::properties {

/// Elements of all tensors; what the case costs is a small multiple.
double elements_of_tensors(const Spec& spec);

/// Turns about two cases of a hundred into one of 7 to 33 sequences, one or two of a hundred into one
/// of 34 to 130, and three of a thousand into one of 1025 to 1030. Most of the sequences are short; heads and
/// channels are few. Which cases these are follows from the case itself, so that the cases around
/// them stay as they are. No change where the operator has no list of
/// lengths or the case would not be legal.
void draw_many_sequences(Spec& spec);

/// Turns two of a hundred into a case of 1025 sequences or a few more, or of as many as the operator takes: for the law that
/// looks at every value, so that a run of a minute meets the end of such a table.
void draw_large_table(Spec& spec, Random& random);

}  // namespace attncheck::properties
