// From the fields of a selected attention case to a problem in dense parts: shapes, block lists,
// mask, element values, and the statistics the gradient is given.
#include <memory>

#include "properties/case/values.h"
#include "properties/operators/nsa_selected_attention/problem.h"

namespace attncheck::properties {
namespace {

void apply_overrides(const Spec& spec, SelectedParts& parts, bool lists_only) {
    properties::apply_overrides(spec, [&](std::size_t tensor) {
        const Role role = spec.schema->tensors[tensor].role;
        const bool wanted = !lists_only || role == Role::list || role == Role::mask;
        return wanted ? &parts.bits_of(role) : nullptr;
    });
}

}  // namespace

SelectedParts selected_shape_parts(const Spec& spec) {
    SelectedParts parts;
    const Extents extents = extents_of(spec);
    const auto& n = spec.numbers;
    parts.gradient = spec.schema == &selected_description(true);
    parts.dtype = n[kSelDtype] == 0 ? ref::Dtype::fp16 : ref::Dtype::bf16;
    ref::SelectedAttentionShape& s = parts.shape;
    s.query_lengths = spec.lists[0];
    s.kv_lengths = spec.lists[1];
    s.total_queries = extents.rows("q");
    s.total_keys = extents.rows("kv");
    s.kv_heads = n[kSelKvHeads];
    s.query_heads = extents["query_heads"];
    s.head_dim = n[kSelDim];
    s.value_dim = n[kSelValueDim];
    s.block = n[kSelBlock];
    s.count = n[kSelCount];
    parts.sparse_mode = n[kSelSparse];
    parts.scale = scale_of(static_cast<ScaleKind>(n[kSelScale]), s.head_dim);
    const auto kind = static_cast<MaskKind>(n[kSelMask]);
    parts.mask.present = kind != MaskKind::absent;
    parts.mask.dtype = kind == MaskKind::uint8 ? ref::Dtype::uint8 : ref::Dtype::boolean;
    parts.mask.shape = {extents["mask_rows"], extents["mask_columns"]};
    s.mask = !parts.mask.present      ? ref::SelectedMask::none
             : parts.sparse_mode == 2 ? ref::SelectedMask::causal
                                      : ref::SelectedMask::contents;
    s.mask_columns = parts.mask.shape[1];
    return parts;
}

ref::ColumnLister SelectedParts::columns() const {
    const auto indices = std::make_shared<std::vector<std::int64_t>>();
    for (const auto bits : topk) indices->push_back(static_cast<std::int32_t>(bits));
    const auto hidden =
        std::make_shared<std::vector<std::uint8_t>>(mask.bits.begin(), mask.bits.end());
    return [indices, hidden, list = ref::selected_columns(shape, *indices, *hidden)](
               std::int64_t t, std::int64_t head, std::vector<ref::KeyColumn>& out) {
        return list(t, head, out);
    };
}

void give_reference_statistics(SelectedParts& parts) {
    AttentionProblem problem = selected_problem(parts);
    give_reference_forward(problem);
    parts.output = problem.output;
    parts.row_max = problem.row_max;
    parts.row_sum = problem.row_sum;
}

SelectedParts selected_lists(const Spec& spec) {
    SelectedParts parts = selected_shape_parts(spec);
    fill_selected_lists(spec, parts);
    apply_overrides(spec, parts, true);
    return parts;
}

SelectedParts selected_input_parts(const Spec& spec) {
    SelectedParts parts = selected_shape_parts(spec);
    fill_selected_lists(spec, parts);
    fill_selected_data(spec, parts);
    apply_overrides(spec, parts, false);
    return parts;
}

SelectedParts selected_parts(const Spec& spec) {
    SelectedParts parts = selected_input_parts(spec);
    if (!parts.gradient) return parts;
    give_reference_statistics(parts);
    if (spec.numbers[kSelStats] == static_cast<std::int64_t>(StatsKind::shifted))
        shift_statistics(parts.row_max, parts.row_sum);
    if (spec.numbers[kSelOut] == static_cast<std::int64_t>(OutKind::perturbed))
        perturb_output(parts.dtype, parts.output);
    return parts;
}

}  // namespace attncheck::properties
