#ifndef ATTNCHECK_IMPL_ATTENTION_MERGE_H
#define ATTNCHECK_IMPL_ATTENTION_MERGE_H

#include "attncheck/candidate.h"

namespace attncheck::impl {

/// Merges attention over parts of the keys. `args` are valid.
void attention_merge(const attncheck_attention_merge_args& args);

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_ATTENTION_MERGE_H
