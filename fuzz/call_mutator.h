// Mutation and cross-over on decoded calls: parts are changed for parts of the same meaning.
#pragma once

#include "fuzz/call_bytes.h"
#include "properties/case/random.h"

namespace attncheck::fuzz {

/// A call with one to three parts changed: a byte of the head, a change added, taken away, doubled,
/// moved, or one of its fields.
CallBytes mutated_call(CallBytes call, std::size_t max_changes, properties::Random& random);

/// Head of one, or bytes of both, and changes of both in their order.
CallBytes crossed_calls(const CallBytes& first, const CallBytes& second, std::size_t max_changes,
                        properties::Random& random);

/// A call from nothing: `size` 0..100 scales the number of changes.
CallBytes sampled_call(std::size_t max_changes, int size, properties::Random& random);

}  // namespace attncheck::fuzz
