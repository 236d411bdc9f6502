#include "properties/case/call.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
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

/// One element of an input.
void set_element(const Edit& edit, Tensor& tensor) {
    if (edit.index.size() != tensor.buffer_shape.size() || tensor.output || tensor.bits.empty())
        refuse(edit, "names no element of an input");
    std::int64_t offset = 0;
    for (std::size_t dim = 0; dim < edit.index.size(); ++dim) {
        if (edit.index[dim] >= tensor.buffer_shape[dim]) refuse(edit, "is outside the tensor");
        offset = offset * tensor.buffer_shape[dim] + edit.index[dim];
    }
    tensor.bits[static_cast<std::size_t>(offset)] = ref::encode(tensor.type(), edit.real());
}

/// "lead=N": N leading extents of 1. "spare=N": N elements more than needed, all bits set. Where all rows
/// lie at one place the spare ones are equal to the first.
void extend_tensor(const Edit& edit, Tensor& tensor) {
    constexpr std::int64_t kMost = 64;
    const std::int64_t value = edit.integer();
    if (value < 0 || value > kMost) refuse(edit, fmt::format("needs a count up to {}", kMost));
    if (edit.attribute == "lead") {
        const auto room = ATTNCHECK_MAX_RANK -
                          std::max(std::ssize(tensor.shape), std::ssize(tensor.buffer_shape));
        const auto count = static_cast<std::size_t>(std::clamp<std::int64_t>(value, 0, room));
        for (auto* extents : {&tensor.shape, &tensor.buffer_shape, &tensor.strides})
            extents->insert(extents->begin(), count, 1);
        tensor.rank += static_cast<std::int32_t>(count);
        return;
    }
    if (tensor.output || tensor.shared_bytes) refuse(edit, "is for inputs with elements of a case");
    if (value > 0 && tensor.allocation != 0) tensor.lie_alone(tensor.strides);
    const std::size_t given = tensor.bits.size();
    const bool at_one_place = given > 0 && !tensor.strides.empty() && tensor.strides[0] == 0;
    const auto row = given / static_cast<std::size_t>(std::max<std::int64_t>(tensor.buffer_shape[0], 1));
    tensor.buffer_shape[0] += value;
    if (!tensor.shape.empty()) tensor.shape[0] += value;
    tensor.bits.resize(tensor.elements(), 0xff);
    for (std::size_t k = given; at_one_place && k < tensor.bits.size(); ++k)
        tensor.bits[k] = tensor.bits[k % row];
}

void edit_tensor(const Edit& edit, Tensor& tensor) {
    const std::string& what = edit.attribute;
    if (what.empty() && !edit.index.empty()) return set_element(edit, tensor);
    if (what == "shape" && edit.index.size() == 1) {
        const auto dim = static_cast<std::size_t>(edit.index[0]);
        if (dim >= tensor.shape.size()) refuse(edit, "is outside the tensor's rank");
        tensor.shape[dim] = edit.integer();
        return;
    }
    if (what == "swap" && edit.index.size() == 2) {
        const auto one = static_cast<std::size_t>(edit.index[0]),
                   other = static_cast<std::size_t>(edit.index[1]);
        if (std::max(one, other) >= tensor.shape.size())
            refuse(edit, "is outside the tensor's rank");
        std::swap(tensor.shape[one], tensor.shape[other]);
        return;
    }
    constexpr const char* kKnown =
        "a tensor knows absent, present, dtype=, rank=, shape[k]=, swap[k,l], lead= and spare=";
    if (!edit.index.empty()) refuse(edit, fmt::format("has an index: {}", kKnown));
    if (what == "absent" || what == "present") {
        tensor.present = what == "present";
    } else if (what == "dtype") {
        tensor.dtype = static_cast<std::int32_t>(edit.integer());
    } else if (what == "rank") {
        tensor.rank = static_cast<std::int32_t>(edit.integer());
        const auto filled =
            static_cast<std::size_t>(std::clamp(tensor.rank, 0, ATTNCHECK_MAX_RANK));
        tensor.shape.resize(filled, 1);
        tensor.strides.resize(filled, 1);
    } else if (what == "lead" || what == "spare") {
        extend_tensor(edit, tensor);
    } else {
        refuse(edit, fmt::format("has no such attribute: {}", kKnown));
    }
}

void edit_array(const Edit& edit, HostArray& array) {
    const std::string& what = edit.attribute;
    if (what == "absent" || what == "null") {  // null: a length without values
        array.present = false;
        if (what == "absent") array.size = 0;
    } else if (what == "size") {
        array.size = edit.integer();
        if (array.size > std::ssize(array.values)) refuse(edit, "would read past the array");
    } else if (what.empty() && edit.index.size() == 1) {
        if (edit.index[0] >= std::ssize(array.values)) refuse(edit, "is outside the array");
        array.values[static_cast<std::size_t>(edit.index[0])] = edit.integer();
    } else {
        refuse(edit, "knows absent, null, size= and [k]= of an array");
    }
}

void edit_text(const Edit& edit, Text& text) {
    if (edit.attribute == "absent")
        text.value.reset();
    else if (const auto* value = std::get_if<std::string>(&edit.value))
        text.value = *value;
    else
        refuse(edit, "needs a text in double quotes, or .absent");
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

void Tensor::lie_alone(std::vector<std::int64_t> in_strides) {
    strides = std::move(in_strides);
    allocation = 0;
    offset = 0;
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

double& Call::real(std::string_view name) {
    Real* found = find_named(reals, name);
    if (!found) throw std::logic_error(fmt::format("{} has no real number {}", op, name));
    return found->value;
}

double Call::real(std::string_view name) const { return const_cast<Call*>(this)->real(name); }

HostArray& Call::array(std::string_view name) {
    HostArray* found = find_named(arrays, name);
    if (!found) throw std::logic_error(fmt::format("{} has no array {}", op, name));
    return *found;
}

const HostArray& Call::array(std::string_view name) const {
    return const_cast<Call*>(this)->array(name);
}

Tensor make_tensor(std::string name, bool output, ref::Dtype dtype, std::vector<std::int64_t> shape,
                   std::vector<std::uint32_t> bits, Layout layout, DimOrder order) {
    Tensor tensor;
    tensor.name = std::move(name);
    tensor.output = output;
    tensor.dtype = tensor.dtype_of_buffer = static_cast<std::int32_t>(dtype);
    tensor.rank = static_cast<std::int32_t>(shape.size());
    tensor.strides = strides_for(layout, shape, order);
    tensor.order = std::move(order);
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

namespace {

/// The dimensions that lie in memory, slowest first.
std::vector<std::size_t> slowest_first(std::size_t rank, const DimOrder& in) {
    if (in.slowest_first) return *in.slowest_first;
    std::vector<std::size_t> order(rank);
    std::iota(order.begin(), order.end(), std::size_t{0});
    return order;
}

/// Dimensions that a layout repeats get stride 0, some others a negative one.
void repeat_or_reverse(Layout layout, std::vector<std::int64_t>& strides) {
    if (strides.empty()) return;
    switch (layout) {
        case Layout::reversed:
            strides.front() = -strides.front();
            break;
        case Layout::reversed_last:
            strides.back() = -strides.back();
            break;
        case Layout::reversed_all:
            for (std::int64_t& stride : strides) stride = -stride;
            break;
        case Layout::one_element:
            std::fill(strides.begin(), strides.end(), 0);
            break;
        default:
            break;
    }
}

/// The dimension that a layout leaves out of memory; the rank if there is none.
std::size_t repeated_dimension(Layout layout, std::size_t rank, const DimOrder& in) {
    return layout == Layout::broadcast    ? in.repeated
           : layout == Layout::one_row    ? 0
           : layout == Layout::one_column ? rank - 1
                                          : rank;
}

}  // namespace

int far_dimension(std::span<const std::int64_t> shape, const DimOrder& in) {
    constexpr std::int64_t kMostSlices = 128;  // each has pages of its own
    for (const std::size_t dim : slowest_first(shape.size(), in))
        if (shape[dim] > 1 && shape[dim] <= kMostSlices) return static_cast<int>(dim);
    return -1;
}

std::vector<std::int64_t> strides_for(Layout layout, std::span<const std::int64_t> shape,
                                      const DimOrder& in) {
    const std::size_t rank = shape.size();
    std::vector<std::size_t> order = slowest_first(rank, in);
    if (layout == Layout::swapped && order.size() >= 2) std::swap(order[0], order[1]);
    if (layout == Layout::columns && !order.empty())
        std::rotate(order.begin(), order.end() - 1, order.end());
    const int far = layout == Layout::far ? far_dimension(shape, in) : -1;
    const std::size_t repeated = repeated_dimension(layout, rank, in);
    std::vector<std::int64_t> strides(rank);
    std::int64_t pitch = layout == Layout::spread ? 2 : 1;
    for (std::size_t k = order.size(); k-- > 0;) {
        const std::size_t dim = order[k];
        if (dim == repeated || static_cast<int>(dim) == far) continue;  // stride 0, or below
        strides[dim] = pitch;
        pitch *= std::max<std::int64_t>(shape[dim], 1);
        if (layout == Layout::gap && k > 0) pitch += 3;  // odd, so that rows start unaligned
    }
    repeat_or_reverse(layout, strides);
    if (far >= 0) {  // odd, so that slices start unaligned
        const std::int64_t steps = shape[static_cast<std::size_t>(far)] - 1;
        strides[static_cast<std::size_t>(far)] = std::max(pitch, (kFarReach + steps) / steps) | 1;
    }
    if (layout == Layout::unit)
        for (const std::size_t dim : order)
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

void apply_edit(Call& call, const Edit& edit) {
    if (Tensor* tensor = find_named(call.tensors, edit.name)) return edit_tensor(edit, *tensor);
    if (HostArray* array = find_named(call.arrays, edit.name)) return edit_array(edit, *array);
    if (Text* text = find_named(call.texts, edit.name)) return edit_text(edit, *text);
    if (Number* number = find_named(call.numbers, edit.name))
        number->value = edit.integer();
    else if (Real* real = find_named(call.reals, edit.name))
        real->value = edit.real();
    else
        refuse(edit, fmt::format("names no argument of {}", call.op));
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
