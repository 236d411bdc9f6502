#ifndef ATTNCHECK_IMPL_ARGUMENT_CHECKS_H
#define ATTNCHECK_IMPL_ARGUMENT_CHECKS_H

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>

#include "attncheck/candidate.h"
#include "impl/arguments/rejection.h"

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

/// low <= value <= high.
MaybeRejection check_range(const char* name, std::int64_t value, std::int64_t low,
                           std::int64_t high);
/// An attribute of the form 16, 32, ..., high.
MaybeRejection check_multiple_of_16(const char* name, std::int64_t value, std::int64_t high);
/// The same for an extent of a tensor, which the message calls `meaning`.
MaybeRejection check_extent(const char* name, const char* meaning, std::int64_t value,
                            std::int64_t low, std::int64_t high);
/// Finite once narrowed to fp32.
MaybeRejection check_scale(const char* name, double scale);

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
/// Rank 2, bool or uint8, no negative extent.
MaybeRejection check_byte_mask(const char* name, const attncheck_tensor& mask);

/// Judges one sequence: its length and its index in the array.
using CheckLength = std::function<MaybeRejection(std::int64_t length, std::int64_t index)>;

/// Cumulative lengths: 1 to max_size values, non-negative, non-decreasing by at most max_length,
/// the last one at most the number of tokens. `check_length` may be empty.
struct LengthLimits {
    std::int64_t max_size, max_length;
    Extent tokens;
};
MaybeRejection check_lengths(const char* name, const attncheck_int_array& ends,
                             const LengthLimits& limits, const CheckLength& check_length);
/// Of cumulative lengths that check_lengths accepts.
std::int64_t longest_sequence(const attncheck_int_array& ends);

}  // namespace attncheck::impl

#endif  // ATTNCHECK_IMPL_ARGUMENT_CHECKS_H
