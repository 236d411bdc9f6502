// The text of emitted programs, of at most 60 lines each, 66 where a tensor is not contiguous. Attention is computed from its definition
// in binary64 over the pairs of a query and a key that the case has, as
// ref/attention/dense_attention.h has it.
#pragma once

#include <string>

namespace attncheck::properties {

struct EmittedCase;

/// NumPy; with `torch` the kernel gets and returns tensors of torch.
std::string emitted_python(const EmittedCase& made, bool torch);

/// C99; needs the mathematics library and nothing else.
std::string emitted_c(const EmittedCase& made);

}  // namespace attncheck::properties
