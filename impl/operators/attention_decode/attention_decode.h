#ifndef ATTNCHECK_IMPL_ATTENTION_DECODE_H
#define ATTNCHECK_IMPL_ATTENTION_DECODE_H

#include "attncheck/candidate.h"
#include "impl/kernels/attention_kernels.h"

namespace attncheck::impl {

/// Attention of a few queries per sequence over a paged cache. `args` are valid, and the entries of
/// block_table that the lengths need are pages of the cache; no other entry is read, and no key
/// that no row sees.
void attention_decode(const attncheck_attention_decode_args& args, const AttentionKernels& kernels);

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_ATTENTION_DECODE_H
