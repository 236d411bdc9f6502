#include "properties/case/values.h"

#include <algorithm>
#include <map>

#include "properties/case/data.h"
#include "properties/case/derived.h"
#include "properties/case/repetition.h"

namespace attncheck::properties {

int tensor_with(Role role, const Description& description) {
    const auto it = std::ranges::find(description.tensors, role, &TensorField::role);
    if (it == description.tensors.end()) return -1;
    return static_cast<int>(it - description.tensors.begin());
}

const Tensor& tensor_with(Role role, const Call& call) {
    return call.tensors.at(static_cast<std::size_t>(tensor_with(role, *call.description)));
}

bool has_extents_of(const Spec& spec, const Call& call) {
    const Call own = outline_of(extents_of(spec));
    return std::ranges::equal(own.tensors, call.tensors, {}, &Tensor::buffer_shape,
                              &Tensor::buffer_shape) &&
           std::ranges::equal(own.numbers, call.numbers, {}, &Number::value, &Number::value);
}

void fill_with_zeros(Call& call) {
    for (Tensor& tensor : call.tensors)
        if (!tensor.output) tensor.bits.assign(tensor.elements(), 0);
}

void fill_by_recipe(const Spec& spec, std::size_t index, Tensor& tensor) {
    tensor.bits.assign(tensor.elements(), 0);
    if (spec.recipe == Recipe::zeros) return;
    const DataRole role{static_cast<int>(index), spec.schema->tensors[index].role == Role::weight,
                        tensor.buffer_shape[0]};
    const auto total = static_cast<std::int64_t>(tensor.elements());
    for_each_index(tensor.buffer_shape, [&](std::size_t number, const auto& at) {
        tensor.bits[number] = ref::encode(
            tensor.type(), recipe_value(spec.recipe, spec.seed, role, tensor.type(), at, total));
    });
}

Spec without_edits(Spec spec) {
    spec.edits.clear();
    return spec;
}

void apply_overrides(const Spec& spec,
                     const std::function<std::vector<std::uint32_t>*(std::size_t tensor)>& bits_of,
                     std::vector<std::vector<std::int64_t>> shapes) {
    const bool repeats = std::ranges::any_of(spec.layouts, properties::repeats);
    if (spec.overrides.empty() && !repeats) return;
    const Extents extents = extents_of(spec);
    const bool is_changed = !shapes.empty();
    if (!is_changed) shapes = shapes_of(extents);
    std::map<std::size_t, Repetition> repetitions;
    for (std::size_t i = 0; i < spec.layouts.size(); ++i)
        if (properties::repeats(spec.layouts[i]) && bits_of(i) != nullptr)
            repetitions.try_emplace(i, spec.layouts[i], spec.schema->tensors[i], extents,
                                    is_changed ? std::span<const std::int64_t>(shapes[i])
                                               : std::span<const std::int64_t>());
    for (const auto& [element, value] : spec.overrides) {
        const auto index = static_cast<std::size_t>(element.tensor);
        std::vector<std::uint32_t>* const bits = bits_of(index);
        if (!bits) continue;
        const auto& shape = shapes[index];
        std::size_t offset = 0;
        for (std::size_t dim = 0; dim < shape.size(); ++dim)
            offset = offset * static_cast<std::size_t>(shape[dim]) +
                     static_cast<std::size_t>(element.index[dim]);
        if (const auto of = repetitions.find(index); of != repetitions.end())
            offset = of->second.first_of(offset);
        bits->at(offset) = ref::encode(extents.type_of(spec.schema->tensors[index]), value);
    }
    for (const auto& [index, repetition] : repetitions) repetition.fold(*bits_of(index));
}

void apply_overrides(
    const Spec& spec,
    std::initializer_list<std::pair<Role, std::vector<std::uint32_t>*>> bits_of) {
    apply_overrides(spec, [&](std::size_t tensor) -> std::vector<std::uint32_t>* {
        for (const auto& [role, bits] : bits_of)
            if (spec.schema->tensors[tensor].role == role) return bits;
        return nullptr;
    });
}

Call build_with_values(const Spec& spec, const std::function<void(const Spec&, Call&)>& give) {
    return build_of(spec, [&](const Spec& of, Call& call) {
        if (has_extents_of(of, call))
            give(of, call);
        else
            fill_with_zeros(call);
    });
}

std::vector<std::uint32_t> beside(const std::vector<std::uint32_t>& left, std::int64_t left_width,
                                  const std::vector<std::uint32_t>& right,
                                  std::int64_t right_width) {
    if (left.empty()) return right;
    std::vector<std::uint32_t> out;
    out.reserve(left.size() + right.size());
    for (auto l = left.begin(), r = right.begin(); l != left.end();
         l += left_width, r += right_width) {
        out.insert(out.end(), l, l + left_width);
        out.insert(out.end(), r, r + right_width);
    }
    return out;
}

}  // namespace attncheck::properties
