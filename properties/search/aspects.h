// What a case looks like to a kernel that takes only some cases: one whole number for each thing that a kernel may be
// unable to do. Fields of the case line, memory orders, and what lengths and fields have to do with each other.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "properties/operators/operator.h"

namespace attncheck::properties {

struct Aspect {
    std::string name;  ///< "dim", "memory:reversed", "value_dim=dim"
    std::function<std::int64_t(const Spec&)> value;
    /// Gives the case this value as far as it can; whether the case is legal then is not checked.
    std::function<void(Spec&, std::int64_t)> set;
    std::function<std::string(std::int64_t)> text;  ///< of a value, as the case line has it
    std::vector<std::int64_t> named = {};           ///< all values, where they have names
    bool is_extent =
        false;  ///< one of many sizes: what holds for two of them says little of a third
};

/// Of an operator, in the order of its case line.
std::vector<Aspect> aspects_of(const Operator& op);

/// "dim=96", "no value_dim=dim"
std::string text_of(const Aspect& aspect, std::int64_t value);

}  // namespace attncheck::properties
