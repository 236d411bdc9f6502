// Inputs that are views of one allocation: a fused projection gives query, key and value so, a
// cache key and value.
#pragma once

#include <span>

#include "properties/case/call.h"
#include "properties/case/spec.h"

namespace attncheck::properties {

/// Whether the tensor may be such a view: inputs that are query, key or value.
bool may_share_buffer(const TensorField& tensor);

/// Gives the tensors of a call in Layout::joined, fused or woven their strides and places. Tensors
/// in the same one of these layouts are views of one allocation, in the order of the call.
///
///   joined   [query | key | value]: one tensor behind the other
///   fused    the slices of all but the two fastest dimensions follow one another: BSHD gives the
///            rows [heads of query | heads of key | heads of value] of a fused projection
///   woven    the same of all but the fastest dimension: [query | key | value] of every head
///
/// Dimensions outside of such a slice need equal extents; those that differ, and all that are
/// faster, belong to the slice. A single tensor in such a layout lies dense, and so does a tensor
/// of another type or rank than the first.
/// Inputs that are views of another input (TensorField::view_of) get its place afterwards.
void lay_in_one_buffer(Call& call, std::span<const Layout> layouts, const Extents& extents);

/// Gives an input that is a view of another one its strides and its place, as latent attention takes values from the
/// first channels of its keys; where the two have other elements, which laws give them, it lies alone.
void lay_views(Call& call, const Extents& extents);

/// Whether two tensors of the case are views of one allocation.
bool has_one_buffer(const Spec& spec);

/// Some four percent of all cases get key and value, or query, key and value, in one allocation. A
/// function of the case and its seed.
void draw_one_buffer(Spec& spec);

}  // namespace attncheck::properties
