#include "properties/operators/nsa_selected_attention/problem.h"

#include <algorithm>
#include <memory>

#include "properties/case/values.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

SelectedParts parts_without_values(const Spec& spec) {
    SelectedParts parts;
    const Extents extents = extents_of(spec);
    const auto& n = spec.numbers;
    parts.gradient = spec.schema == &selected_description(true);
    take_case(spec, extents, parts);
    ref::SelectedAttentionShape& s = parts.shape;
    s.block = n[kSelBlock];
    s.count = n[kSelCount];
    parts.sparse_mode = n[kSelSparse];
    parts.mask = MaskTensor::of_kind(n[kSelMask]);
    parts.mask.shape = {extents["mask_rows"], extents["mask_columns"]};
    s.mask = !parts.mask.present      ? ref::SelectedMask::none
             : parts.sparse_mode == 2 ? ref::SelectedMask::causal
                                      : ref::SelectedMask::contents;
    s.mask_columns = parts.mask.shape[1];
    return parts;
}

void own_values(const SelectedParts& parts, const Extents&, Role role, Tensor& tensor) {
    tensor.bits = role == Role::list ? parts.topk : parts.mask.bits;
}

Call make_call(const SelectedParts& parts) {
    const ref::SelectedAttentionShape& s = parts.shape;
    Spec spec = case_of(parts, selected_description(parts.gradient));
    auto& n = spec.numbers;
    n[kSelDtype] = parts.dtype != ref::Dtype::fp16;
    n[kSelBlock] = s.block;
    n[kSelCount] = s.count;
    n[kSelSparse] = parts.sparse_mode;
    n[kSelMask] = parts.mask.kind();
    Extents extents = extents_of(spec);
    if (parts.mask.present) {
        extents.claim("mask_rows", parts.mask.shape[0]);
        extents.claim("mask_columns", parts.mask.shape[1]);
    }
    Call call = outline_of(extents);
    call.reals[0].value = parts.scale;
    give_parts(parts, extents, call, own_values);
    return call;
}

/// Sequence b as a separate problem. Without keys the problem gets one row that belongs to no
/// sequence.
SelectedParts alone(const AttentionProblem& problem, std::size_t b) {
    SelectedParts one = parts_of_sequence<SelectedParts>(problem, b);
    ref::SelectedAttentionShape& s = one.shape;
    const Int queries = s.total_queries, keys = s.total_keys;
    s.total_keys = std::max<Int>(keys, 1);
    one.key.resize(static_cast<std::size_t>(s.total_keys * s.kv_heads * s.head_dim));
    one.value.resize(static_cast<std::size_t>(s.total_keys * s.kv_heads * s.value_dim));
    one.topk = slice(one.topk, row_starts(problem.query_lengths)[b], queries,
                     s.kv_heads * s.count);
    if (!one.mask.present || one.sparse_mode != 0) return one;
    one.mask.crop(queries, keys);
    s.mask_columns = keys;
    return one;
}

class SelectedAttention : public PartsOperator<SelectedParts> {
public:
    SelectedAttention() : PartsOperator(selected_inputs, selected_problem, make_call) {}

    std::optional<AttentionProblem> single_sequence(const AttentionProblem& problem, std::size_t b,
                                                    Random&) const override {
        if (problem.query_lengths[b] == 0) return std::nullopt;
        return selected_problem(alone(problem, b));
    }
    /// Keys in blocks that the row does not list are not masked.
    std::vector<char> masked_keys(const AttentionProblem& problem, Int t) const override {
        const auto& parts = extras_of<SelectedParts>(problem);
        std::vector<char> masked(static_cast<std::size_t>(problem.key_rows()));
        if (!parts.mask.present) return masked;
        const auto row = ref::selected_queries(parts.shape)[static_cast<std::size_t>(t)];
        for (Int j = 0; j < row.kv_length; ++j)
            if (parts.hides(row.position, j))
                std::fill_n(masked.begin() + (row.first_key + j) * problem.shape.kv_heads,
                            problem.shape.kv_heads, 1);
        return masked;
    }

private:
    void move_extras(const SelectedParts& from, const HeadSources& sources,
                     SelectedParts& to) const override {
        to.topk = gather_heads(from.topk, from.shape.kv_heads, sources.kv, to.shape.count);
    }
};

}  // namespace

ref::ColumnLister SelectedParts::columns() const {
    const auto indices = std::make_shared<std::vector<Int>>();
    for (const auto bits : topk) indices->push_back(static_cast<std::int32_t>(bits));
    const auto hidden =
        std::make_shared<std::vector<std::uint8_t>>(mask.bits.begin(), mask.bits.end());
    return [indices, hidden, list = ref::selected_columns(shape, *indices, *hidden)](
               Int t, Int head, std::vector<ref::KeyColumn>& out) { return list(t, head, out); };
}

SelectedParts selected_lists(const Spec& spec) {
    SelectedParts parts = parts_without_values(spec);
    fill_selected_lists(spec, parts);
    apply_overrides(spec, {{Role::list, &parts.topk}, {Role::mask, &parts.mask.bits}});
    return parts;
}

AttentionProblem selected_inputs(const Spec& spec) {
    SelectedParts parts = selected_lists(spec);
    fill_values(spec, selected_recipe(spec, parts), parts);
    return selected_problem(std::move(parts));
}

SelectedParts selected_parts(const Spec& spec) {
    return parts_of<SelectedParts>(selected_attention_operator().problem(spec));
}

AttentionProblem selected_problem(SelectedParts parts) {
    AttentionProblem problem = problem_of_shape(parts.shape);
    problem.columns = shared_columns(parts.columns());
    problem.scale = parts.narrowed_scale();
    hold(problem, std::move(parts));
    add_attention_outputs(problem);
    return problem;
}

Call build_selected_call(const Spec& spec) {
    return build_of(spec, [](const Spec& of, Call& call) {
        if (has_extents_of(of, call))
            return give_parts(selected_parts(of), extents_of(of), call, own_values);
        fill_with_zeros(call);  // no reference is defined on claimed extents
        const int row_sum = of.schema->tensor("softmax_sum");
        auto& bits = call.tensors[static_cast<std::size_t>(row_sum)].bits;
        std::fill(bits.begin(), bits.end(), ref::encode(ref::Dtype::fp32, 1));
    });
}

const AttentionOperator& selected_attention_operator() {
    static const SelectedAttention kOperator;
    return kOperator;
}

}  // namespace attncheck::properties
