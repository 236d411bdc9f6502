// Strides that few callers use, for some of the cases of every operator.
#pragma once

#include "properties/case/spec.h"

namespace attncheck::properties {

/// Some seven percent of all cases get one to three tensors with stride 0 or a negative stride in a
/// dimension that other layouts leave alone, or with slices beyond 2^32 elements apart. A function
/// of the case and its seed.
void draw_unusual_strides(Spec& spec);

}  // namespace attncheck::properties
