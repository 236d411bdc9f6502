// The one attribute of FlashAttention that has no effect (contract decision 8): its words, and its
// member of the C struct. The description declares it by these, and code that passes an attribute on
// without reading it takes the member from here.
#pragma once

#include <attncheck/candidate.h>

namespace attncheck::properties {

inline constexpr const char* kInertName = "inner_precise";
inline constexpr const char* kInertField = "precise";  ///< of a case line

template <class Args>
inline constexpr auto kInertMember = &Args::inner_precise;

}  // namespace attncheck::properties
