#ifndef ATTNCHECK_IMPL_AMX_KERNELS_H
#define ATTNCHECK_IMPL_AMX_KERNELS_H

#include "impl/kernels/bf16_dot_kernels.h"

/// The kernels of bf16_dot_kernels.h with their product on the matrix unit of x86-64 (AMX,
/// tdpbf16ps; Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2).
///
/// A tile is 16 rows of 16 words. One instruction adds the product of 16 x 16 pairs of the left and
/// 16 x 16 pairs of the right to 16 x 16 sums; both operands lie in memory as PairProduct has them,
/// unless pairs of the left are neighbours along m, or an edge cuts a tile. The unit flushes
/// subnormals as vdpbf16ps does, so operands obey the same limits. Every sum is computed alone, in
/// an order that the depth decides and nothing else.
namespace attncheck::impl {

/// Whether the processor has the unit and the operating system lets this process use it; asked
/// once, since permission to use the tile registers has to be requested.
bool may_use_amx();

/// Null where the unit may not be used or a product that is tried at the first call comes out
/// wrong.
const Bf16DotKernels* amx_kernels();

/// The same whether or not there is a unit, for a test that stands in for it. Null where
/// bf16_dot_kernels() is.
const Bf16DotKernels* untried_amx_kernels();

/// The same code on tiles in memory instead of registers, to test it on machines without the unit;
/// slow. Null where bf16_dot_kernels() is.
const Bf16DotKernels* emulated_amx_kernels();

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_AMX_KERNELS_H
