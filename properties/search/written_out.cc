// A case with its data as overrides instead of a recipe.
#include <algorithm>

#include "properties/case/repetition.h"
#include "properties/search/shrink.h"

namespace attncheck::properties {

std::optional<Spec> written_out(const Spec& spec, const Operator& op, std::size_t max_elements) {
    Spec plain = spec;
    plain.edits.clear();
    const auto shapes = op.shapes(plain);
    std::size_t total = 0;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
        if (op.schema().tensors[i].output || op.schema().tensors[i].derived) continue;
        std::size_t count = 1;
        for (const auto extent : shapes[i]) count *= static_cast<std::size_t>(extent);
        total += count;
    }
    if (total > max_elements) return std::nullopt;
    const std::vector<Tensor> tensors = op.logical_tensors(plain);
    Spec to = spec;
    to.recipe = Recipe::zeros;
    to.overrides.clear();
    Spec frame = plain;  // what is not written is zero, but in masks, which hide nothing then
    frame.recipe = Recipe::zeros;
    frame.overrides.clear();
    const std::vector<Tensor> blank = op.logical_tensors(frame);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        const Tensor& tensor = tensors[i];
        if (tensor.output || op.schema().tensors[i].derived) continue;
        const std::vector<double> values = tensor.values();
        const Repetition repetition(spec.layouts[i], op.schema().tensors[i], extents_of(plain));
        for (std::size_t k = 0; k < values.size(); ++k) {
            if (tensor.bits[k] == 0 && blank[i].bits[k] == 0) continue;
            const auto index = coordinates(static_cast<std::int64_t>(k), tensor.buffer_shape);
            if (repetition.first_of(k) != k) continue;
            ElementRef ref;
            ref.tensor = static_cast<int>(i);
            std::copy(index.begin(), index.end(), ref.index.begin());
            to.overrides[ref] = values[k];
        }
    }
    return to;
}

}  // namespace attncheck::properties
