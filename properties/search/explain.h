// Which fields of a smallest case matter: each is varied alone, and what still fails is said.
//
// The smallest case names every field, and most are there because they were small, not because the
// defect needs them (the explain phase of Hypothesis; MacIver, Hatfield-Dodds et al. 2019).
#pragma once

#include <functional>
#include <string>

#include "properties/operators/operator.h"

namespace attncheck::properties {

enum class Varied { fails, holds, not_tried };

/// "needs q >= 9, window_right=0; fails with any kv_heads, dim; with dtype=bf16, not fp16". `is_taken`
/// says which cases may be tried, `outcome` tries one, `is_over` that no more should be. Extents
/// below those of a smallest case are not tried: its neighbours hold. `accused` is the wrong output: that the case has to
/// ask for it goes without saying. `found` is the case before it was shrunk: it fails with the values that it has, which one
/// at a time may mean little (a mask without its mode).
std::string explanation_of(const Spec& smallest, const Spec& found, const Operator& op, const std::string& accused,
                           const std::function<bool(const Spec&)>& is_taken,
                           const std::function<Varied(const Spec&)>& outcome,
                           const std::function<bool()>& is_over);

}  // namespace attncheck::properties
