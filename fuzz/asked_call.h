// The call that a question asks about: FUZZED_CALL is the function of an operator with a reader of
// its own; without one FUZZED_FAMILY names the operator.
#pragma once

#ifdef FUZZED_CALL
#include "fuzz/fuzzed_call.h"
#else
#include "fuzz/described_call.h"
#endif

namespace attncheck::fuzz {

inline std::unique_ptr<FuzzedCall> asked_call(const CallBytes& bytes) {
#ifdef FUZZED_CALL
    return FUZZED_CALL(bytes);
#else
    return described_call(FUZZED_FAMILY, bytes);
#endif
}

}  // namespace attncheck::fuzz
