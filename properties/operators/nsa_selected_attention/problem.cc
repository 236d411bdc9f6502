#include "properties/operators/nsa_selected_attention/problem.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include "properties/case/values.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

SelectedParts parts_without_values(const Spec& spec) {
    SelectedParts parts;
    const Extents extents = extents_of(spec);
    const auto& n = spec.numbers;
    parts.gradient = spec.schema == &selected_description(true);
    parts.dtype = parts.result = extents.type_of(spec.schema->tensors[0]);
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

void give_values(const SelectedParts& parts, const Extents& extents, Call& call) {
    give_values(parts, extents, call, [&](Role role, Tensor& tensor) {
        tensor.bits = role == Role::list ? parts.topk : parts.mask.bits;
    });
}

Call make_call(const SelectedParts& parts) {
    const ref::SelectedAttentionShape& s = parts.shape;
    Spec spec(selected_description(parts.gradient));
    auto& n = spec.numbers;
    n[kSelDtype] = parts.dtype != ref::Dtype::fp16;
    n[kSelKvHeads] = s.kv_heads;
    n[kSelDim] = s.head_dim;
    n[kSelValueDim] = s.value_dim;
    n[kSelBlock] = s.block;
    n[kSelCount] = s.count;
    n[kSelSparse] = parts.sparse_mode;
    spec.lists = {s.query_lengths, s.kv_lengths};
    n[kSelBeyondQ] = s.total_queries - std::reduce(s.query_lengths.begin(), s.query_lengths.end());
    n[kSelBeyondKv] = s.total_keys - std::reduce(s.kv_lengths.begin(), s.kv_lengths.end());
    if (parts.mask.present)
        n[kSelMask] = static_cast<Int>(parts.mask.dtype == ref::Dtype::uint8 ? MaskKind::uint8
                                                                             : MaskKind::boolean);
    Extents extents = extents_of(spec);
    extents.claim("query_heads", s.query_heads);
    if (parts.mask.present) {
        extents.claim("mask_rows", parts.mask.shape[0]);
        extents.claim("mask_columns", parts.mask.shape[1]);
    }
    Call call = outline_of(extents);
    call.reals[0].value = parts.scale;
    give_values(parts, extents, call);
    return call;
}

/// Sequence b as a separate problem. Without keys the problem gets one row that belongs to no
/// sequence.
SelectedParts alone(const AttentionProblem& problem, std::size_t b) {
    SelectedParts one = parts_of<SelectedParts>(problem);
    ref::SelectedAttentionShape& s = one.shape;
    const Int query = row_starts(s.query_lengths)[b], queries = s.query_lengths[b],
              keys = s.kv_lengths[b];
    keep_sequence(one, problem.shape, s.query_lengths, s.kv_lengths, b);
    s.query_lengths = {queries};
    s.kv_lengths = {keys};
    s.total_queries = queries;
    s.total_keys = std::max<Int>(keys, 1);
    one.key.resize(static_cast<std::size_t>(s.total_keys * s.kv_heads * s.head_dim));
    one.value.resize(static_cast<std::size_t>(s.total_keys * s.kv_heads * s.value_dim));
    one.topk = slice(one.topk, query, queries, s.kv_heads * s.count);
    if (!one.mask.present || one.sparse_mode != 0) return one;
    Bits mask;
    for (Int row = 0; row < queries; ++row) {
        const auto first = one.mask.bits.begin() + row * one.mask.shape[1];
        mask.insert(mask.end(), first, first + keys);
    }
    one.mask.bits = std::move(mask);
    one.mask.shape = {queries, keys};
    s.mask_columns = keys;
    return one;
}

class SelectedAttention : public AttentionOperator {
public:
    AttentionProblem problem(const Spec& spec) const override {
        AttentionProblem problem = selected_inputs(spec);
        complete_gradient(spec, problem);
        return problem;
    }
    Call call(const AttentionProblem& problem) const override {
        return make_call(parts_of<SelectedParts>(problem));
    }
    AttentionProblem with_heads(const AttentionProblem& problem, const std::vector<Int>& query,
                                const std::vector<Int>& kv) const override {
        SelectedParts to = parts_of<SelectedParts>(problem);
        move_heads(to, problem.shape, query, kv);
        to.topk = gather_heads(to.topk, problem.shape.kv_heads, kv, to.shape.count);
        to.shape.query_heads = std::ssize(query);
        to.shape.kv_heads = std::ssize(kv);
        return selected_problem(std::move(to));
    }
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
    apply_overrides(spec, [&](std::size_t tensor) {
        const Role role = spec.schema->tensors[tensor].role;
        return role == Role::list ? &parts.topk : role == Role::mask ? &parts.mask.bits : nullptr;
    });
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
    const ref::SelectedAttentionShape& s = parts.shape;
    AttentionProblem problem;
    problem.shape = s.dense();
    problem.columns = shared_columns(parts.columns());
    problem.query_lengths = s.query_lengths;
    problem.kv_lengths = s.kv_lengths;
    problem.scale = parts.narrowed_scale();
    hold(problem, std::move(parts));
    add_attention_outputs(problem);
    return problem;
}

Call build_selected_call(const Spec& spec) {
    return build_of(spec, [](const Spec& of, Call& call) {
        if (has_extents_of(of, call)) return give_values(selected_parts(of), extents_of(of), call);
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
