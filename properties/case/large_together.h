// Cases of two or three extents near their limits at once, which the budget of other cases keeps apart.
#pragma once

#include "properties/case/spec.h"

namespace attncheck::properties {

/// Turns two cases of a hundred into one in which two or three extents are large (heads of keys and the length of a list of
/// blocks, the width and the block of a compression, queries and keys) and the others small: a table, a loop of tiles or an offset
/// may be right for each of them alone. Modes and masks stay; in most cases the data becomes such that all keys weigh. Which cases
/// these are follows from the case itself. No change where nothing that is tried is legal and cheap enough.
void draw_large_together(Spec& spec);

}  // namespace attncheck::properties
