// Words of precision under which a failing case holds: what to declare where a kernel rounds so by design.
#pragma once

#include <functional>
#include <string>

#include "ref/bounds/error_bound.h"

namespace attncheck::properties {

/// "holds with --precision tanh=16 or exp=34": at most three, the narrowest first; empty: none. `caps`: the cases have a
/// softcap, of which some words are. `holds` says whether all cases
/// that show the failure hold under a class, `is_over` that no more should be tried.
std::string fitting_words(const ref::RoundingClass& declared, bool caps,
                          const std::function<bool(const ref::RoundingClass&)>& holds,
                          const std::function<bool()>& is_over);

}  // namespace attncheck::properties
