#ifndef ATTNCHECK_IMPL_AMX_FLOAT_KERNELS_H
#define ATTNCHECK_IMPL_AMX_FLOAT_KERNELS_H

#include "impl/kernels/attention_kernels.h"

/// Products of fp32 matrices on a unit that multiplies pairs of bf16 numbers.
///
/// An fp32 number is the sum of three bf16 numbers, each the rounded rest of those before; one that
/// was widened from fp16 is the sum of two. Of the nine products of parts i and j the six with
/// i + j <= 2 are added up in fp32, smallest first. What is left out is below 2^-25 of each product
/// of two numbers, less than rounding that product would cost. Parts that are 0 everywhere are left
/// out, which leaves four products for fp16 by fp16 and five for fp32 by fp16.
///
/// As in bf16_dot_kernels.h nothing may come near the subnormals, which the unit flushes: every
/// part is a multiple of 2^-23 times the number. Logits are products of elements that are 0 or have
/// magnitudes in [2^-40, 2^20). Sums are products of weights below 2^20, times kWeightScale, and of
/// elements that are 0 or in [2^-30, 2^20). Other numbers are left to the vector kernels, and which
/// way a number is computed depends on the numbers it is computed from alone.
namespace attncheck::impl {

/// Puts such products in place of scaled_product, float_product and transposed_product, where
/// kernels.bf16_dot multiplies on a matrix unit; does nothing otherwise. A vector unit multiplies
/// pairs of bf16 no more than twice as fast as fp32, so that six products would not pay there.
void use_matrix_unit_for_floats(AttentionKernels& kernels);

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_AMX_FLOAT_KERNELS_H
