#include "properties/case/call.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <limits>
#include <numeric>
#include <stdexcept>

namespace attncheck::properties {
namespace {

template <class Items>
auto* find_named(Items& items, std::string_view name) {
    const auto it = std::find_if(items.begin(), items.end(),
                                 [&](const auto& item) { return item.name == name; });
    return it == items.end() ? nullptr : &*it;
}

[[noreturn]] void bad_edit(std::string_view edit, std::string_view why) {
    throw std::invalid_argument(fmt::format("case: break entry '{}' {}", edit, why));
}

std::int64_t edit_value(std::string_view edit, std::string_view text) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size())
        bad_edit(edit, "needs a whole number behind '='");
    return value;
}

double edit_real(std::string_view edit, std::string_view text) {
    if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (text == "inf") return std::numeric_limits<double>::infinity();
    if (text == "-inf") return -std::numeric_limits<double>::infinity();
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size())
        bad_edit(edit, "needs a number, nan, inf or -inf behind '='");
    return value;
}

/// "shape[2]" -> 2 with the name in front of the bracket in `name`; -1 when there is no bracket.
std::int64_t bracket_index(std::string_view edit, std::string_view& name) {
    const auto open = name.find('[');
    if (open == std::string_view::npos) return -1;
    if (name.back() != ']') bad_edit(edit, "has an open bracket");
    const std::int64_t index = edit_value(edit, name.substr(open + 1, name.size() - open - 2));
    if (index < 0) bad_edit(edit, "has a negative index");
    name = name.substr(0, open);
    return index;
}

/// NAME[i,j,k]=value: one element of an input.
void set_element(std::string_view edit, Tensor& tensor, std::string_view brackets,
                 std::string_view value) {
    std::int64_t offset = 0;
    std::size_t dim = 0;
    brackets.remove_prefix(1);
    if (brackets.empty() || brackets.back() != ']') bad_edit(edit, "has an open bracket");
    brackets.remove_suffix(1);
    while (dim < tensor.buffer_shape.size()) {
        const auto comma = std::min(brackets.find(','), brackets.size());
        const std::int64_t index = edit_value(edit, brackets.substr(0, comma));
        if (index < 0 || index >= tensor.buffer_shape[dim]) bad_edit(edit, "is outside the tensor");
        offset = offset * tensor.buffer_shape[dim++] + index;
        brackets.remove_prefix(std::min(comma + 1, brackets.size()));
    }
    if (!brackets.empty() || tensor.output || tensor.bits.empty())
        bad_edit(edit, "names no element of an input");
    tensor.bits[static_cast<std::size_t>(offset)] =
        ref::encode(tensor.type(), edit_real(edit, value));
}

}  // namespace

std::size_t Tensor::elements() const {
    std::size_t count = 1;
    for (const auto extent : buffer_shape) count *= static_cast<std::size_t>(extent);
    return count;
}

std::size_t Tensor::element_size() const {
    return static_cast<std::size_t>(ref::dtype_size(type()));
}

std::vector<double> Tensor::values() const {
    std::vector<double> out(bits.size());
    std::transform(bits.begin(), bits.end(), out.begin(),
                   [&](std::uint32_t b) { return ref::decode(type(), b); });
    return out;
}

Tensor& Call::tensor(std::string_view name) {
    Tensor* found = find_named(tensors, name);
    if (!found) throw std::logic_error(fmt::format("{} has no tensor {}", op, name));
    return *found;
}

const Tensor& Call::tensor(std::string_view name) const {
    return const_cast<Call*>(this)->tensor(name);
}

std::int64_t Call::number(std::string_view name) const {
    const Number* found = find_named(numbers, name);
    if (!found) throw std::logic_error(fmt::format("{} has no number {}", op, name));
    return found->value;
}

double Call::real(std::string_view name) const {
    const Real* found = find_named(reals, name);
    if (!found) throw std::logic_error(fmt::format("{} has no real number {}", op, name));
    return found->value;
}

Tensor make_tensor(std::string name, bool output, ref::Dtype dtype, std::vector<std::int64_t> shape,
                   std::vector<std::uint32_t> bits, Layout layout) {
    Tensor tensor;
    tensor.name = std::move(name);
    tensor.output = output;
    tensor.dtype = tensor.dtype_of_buffer = static_cast<std::int32_t>(dtype);
    tensor.rank = static_cast<std::int32_t>(shape.size());
    tensor.strides = strides_for(layout, shape);
    tensor.shape = tensor.buffer_shape = std::move(shape);
    tensor.bits = std::move(bits);
    return tensor;
}

std::vector<std::int64_t> cumulative(const std::vector<std::int64_t>& lengths) {
    std::vector<std::int64_t> ends(lengths.size());
    std::partial_sum(lengths.begin(), lengths.end(), ends.begin());
    return ends;
}

std::int64_t longest(const std::vector<std::int64_t>& lengths) {
    return lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
}

std::vector<std::int64_t> row_starts(const std::vector<std::int64_t>& lengths) {
    auto starts = cumulative(lengths);
    starts.insert(starts.begin(), 0);
    return starts;
}

std::vector<std::int64_t> strides_for(Layout layout, std::span<const std::int64_t> shape) {
    const std::size_t rank = shape.size();
    std::vector<std::size_t> order(rank);  // slowest first
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (layout == Layout::swapped && rank >= 2) std::swap(order[0], order[1]);
    if (layout == Layout::columns) std::rotate(order.begin(), order.end() - 1, order.end());
    std::vector<std::int64_t> strides(rank);
    std::int64_t pitch = layout == Layout::spread ? 2 : 1;
    for (std::size_t k = rank; k-- > 0;) {
        const std::size_t dim = order[k];
        if (layout == Layout::broadcast && dim == 1) continue;  // stride 0
        strides[dim] = pitch;
        pitch *= std::max<std::int64_t>(shape[dim], 1);
        if (layout == Layout::gap && k > 0) pitch += 3;  // odd, so that rows start unaligned
    }
    if (layout == Layout::reversed && rank > 0) strides[0] = -strides[0];
    if (layout == Layout::unit)
        for (std::size_t dim = 0; dim < rank; ++dim)
            if (shape[dim] == 1)
                strides[dim] = dim == 0 ? 0 : 4099 * static_cast<std::int64_t>(dim);
    return strides;
}

Extent extent_of(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides) {
    Extent extent{0, 0};
    for (std::size_t dim = 0; dim < shape.size(); ++dim) {
        if (shape[dim] == 0) return {0, -1};
        const std::int64_t reach = (shape[dim] - 1) * strides[dim];
        (reach < 0 ? extent.lowest : extent.highest) += reach;
    }
    return extent;
}

std::vector<std::int64_t> offsets_of(std::span<const std::int64_t> shape,
                                     std::span<const std::int64_t> strides) {
    std::vector<std::int64_t> offsets{0};
    for (std::size_t dim = 0; dim < shape.size(); ++dim) {
        std::vector<std::int64_t> next;
        next.reserve(offsets.size() * static_cast<std::size_t>(shape[dim]));
        for (const auto offset : offsets)
            for (std::int64_t i = 0; i < shape[dim]; ++i) next.push_back(offset + i * strides[dim]);
        offsets = std::move(next);
    }
    return offsets;
}

std::vector<std::int64_t> coordinates(std::int64_t index, std::span<const std::int64_t> shape) {
    std::vector<std::int64_t> out(shape.size());
    for (std::size_t dim = shape.size(); dim-- > 0;) {
        out[dim] = index % shape[dim];
        index /= shape[dim];
    }
    return out;
}

void require_edits_fit(const std::vector<std::vector<std::int64_t>>& shapes) {
    constexpr double kMost = 1 << 27;
    double elements = 0;
    for (const auto& shape : shapes)
        elements += std::accumulate(shape.begin(), shape.end(), 1.0, std::multiplies<>());
    if (elements > kMost)
        throw std::invalid_argument(fmt::format(
            "case: its break entries ask for tensors of {:.3g} elements, at most {:.3g} "
            "are laid out",
            elements, kMost));
}

void apply_edit(Call& call, std::string_view edit) {
    const auto equals = edit.find('=');
    std::string_view left = edit.substr(0, equals);
    const std::string_view right =
        equals == std::string_view::npos ? std::string_view{} : edit.substr(equals + 1);
    const auto dot = left.find('.');
    std::string_view what =
        dot == std::string_view::npos ? std::string_view{} : left.substr(dot + 1);
    std::string_view name = left.substr(0, dot);
    if (const auto open = left.find('[');
        dot == std::string_view::npos && open != std::string_view::npos)
        if (Tensor* tensor = find_named(call.tensors, left.substr(0, open)))
            return set_element(edit, *tensor, left.substr(open), right);
    const std::int64_t entry = bracket_index(edit, name);

    if (Tensor* tensor = find_named(call.tensors, name)) {
        const std::int64_t dim = bracket_index(edit, what);
        if (what == "absent") {
            tensor->present = false;
        } else if (what == "present") {
            tensor->present = true;
        } else if (what == "dtype") {
            tensor->dtype = static_cast<std::int32_t>(edit_value(edit, right));
        } else if (what == "rank") {
            tensor->rank = static_cast<std::int32_t>(edit_value(edit, right));
            const auto filled =
                static_cast<std::size_t>(std::clamp(tensor->rank, 0, ATTNCHECK_MAX_RANK));
            tensor->shape.resize(filled, 1);
            tensor->strides.resize(filled, 1);
        } else if (what == "shape" && dim >= 0) {
            if (dim >= static_cast<std::int64_t>(tensor->shape.size()))
                bad_edit(edit, "is outside the tensor's rank");
            tensor->shape[static_cast<std::size_t>(dim)] = edit_value(edit, right);
        } else {
            bad_edit(edit, "knows absent, present, dtype=, rank= and shape[k]= of a tensor");
        }
    } else if (HostArray* array = find_named(call.arrays, name)) {
        if (what == "absent") {
            array->present = false;
            array->size = 0;
        } else if (what == "null") {  // a length without values
            array->present = false;
        } else if (what == "size") {
            array->size = edit_value(edit, right);
            if (array->size > static_cast<std::int64_t>(array->values.size()))
                bad_edit(edit, "would read past the array");
        } else if (entry >= 0 && what.empty()) {
            if (entry >= static_cast<std::int64_t>(array->values.size()))
                bad_edit(edit, "is outside the array");
            array->values[static_cast<std::size_t>(entry)] = edit_value(edit, right);
        } else {
            bad_edit(edit, "knows absent, null, size= and [k]= of an array");
        }
    } else if (Text* text = find_named(call.texts, name)) {
        if (what == "absent")
            text->value.reset();
        else if (right.size() >= 2 && right.front() == '"' && right.back() == '"')
            text->value = std::string(right.substr(1, right.size() - 2));
        else
            bad_edit(edit, "needs a string in double quotes, or .absent");
    } else if (Number* number = find_named(call.numbers, name)) {
        number->value = edit_value(edit, right);
    } else if (Real* real = find_named(call.reals, name)) {
        real->value = edit_real(edit, right);
    } else {
        bad_edit(edit, fmt::format("names no argument of {}", call.op));
    }
}

bool runnable_after_edits(const Call& call) {
    return std::all_of(call.tensors.begin(), call.tensors.end(), [](const Tensor& tensor) {
        if (!tensor.present) return true;
        if (tensor.dtype != tensor.dtype_of_buffer ||
            tensor.shape.size() != tensor.buffer_shape.size())
            return false;
        for (std::size_t dim = 0; dim < tensor.shape.size(); ++dim)
            if (tensor.shape[dim] > tensor.buffer_shape[dim] || tensor.shape[dim] < 0) return false;
        return true;
    });
}

}  // namespace attncheck::properties
