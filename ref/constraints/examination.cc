#include "ref/constraints/examination.h"

#include <algorithm>
#include <cstdio>

namespace attncheck::ref {

std::string show(Dtype dtype) {
    const auto number = static_cast<std::int32_t>(dtype);
    return std::to_string(number) + " (" + std::string(dtype_name(dtype)) + ")";
}

std::string show(const std::vector<std::int64_t>& shape) {
    std::string text = "[";
    for (const std::int64_t extent : shape)
        text += (text.size() > 1 ? "," : "") + std::to_string(extent);
    return text + "]";
}

std::string show(const std::string& text) {
    constexpr std::size_t kShown = 32;
    return '"' + text.substr(0, kShown) + (text.size() > kShown ? "...\"" : "\"");
}

std::string show(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.17g", value);
    return text;
}

void Examination::rule(bool holds, int status, const char* parameter, const std::string& value,
                       const std::string& allowed) {
    if (!accepted() || holds) return;
    ruling = {status, parameter, std::string(parameter) + ' ' + value + "; allowed: " + allowed};
}

void Examination::present(bool holds, const char* parameter, const std::string& allowed) {
    rule(holds, kAbsent, parameter, "is absent", allowed);
}

void Examination::number(bool holds, const char* parameter, std::int64_t value,
                         const std::string& allowed) {
    rule(holds, kInvalid, parameter, "is " + std::to_string(value), allowed);
}

void Examination::number_within(const char* parameter, std::int64_t value, std::int64_t smallest,
                                std::int64_t largest) {
    number(value >= smallest && value <= largest, parameter, value,
           std::to_string(smallest) + ".." + std::to_string(largest));
}

void Examination::layout(const std::optional<std::string>& layout, const char* parameter) {
    if (layout) rule(*layout == "TND", kInvalid, parameter, "is " + show(*layout), "\"TND\"");
}

void Examination::rank(const TensorArgument& t, const char* parameter, std::int32_t rank) {
    const bool holds = t.rank == rank && t.shape.size() == static_cast<std::size_t>(rank);
    rule(holds, kInvalid, parameter, "has rank " + std::to_string(t.rank),
         "rank " + std::to_string(rank));
}

void Examination::dtype(const TensorArgument& t, const char* parameter,
                        std::initializer_list<Dtype> allowed) {
    const auto found = static_cast<Dtype>(t.dtype);
    std::string names;
    for (const Dtype each : allowed) names += (names.empty() ? "" : ", ") + show(each);
    rule(std::find(allowed.begin(), allowed.end(), found) != allowed.end(), kInvalid, parameter,
         "has dtype " + show(found), names);
}

void Examination::same_dtype(const TensorArgument& t, const char* parameter,
                             const TensorArgument& other, const char* other_parameter) {
    rule(t.dtype == other.dtype, kInvalid, parameter,
         "has dtype " + show(static_cast<Dtype>(t.dtype)),
         show(static_cast<Dtype>(other.dtype)) + ", the dtype of " + other_parameter);
}

void Examination::extent(bool holds, const char* parameter, const char* name, std::int64_t value,
                         const std::string& allowed) {
    rule(holds, kInvalid, parameter, "has " + std::string(name) + " = " + std::to_string(value),
         allowed);
}

void Examination::extent_within(const char* parameter, const char* name, std::int64_t value,
                                std::int64_t smallest, std::int64_t largest) {
    extent(value >= smallest && value <= largest, parameter, name, value,
           std::string(name) + " in " + std::to_string(smallest) + ".." + std::to_string(largest));
}

void Examination::shape(const TensorArgument& t, const char* parameter, const char* extents,
                        const std::vector<std::int64_t>& wanted) {
    rule(t.shape == wanted, kInvalid, parameter, "has shape " + show(t.shape),
         std::string(extents) + " = " + show(wanted));
}

void Examination::array_size(bool holds, const ArrayArgument& array, const char* parameter,
                             const std::string& allowed) {
    rule(holds, kInvalid, parameter, "has size " + std::to_string(array.size), allowed);
}

void Examination::length_entry(const char* parameter, std::size_t index, std::int64_t value,
                               std::int64_t previous) {
    rule(value >= previous, kInvalid, parameter,
         "has value " + std::to_string(value) + " at index " + std::to_string(index),
         "non-negative, non-decreasing values, here at least " + std::to_string(previous));
}

void Examination::last_length(const char* parameter, std::int64_t last, const char* extent_name,
                              std::int64_t extent_value) {
    rule(last <= extent_value, kInvalid, parameter, "ends with " + std::to_string(last),
         "a last value of at most " + std::string(extent_name) + " = " +
             std::to_string(extent_value));
}

}  // namespace attncheck::ref
