#include "properties/case/values.h"

#include <algorithm>

#include "properties/case/derived.h"

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

void apply_overrides(const Spec& spec,
                     const std::function<std::vector<std::uint32_t>*(std::size_t tensor)>& bits_of,
                     std::vector<std::vector<std::int64_t>> shapes) {
    if (spec.overrides.empty()) return;
    const Extents extents = extents_of(spec);
    if (shapes.empty()) shapes = shapes_of(extents);
    for (const auto& [element, value] : spec.overrides) {
        const auto index = static_cast<std::size_t>(element.tensor);
        const TensorField& tensor = spec.schema->tensors[index];
        std::vector<std::uint32_t>* const bits = bits_of(index);
        if (!bits) continue;
        const auto& shape = shapes[index];
        const bool broadcast = spec.layouts[index] == Layout::broadcast;
        for (std::int64_t copy = 0; copy < (broadcast ? shape[1] : 1); ++copy) {
            std::int64_t offset = 0;
            for (std::size_t dim = 0; dim < shape.size(); ++dim)
                offset = offset * shape[dim] + (broadcast && dim == 1 ? copy : element.index[dim]);
            bits->at(static_cast<std::size_t>(offset)) =
                ref::encode(extents.type_of(tensor), value);
        }
    }
}

}  // namespace attncheck::properties
