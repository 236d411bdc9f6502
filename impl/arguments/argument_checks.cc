#include "impl/arguments/argument_checks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace attncheck::impl {
namespace {

std::string range_text(std::int64_t low, std::int64_t high) {
    std::string text(1, '[');
    return text.append(std::to_string(low)).append(", ").append(std::to_string(high)).append("]");
}

}  // namespace

Rejection absent(const char* parameter) {
    return {ATTNCHECK_ERR_NULLPTR, parameter,
            std::string(parameter) + " is NULL; allowed: not NULL"};
}

Rejection invalid(const char* parameter, const std::string& value, const std::string& allowed) {
    return {ATTNCHECK_ERR_INVALID, parameter,
            std::string(parameter) + " is " + value + "; allowed: " + allowed};
}

std::string dtype_name(std::int32_t dtype) {
    switch (dtype) {
        case ATTNCHECK_FLOAT32:
            return "0 (float32)";
        case ATTNCHECK_FLOAT16:
            return "1 (float16)";
        case ATTNCHECK_INT32:
            return "3 (int32)";
        case ATTNCHECK_BFLOAT16:
            return "27 (bfloat16)";
        default:
            return std::to_string(dtype);
    }
}

std::string element_text(std::int64_t value, std::int64_t index) {
    return std::to_string(value) + " at index " + std::to_string(index);
}

MaybeRejection check_range(const char* name, std::int64_t value, std::int64_t low,
                           std::int64_t high) {
    if (value >= low && value <= high) return std::nullopt;
    return invalid(name, std::to_string(value), range_text(low, high));
}

MaybeRejection check_multiple_of_16(const char* name, std::int64_t value, std::int64_t high) {
    if (value >= 16 && value <= high && value % 16 == 0) return std::nullopt;
    return invalid(name, std::to_string(value), "a multiple of 16 in " + range_text(16, high));
}

MaybeRejection check_extent(const char* name, const char* meaning, std::int64_t value,
                            std::int64_t low, std::int64_t high) {
    if (value >= low && value <= high) return std::nullopt;
    return invalid(name, std::string("of extent ") + meaning + " = " + std::to_string(value),
                   std::string(meaning) + " in " + range_text(low, high));
}

MaybeRejection check_scale(const char* name, double scale) {
    if (std::isfinite(static_cast<float>(scale))) return std::nullopt;
    return invalid(name, std::to_string(scale), "values that are finite in float32");
}

MaybeRejection check_layout(const char* parameter, const char* layout) {
    if (std::strcmp(layout, "TND") == 0) return std::nullopt;
    // The string is the caller's and may be of any length; the head of it identifies the mistake.
    constexpr std::size_t kShownChars = 24;
    const std::size_t length = strnlen(layout, kShownChars + 1);
    std::string shown(1, '"');
    shown.append(layout, length < kShownChars ? length : kShownChars);
    shown.append(length > kShownChars ? "...\"" : "\"");
    return invalid(parameter, shown, "\"TND\"");
}

MaybeRejection check_ranks(std::initializer_list<NamedTensor> tensors) {
    for (const NamedTensor& named : tensors) {
        if (named.tensor->rank == named.rank) continue;
        return invalid(named.name, "of rank " + std::to_string(named.tensor->rank),
                       "rank " + std::to_string(named.rank));
    }
    return std::nullopt;
}

MaybeRejection check_half(const char* name, const attncheck_tensor& tensor) {
    if (tensor.dtype == ATTNCHECK_FLOAT16 || tensor.dtype == ATTNCHECK_BFLOAT16) return {};
    return invalid(name, "of dtype " + dtype_name(tensor.dtype),
                   "dtype 1 (float16) or 27 (bfloat16)");
}

MaybeRejection check_dtype(const char* name, const attncheck_tensor& tensor, std::int32_t dtype,
                           const char* of) {
    if (tensor.dtype == dtype) return std::nullopt;
    const std::string wanted = "dtype " + dtype_name(dtype);
    return invalid(name, "of dtype " + dtype_name(tensor.dtype),
                   of == nullptr ? wanted : wanted + ", that of " + of);
}

MaybeRejection check_shape(const char* name, const attncheck_tensor& tensor,
                           std::initializer_list<Extent> wanted) {
    std::string shown, meanings, values;
    bool same = true;
    std::size_t dim = 0;
    for (const Extent& extent : wanted) same = tensor.shape[dim++] == extent.value && same;
    if (same) return std::nullopt;
    dim = 0;
    for (const Extent& extent : wanted) {
        const char* separator = dim == 0 ? "[" : ", ";
        shown.append(separator).append(std::to_string(tensor.shape[dim++]));
        meanings.append(separator).append(extent.meaning);
        values.append(separator).append(std::to_string(extent.value));
    }
    return invalid(name, "of shape " + shown + "]", meanings + "] = " + values + "]");
}

MaybeRejection check_byte_mask(const char* name, const attncheck_tensor& mask) {
    if (auto rejection = check_ranks({{name, &mask, 2}})) return rejection;
    if (mask.dtype != ATTNCHECK_BOOL && mask.dtype != ATTNCHECK_UINT8) {
        return invalid(name, "of dtype " + dtype_name(mask.dtype), "dtype 12 (bool) or 4 (uint8)");
    }
    for (int dim = 0; dim < 2; ++dim) {
        if (mask.shape[dim] >= 0) continue;
        return invalid(name, "of extent " + std::to_string(mask.shape[dim]), "extents >= 0");
    }
    return std::nullopt;
}

MaybeRejection check_lengths(const char* name, const attncheck_int_array& ends,
                             const LengthLimits& limits, const CheckLength& check_length) {
    if (ends.size < 1 || ends.size > limits.max_size) {
        return invalid(name, "of size " + std::to_string(ends.size),
                       "size in " + range_text(1, limits.max_size));
    }
    std::int64_t previous = 0;
    for (std::int64_t i = 0; i < ends.size; ++i) {
        const std::int64_t value = ends.values[i];
        if (value < 0) return invalid(name, element_text(value, i), "values >= 0");
        if (value < previous) {
            return invalid(name, element_text(value, i),
                           "non-decreasing values, the one before is " + std::to_string(previous));
        }
        if (value - previous > limits.max_length) {
            return invalid(name, element_text(value, i),
                           "at most " + std::to_string(limits.max_length) +
                               " more than the one before, which is " + std::to_string(previous));
        }
        if (check_length != nullptr) {
            if (auto rejection = check_length(value - previous, i)) return rejection;
        }
        previous = value;
    }
    if (previous <= limits.tokens.value) return std::nullopt;
    return invalid(name, element_text(previous, ends.size - 1),
                   std::string("a last value of at most ") + limits.tokens.meaning + ", which is " +
                       std::to_string(limits.tokens.value));
}

std::int64_t longest_sequence(const attncheck_int_array& ends) {
    std::int64_t most = 0, previous = 0;
    for (std::int64_t i = 0; i < ends.size; ++i) {
        most = std::max(most, ends.values[i] - previous);
        previous = ends.values[i];
    }
    return most;
}

}  // namespace attncheck::impl
