// The documented constraints of AttentionMerge as a predicate. It has no order of the rules, and
// every number but 0 and -1 is a right answer to a call that breaks one.
#pragma once

#include "ref/constraints/constraints.h"

namespace attncheck::ref {

struct AttentionMergeArguments {
    TensorArgument parts, lses, out, lse;
};

Ruling rule_attention_merge(const AttentionMergeArguments& arguments);

}  // namespace attncheck::ref
