// Defects that both directions can have, under one id each.
#pragma once

#include "active_mutant.h"

namespace attncheck::mutants {

/// True if the defect of this direction is switched on.
template <IdText kForward, IdText kGradient>
bool on_side(bool is_gradient) {
    const bool forward = on<kForward>(), gradient = on<kGradient>();
    return is_gradient ? gradient : forward;
}

}  // namespace attncheck::mutants
