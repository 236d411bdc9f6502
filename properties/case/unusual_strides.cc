#include "properties/case/unusual_strides.h"

#include <algorithm>

#include "properties/case/derived.h"
#include "properties/case/random.h"

namespace attncheck::properties {
namespace {

constexpr Layout kUnusual[] = {Layout::reversed_last, Layout::reversed_all, Layout::one_row,  Layout::one_row,
                               Layout::one_column,    Layout::one_element,  Layout::broadcast};

/// The layout changes where elements of the tensor lie.
bool matters(const Spec& spec, std::size_t tensor, Layout layout) {
    const Extents extents = extents_of(spec);
    const TensorField& field = spec.schema->tensors[tensor];
    if (!field.present.holds(extents)) return false;
    const Laid laid = laid_out(field, extents);
    if (std::ranges::find(laid.shape, 0) != laid.shape.end()) return false;
    return strides_for(layout, laid.shape, laid.order) !=
           strides_for(Layout::dense, laid.shape, laid.order);
}

}  // namespace

void draw_unusual_strides(Spec& spec) {
    constexpr int kPercent = 9, kTries = 8;
    Random random(mix(spec.seed ^ 0x57a1de5) ^ static_cast<std::uint64_t>(spec.numbers[0]));
    if (!spec.schema->entry.pack || !random.chance(kPercent)) return;
    const bool far = random.chance(50);
    const std::int64_t last = std::ssize(spec.layouts) - 1;
    std::int64_t wanted = far ? 3 : random.between(1, 3);
    // The gradient of a sum is one number for all elements, that of a mean over the batch one for all batches.
    const auto output_grad = std::ranges::find(spec.schema->tensors, Role::output_grad, &TensorField::role);
    const bool is_of_a_sum = !far && output_grad != spec.schema->tensors.end() && random.chance(40);
    for (int tries = 0; tries < kTries && wanted > 0; ++tries) {
        const bool is_first = is_of_a_sum && tries == 0;
        const auto tensor = static_cast<std::size_t>(is_first ? output_grad - spec.schema->tensors.begin() : random.between(0, last));
        const Layout layout = far        ? Layout::far
                              : is_first ? random.pick({Layout::one_row, Layout::one_element})
                                         : kUnusual[random.between(0, std::ssize(kUnusual) - 1)];
        if (!matters(spec, tensor, layout)) continue;
        Spec other = spec;
        other.layouts[tensor] = layout;
        if (illegal(other)) continue;
        spec = std::move(other);
        --wanted;
    }
}

}  // namespace attncheck::properties
