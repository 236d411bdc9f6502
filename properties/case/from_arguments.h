// The other way from a Spec to a call: the case whose call has the arguments that somebody has,
// whatever the values of their elements. From the description alone, by search.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "properties/case/description.h"
#include "properties/case/spec.h"

namespace attncheck::properties {

/// Arguments of an entry point by name; one that is not named is absent, or not known if it is a
/// text or a number.
struct GivenArguments {
    struct Tensor {
        ref::Dtype dtype = ref::Dtype::fp16;
        std::vector<std::int64_t> shape;
    };
    std::map<std::string, Tensor> tensors;
    std::map<std::string, std::vector<std::int64_t>> arrays;
    std::map<std::string, std::string> texts;
    std::map<std::string, std::int64_t> integers;
    std::map<std::string, double> reals;
};

/// The simplest case with these arguments, data zeros. Outputs may be missing; reals are matched
/// where a field has their value and are left to the caller otherwise. Throws std::invalid_argument
/// naming the first argument that no case of the operator has together with the others.
Spec spec_from_arguments(const Description& description, const GivenArguments& given,
                         Profile profile);

}  // namespace attncheck::properties
