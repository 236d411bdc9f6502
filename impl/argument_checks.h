#ifndef ATTNCHECK_IMPL_ARGUMENT_CHECKS_H
#define ATTNCHECK_IMPL_ARGUMENT_CHECKS_H

#include <cstdint>
#include <initializer_list>
#include <string>

#include "attncheck/candidate.h"
#include "impl/rejection.h"

/// Checks that more than one operator's validator makes.
///
/// They read the argument struct and the layout string only. Any bit pattern in the integers is
/// safe: nothing is indexed by a rank and nothing is multiplied.
namespace attncheck::impl {

struct NamedTensor {
    const char* name;
    const attncheck_tensor* tensor;
    int rank;  ///< the only legal one
};

struct Extent {
    const char* meaning;
    std::int64_t value;
};

Rejection absent(const char* parameter);
Rejection invalid(const char* parameter, const std::string& value, const std::string& allowed);

std::string dtype_name(std::int32_t dtype);
std::string element_text(std::int64_t value, std::int64_t index);  ///< "7 at index 2"

/// Exactly "TND"; `layout` is not null. `parameter` is the field that holds it.
MaybeRejection check_layout(const char* parameter, const char* layout);
MaybeRejection check_ranks(std::initializer_list<NamedTensor> tensors);
/// fp16 or bf16, the two types of every NSA operator's input.
MaybeRejection check_half(const char* name, const attncheck_tensor& tensor);
/// `of` says whose dtype is wanted, as in "that of input"; null when the operator fixes it.
MaybeRejection check_dtype(const char* name, const attncheck_tensor& tensor, std::int32_t dtype,
                           const char* of);
MaybeRejection check_shape(const char* name, const attncheck_tensor& tensor,
                           std::initializer_list<Extent> wanted);

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_ARGUMENT_CHECKS_H
