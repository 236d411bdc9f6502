// From the dense parts of a selected attention problem to a call.
#include <numeric>
#include <stdexcept>

#include "properties/operators/nsa_selected_attention/case.h"

namespace attncheck::properties {

std::vector<std::uint32_t>& SelectedParts::bits_of(Role role) {
    switch (role) {
        case Role::query:
            return query;
        case Role::key:
            return key;
        case Role::value:
            return value;
        case Role::list:
            return topk;
        case Role::mask:
            return mask.bits;
        case Role::output:
            return output;
        case Role::output_grad:
            return output_grad;
        default:
            throw std::logic_error("selected attention has no such input");
    }
}

void set_selected_values(SelectedParts parts, Call& call) {
    const std::vector<float>* statistic = &parts.row_max;
    for (std::size_t i = 0; i < call.tensors.size(); ++i) {
        Tensor& tensor = call.tensors[i];
        if (tensor.output) continue;
        const Role role = call.description->tensors[i].role;
        if (role != Role::statistic) {
            tensor.bits = std::move(parts.bits_of(role));
            continue;
        }
        const std::int64_t lanes = tensor.shape.back();
        for (const float row : *statistic)
            tensor.bits.insert(tensor.bits.end(), static_cast<std::size_t>(lanes),
                               ref::encode(ref::Dtype::fp32, row));
        statistic = &parts.row_sum;
    }
}

Call make_selected_call(const SelectedParts& parts) {
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
        n[kSelMask] = static_cast<std::int64_t>(
            parts.mask.dtype == ref::Dtype::uint8 ? MaskKind::uint8 : MaskKind::boolean);
    Extents extents = extents_of(spec);
    extents.claim("query_heads", s.query_heads);
    if (parts.mask.present) {
        extents.claim("mask_rows", parts.mask.shape[0]);
        extents.claim("mask_columns", parts.mask.shape[1]);
    }
    Call call = outline_of(extents);
    call.reals[0].value = parts.scale;
    set_selected_values(parts, call);
    return call;
}

}  // namespace attncheck::properties
