// Shorthand of the suite's own tests: a Spec from its case line, and generated Specs.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "properties/operators/catalogue.h"
#include "properties/case/spec.h"

namespace attncheck::properties {

inline Spec spec_of(const std::string& line) { return parse(line, schemas()); }

/// A small legal forward case: one sequence of one block, whose values are all zero.
inline const char* kPlainLine =
    "nsa_compress{dtype=fp16 seq=[16] heads=1 dim=16 block=16 stride=16 data=zeros seed=0}";

/// A generated legal Spec of the operator; the same number gives the same Spec.
inline Spec sampled(const Operator& op, std::uint64_t number) {
    Random random(number);
    return op.sample(random, static_cast<int>(number % 101));
}

/// Nothing of a test depends on the order in which operators are listed.
inline const Operator& forward() { return *find_operator("nsa_compress"); }
inline const Operator& gradient() { return *find_operator("nsa_compress_grad"); }

}  // namespace attncheck::properties
