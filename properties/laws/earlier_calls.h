// The call before a judged call, for the law `history`: other data or other arguments at the same
// shapes, or a larger shape. A plan that a library keeps by a key that leaves something out, and what a larger call left
// behind, show in the judged call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "properties/case/spec.h"
#include "properties/judge/context.h"

namespace attncheck::properties {

/// One thing in which the call before differs.
struct EarlierChange {
    std::string word;  ///< "another softcap", as a message names it
    /// The case with other values there, best first. Illegal ones, ones of other shapes unless the change is one of shape,
    /// and ones that the library does not take are passed over.
    std::function<std::vector<Spec>(const Spec&)> ways;
    bool is_of_shape = false;  ///< tensors have other extents then
};

/// A field with the first of these values that it does not have and that can be taken; `domain` empty:
/// in all cases.
EarlierChange other_value(const char* field, std::vector<std::int64_t> values,
                          std::function<bool(const Spec&)> domain = {});

EarlierChange reversed_sequences();
/// Another scale, another type and the opposite order of sequences, which every attention has, and more.
std::vector<EarlierChange> earlier_attention(const std::vector<EarlierChange>& more);

/// A case for a call before, and the words for it.
struct EarlierCase {
    Spec spec;
    std::string words;
};

/// What comes before a judged call: calls of the cases in turn, until the library has taken so many.
struct EarlierCalls {
    std::vector<EarlierCase> cases;
    std::size_t taken = 1;
};

/// For most seeds three calls, each with one change alone: they fill a plan whose key leaves out one of these
/// arguments, and the last of them a plan of the last call. For one of five seeds one call of another width or of other
/// lengths. For the others one call with other data and all of `more` at once: it fills a plan whose key has none of the changed arguments. Where the seed is 0, a call for each,
/// in several runs: a case that is written out has no other seed, and what another seed showed is to be seen in it.
std::vector<EarlierCalls> earlier_calls(const Spec& spec, const std::vector<EarlierChange>& more,
                                        const PropertyContext& context);

}  // namespace attncheck::properties
