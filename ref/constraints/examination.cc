#include "ref/constraints/examination.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <stdexcept>

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

std::string show_range(std::int64_t smallest, std::int64_t largest) {
    return std::to_string(smallest) + ".." + std::to_string(largest);
}

bool is_finite_as_fp32(double value) { return std::abs(value) < 0x1.ffffffp127; }

std::string side_of(std::int64_t value, std::int64_t smallest, std::int64_t largest) {
    return value < smallest ? "below" : value > largest ? "above" : "between";
}

std::string side_of(const std::vector<std::int64_t>& shape,
                    const std::vector<std::int64_t>& wanted) {
    if (shape.size() != wanted.size()) return "another rank";
    if (std::is_permutation(shape.begin(), shape.end(), wanted.begin())) return "extents swapped";
    std::string side;
    for (std::size_t k = 0; k < shape.size(); ++k) {
        if (shape[k] == wanted[k]) continue;
        if (!side.empty()) return "several extents";
        side = "extent " + std::to_string(k) + (shape[k] < wanted[k] ? " below" : " above");
    }
    return side;
}

std::string side_of(const std::vector<std::int64_t>& shape,
                    const std::vector<std::vector<std::int64_t>>& allowed) {
    const auto differences = [&](const std::vector<std::int64_t>& other) {
        if (other.size() != shape.size()) return shape.size() + 1;
        std::size_t count = 0;
        for (std::size_t k = 0; k < shape.size(); ++k) count += shape[k] != other[k];
        return count;
    };
    const auto nearest = std::min_element(
        allowed.begin(), allowed.end(),
        [&](const auto& a, const auto& b) { return differences(a) < differences(b); });
    if (nearest == allowed.end()) return {};
    if (nearest->size() != shape.size()) return "another rank";
    return "rank " + std::to_string(shape.size()) + ", " + side_of(shape, *nearest);
}

std::string place_of(std::size_t index, std::size_t count) {
    if (count == 1) return "only";
    return index == 0 ? "first" : index + 1 == count ? "last" : "inner";
}

namespace {

/// Bytes per element, 0 of a type that does not exist.
int size_of(Dtype dtype) { return dtype_name(dtype) == "unknown" ? 0 : dtype_size(dtype); }

/// Every number, and every list of numbers in brackets, as one #.
std::string without_values(std::string_view text) {
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    const auto is_of_number = [&](char c) {
        return is_digit(c) || c == '-' || c == '+' || c == 'e';
    };
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char before = i > 0 ? text[i - 1] : ' ';
        const bool in_word = (before >= 'a' && before <= 'z') || (before >= 'A' && before <= 'Z');
        const bool signed_number = text[i] == '-' && i + 1 < text.size() && is_digit(text[i + 1]);
        if (in_word && is_digit(text[i])) {  // "fp16", "N1"
            for (; i < text.size() && is_digit(text[i]); ++i) out += text[i];
            --i;
            continue;
        }
        if (text[i] == '[') {
            const std::size_t end = text.find_first_not_of("0123456789,-", i + 1);
            if (end != text.npos && text[end] == ']') {
                if (!out.ends_with("#, ")) out += '#';
                else out.resize(out.size() - 2);
                i = end;
                continue;
            }
        }
        if (in_word || !(is_digit(text[i]) || signed_number)) {
            out += text[i];
            continue;
        }
        // A point belongs to the number when one digit follows: "0.5", not "1..8".
        while (i + 1 < text.size() &&
               (is_of_number(text[i + 1]) ||
                (text[i + 1] == '.' && i + 2 < text.size() && is_digit(text[i + 2]))))
            ++i;
        out += '#';
    }
    return out;
}

std::int32_t rank_of(std::string_view extents) {
    return static_cast<std::int32_t>(std::ranges::count(extents, ',')) + 1;
}

/// "[T1,N1,8]" by what the letters stand for.
std::vector<std::int64_t> shape_of(std::string_view extents, const Letters& letters) {
    std::vector<std::int64_t> shape;
    for (std::size_t first = 1, last = 0; first < extents.size(); first = last + 1) {
        last = extents.find_first_of(",]", first);
        const std::string_view letter = extents.substr(first, last - first);
        std::int64_t extent = 0;
        if (std::from_chars(letter.begin(), letter.end(), extent).ec != std::errc{}) {
            const auto found = std::ranges::find(letters, letter, &Letters::value_type::first);
            if (found == letters.end())
                throw std::logic_error("no extent " + std::string(letter));
            extent = found->second;
        }
        shape.push_back(extent);
    }
    return shape;
}

}  // namespace

void Examination::rule(bool holds, int status, const char* parameter, std::string_view value,
                       std::string_view allowed, std::string_view side) {
    if (passes(holds)) return;
    const std::string name = parameter;
    ruling = {status, name, (name + ' ').append(value).append("; allowed: ").append(allowed),
              name + ": " + without_values(allowed)};
    std::string& clause = ruling.clause;
    const auto add = [&](const char* word, std::string_view text) {
        if (!text.empty()) clause.append(word).append(text);
    };
    add(" | ", side);
    add(" | sequence: ", place);
    add(" | in ", circumstance);
}

void Examination::present(bool holds, const char* parameter, std::string_view allowed) {
    rule(holds, kAbsent, parameter, "is absent", allowed);
}

void Examination::present(std::span<const Operand> operands) {
    for (const Operand& each : operands)
        if (!passes(each.tensor.present))
            present(false, each.name, std::string("a tensor ") + each.extents);
}

void Examination::number(bool holds, const char* parameter, std::int64_t value,
                         std::string_view allowed, std::string_view side) {
    if (passes(holds)) return;
    rule(false, kInvalid, parameter, "is " + std::to_string(value), allowed, side);
}

void Examination::number_within(const char* parameter, std::int64_t value, std::int64_t smallest,
                                std::int64_t largest) {
    if (passes(value >= smallest && value <= largest)) return;
    number(false, parameter, value, show_range(smallest, largest),
           side_of(value, smallest, largest));
}

void Examination::layout(const std::optional<std::string>& layout, const char* parameter) {
    if (layout && !passes(*layout == "TND")) rule(false, kInvalid, parameter, "is " + show(*layout), "\"TND\"");
}

void Examination::rank(const TensorArgument& t, const char* parameter, std::int32_t rank) {
    if (passes(t.rank == rank && t.shape.size() == static_cast<std::size_t>(rank))) return;
    rule(false, kInvalid, parameter, "has rank " + std::to_string(t.rank),
         "rank " + std::to_string(rank), side_of(t.rank, rank, rank));
}

void Examination::dtype(const TensorArgument& t, const char* parameter,
                        std::initializer_list<Dtype> allowed) {
    const auto found = static_cast<Dtype>(t.dtype);
    if (passes(std::find(allowed.begin(), allowed.end(), found) != allowed.end())) return;
    std::string names;
    for (const Dtype each : allowed) names += (names.empty() ? "" : ", ") + show(each);
    const bool is_confusable = std::any_of(allowed.begin(), allowed.end(), [&](Dtype each) {
        return size_of(each) == size_of(found);
    });
    rule(false, kInvalid, parameter, "has dtype " + show(found), names,
         is_confusable ? "of the same size" : "of another size");
}

void Examination::same_dtype(const TensorArgument& t, const char* parameter,
                             const TensorArgument& other, const char* other_parameter) {
    if (passes(t.dtype == other.dtype)) return;
    rule(false, kInvalid, parameter,
         "has dtype " + show(static_cast<Dtype>(t.dtype)),
         show(static_cast<Dtype>(other.dtype)) + ", the dtype of " + other_parameter,
         size_of(static_cast<Dtype>(t.dtype)) == size_of(static_cast<Dtype>(other.dtype))
             ? "of the same size"
             : "of another size");
}

void Examination::form(std::initializer_list<std::span<const Operand>> sides,
                       const Operand& leading, std::initializer_list<Dtype> allowed) {
    for (const auto& side : sides)
        for (const Operand& each : side) rank(each.tensor, each.name, rank_of(each.extents));
    dtype(leading.tensor, leading.name, allowed);
    for (const auto& side : sides)
        for (const Operand& each : side)
            if (each.stores == Stores::int32)
                dtype(each.tensor, each.name, {Dtype::int32});
            else if (each.stores == Stores::fp32)
                dtype(each.tensor, each.name, {Dtype::fp32});
            else
                same_dtype(each.tensor, each.name, leading.tensor, leading.name);
}

void Examination::extent(bool holds, const char* parameter, const char* name, std::int64_t value,
                         std::string_view allowed, std::string_view side) {
    if (passes(holds)) return;
    rule(false, kInvalid, parameter, "has " + std::string(name) + " = " + std::to_string(value),
         allowed, side);
}

void Examination::extent_within(const char* parameter, const char* name, std::int64_t value,
                                std::int64_t smallest, std::int64_t largest) {
    if (passes(value >= smallest && value <= largest)) return;
    extent(false, parameter, name, value,
           std::string(name) + " in " + show_range(smallest, largest),
           side_of(value, smallest, largest));
}

void Examination::shape(const TensorArgument& t, const char* parameter, const char* extents,
                        const std::vector<std::int64_t>& wanted) {
    if (passes(t.shape == wanted)) return;
    rule(false, kInvalid, parameter, "has shape " + show(t.shape),
         std::string(extents) + " = " + show(wanted), side_of(t.shape, wanted));
}

void Examination::shapes(std::span<const Operand> operands, const Letters& letters) {
    for (const Operand& each : operands)
        if (accepted()) shape(each.tensor, each.name, each.extents, shape_of(each.extents, letters));
}

void Examination::require_backed(const ArrayArgument& array, const char* parameter) const {
    if (accepted() && static_cast<std::uint64_t>(array.size) != array.values.size())
        throw std::logic_error(std::string(parameter) + " holds " +
                               std::to_string(array.values.size()) + " values for its size " +
                               std::to_string(array.size));
}

void Examination::array_size(bool holds, const ArrayArgument& array, const char* parameter,
                             std::string_view allowed) {
    if (passes(holds)) return;
    rule(false, kInvalid, parameter, "has size " + std::to_string(array.size), allowed,
         array.size < 1 ? "below" : "above");
}

void Examination::length_entry(const char* parameter, std::size_t index, std::int64_t value,
                               std::int64_t previous) {
    rule(value >= previous, kInvalid, parameter,
         "has value " + std::to_string(value) + " at index " + std::to_string(index),
         "non-negative, non-decreasing values, here at least " + std::to_string(previous),
         value < 0 ? "negative" : "decreasing");
}

void Examination::last_length(const char* parameter, std::int64_t last, const char* extent_name,
                              std::int64_t extent_value) {
    if (passes(last <= extent_value)) return;
    rule(false, kInvalid, parameter, "ends with " + std::to_string(last),
         "a last value of at most " + std::string(extent_name) + " = " +
             std::to_string(extent_value));
}

}  // namespace attncheck::ref
