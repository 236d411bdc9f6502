// The documented constraints of Attention and AttentionGrad as predicates. They have no order of the
// rules, and every number but 0 and -1 is a right answer to a call that breaks one.
//
// Beyond the shapes and types of candidate.h:
//   Hq a multiple of Hkv, heads and dims >= 1, other extents >= 0
//   scale finite in fp32, softcap likewise and >= 0, windows >= -1, align 0 or 1
//   cu_seqlens_q and cu_seqlens_kv both or neither; B + 1 >= 1 entries, first 0, non-decreasing, last
//   the number of rows
//   kv_length, bias and mask in the padded form only; kv_length in [0, Skv]
//   dbias only with a bias, dsink only with a sink
// An array is absent when !present and size == 0; a null pointer with a size is rejected.
#pragma once

#include "ref/constraints/constraints.h"

namespace attncheck::ref {

/// The arguments of both directions.
struct AttentionArguments {
    TensorArgument query, key, value;
    ArrayArgument cu_seqlens_q, cu_seqlens_kv;  ///< absent: padded form
    ArrayArgument kv_length;                    ///< optional
    TensorArgument bias, mask, sink;            ///< optional
    double scale = 1, softcap = 0;
    std::int64_t window_left = -1, window_right = -1, align = 0;
    TensorArgument out, lse;  ///< lse optional
};
Ruling rule_attention(const AttentionArguments& arguments);

struct AttentionGradArguments {
    AttentionArguments forward;
    TensorArgument dout, dq, dk, dv;
    TensorArgument dbias, dsink;  ///< optional
};
Ruling rule_attention_grad(const AttentionGradArguments& arguments);

}  // namespace attncheck::ref
