#ifndef ATTNCHECK_IMPL_FLASH_ATTENTION_FORWARD_PASS_H
#define ATTNCHECK_IMPL_FLASH_ATTENTION_FORWARD_PASS_H

#include "impl/kernels/attention_kernels.h"
#include "impl/operators/flash_attention/tile_plan.h"

/// The forward of dense attention, tile by tile (Dao 2023, FlashAttention-2, algorithm 1), for any
/// operator that has a plan.
namespace attncheck::impl {

/// Ropes and `no_rope` may be views of dim 0; so may be the output, when statistics alone count.
struct ForwardRows {
    RowView query, query_rope, key, key_rope, value, no_rope, output;
};

/// Writes the output and the statistics of all rows of all sequences.
void run_forward(const TilePlan& plan, const ForwardRows& rows, const AttentionKernels& kernels);

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_FLASH_ATTENTION_FORWARD_PASS_H
