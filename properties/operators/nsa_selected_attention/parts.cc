// From the fields of a selected attention case to a problem in dense parts: shapes, block lists,
// mask, element values, and the statistics the gradient is given.
#include <algorithm>
#include <memory>
#include <numeric>

#include "properties/operators/nsa_selected_attention/problem.h"

namespace attncheck::properties {
namespace {

constexpr std::int64_t kLargeMask = 300;

/// Elements that `set` names, one tensor after the other.
void apply_overrides(const Spec& spec, SelectedParts& parts, bool lists_only) {
    const auto shapes = selected_shapes(*spec.schema, parts);
    for (const auto& [ref, value] : spec.overrides) {
        const auto index = static_cast<std::size_t>(ref.tensor);
        const std::string& name = spec.schema->tensors[index].name;
        const bool is_topk = name == "topk_indices", is_mask = name == "atten_mask";
        if (lists_only && !is_topk && !is_mask) continue;
        std::vector<std::uint32_t>& bits = is_topk           ? parts.topk
                                           : is_mask         ? parts.mask.bits
                                           : name == "query" ? parts.query
                                           : name == "key"   ? parts.key
                                           : name == "value" ? parts.value
                                                             : parts.output_grad;
        const ref::Dtype dtype = is_topk   ? ref::Dtype::int32
                                 : is_mask ? parts.mask.dtype
                                           : parts.dtype;
        const auto& shape = shapes[index];
        const bool broadcast = spec.layouts[index] == Layout::broadcast;
        for (std::int64_t copy = 0; copy < (broadcast ? shape[1] : 1); ++copy) {
            std::int64_t offset = 0;
            for (std::size_t dim = 0; dim < shape.size(); ++dim)
                offset = offset * shape[dim] + (broadcast && dim == 1 ? copy : ref.index[dim]);
            bits.at(static_cast<std::size_t>(offset)) = ref::encode(dtype, value);
        }
    }
}

}  // namespace

SelectedParts selected_shape_parts(const Spec& spec) {
    SelectedParts parts;
    const auto& n = spec.numbers;
    parts.gradient = spec.schema->op == "nsa_selected_attention_grad";
    parts.dtype = n[kSelDtype] == 0 ? ref::Dtype::fp16 : ref::Dtype::bf16;
    ref::SelectedAttentionShape& s = parts.shape;
    s.query_lengths = spec.lists[0];
    s.kv_lengths = spec.lists[1];
    s.total_queries = std::accumulate(spec.lists[0].begin(), spec.lists[0].end(), n[kSelBeyondQ]);
    s.total_keys = std::accumulate(spec.lists[1].begin(), spec.lists[1].end(), n[kSelBeyondKv]);
    s.kv_heads = n[kSelKvHeads];
    s.query_heads = n[kSelKvHeads] * n[kSelGroup];
    s.head_dim = n[kSelDim];
    s.value_dim = n[kSelValueDim];
    s.block = n[kSelBlock];
    s.count = n[kSelCount];
    parts.sparse_mode = n[kSelSparse];
    parts.scale = scale_of(static_cast<ScaleKind>(n[kSelScale]), s.head_dim);
    const auto kind = static_cast<MaskKind>(n[kSelMask]);
    parts.mask.present = kind != MaskKind::absent;
    parts.mask.dtype = kind == MaskKind::uint8 ? ref::Dtype::uint8 : ref::Dtype::boolean;
    switch (static_cast<MaskExtent>(n[kSelMaskShape])) {
        case MaskExtent::exact:
            parts.mask.shape = {longest(s.query_lengths), longest(s.kv_lengths)};
            break;
        case MaskExtent::single:
            parts.mask.shape = {1, 1};
            break;
        case MaskExtent::large:
            parts.mask.shape = {kLargeMask, kLargeMask};
            break;
    }
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

SelectedParts selected_zero_parts(const Spec& spec, std::int64_t more_heads) {
    SelectedParts parts = selected_shape_parts(spec);
    parts.shape.query_heads += more_heads;
    const ref::SelectedAttentionShape& s = parts.shape;
    const auto zeros = [](std::int64_t rows, std::int64_t heads, std::int64_t dim) {
        return std::vector<std::uint32_t>(static_cast<std::size_t>(rows * heads * dim));
    };
    parts.query = zeros(s.total_queries, s.query_heads, s.head_dim);
    parts.key = zeros(s.total_keys, s.kv_heads, s.head_dim);
    parts.value = zeros(s.total_keys, s.kv_heads, s.value_dim);
    parts.topk = zeros(s.total_queries, s.kv_heads, s.count);
    if (parts.mask.present) parts.mask.bits = zeros(parts.mask.shape[0], parts.mask.shape[1], 1);
    if (parts.gradient) {
        parts.output = parts.output_grad = zeros(s.total_queries, s.query_heads, s.value_dim);
        parts.row_max.assign(static_cast<std::size_t>(s.total_queries * s.query_heads), 0);
        parts.row_sum.assign(parts.row_max.size(), 1);
    }
    return parts;
}

}  // namespace attncheck::properties
