#include "impl/argument_checks.h"

#include <cstring>

namespace attncheck::impl {

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

}  // namespace attncheck::impl
