// Words of precision under which a failing case holds: what to declare where a kernel rounds so by design.
#pragma once

#include <functional>
#include <string>

#include "ref/bounds/error_bound.h"

namespace attncheck::properties {

/// What the operator, or its case, has: words of anything else say nothing.
struct WordsOf {
    bool softmax = true, gradient = false, caps = false;
};

/// "holds with --precision tanh=16 or exp=34": at most three, the narrowest first; empty: none. `holds` says whether all
/// cases that show the failure hold under a class, `is_over` that no more should be tried.
std::string fitting_words(const ref::RoundingClass& declared, const WordsOf& of,
                          const std::function<bool(const ref::RoundingClass&)>& holds,
                          const std::function<bool()>& is_over);

}  // namespace attncheck::properties
