// The documented constraints of AttentionDecode as a predicate. It has no order of the rules, and
// every number but 0 and -1 is a right answer to a call that breaks one. Page numbers in the block
// table are the caller's to get right: no rule reads them.
#pragma once

#include "ref/constraints/constraints.h"

namespace attncheck::ref {

struct AttentionDecodeArguments {
    TensorArgument query, key_cache, value_cache, block_table, sink, out, lse;
    ArrayArgument kv_length;
    double scale = 1, softcap = 0;
    std::int64_t window_left = -1;
};

Ruling rule_attention_decode(const AttentionDecodeArguments& arguments);

}  // namespace attncheck::ref
