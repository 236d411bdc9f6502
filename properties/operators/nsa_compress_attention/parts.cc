// Parts of a compress-attention problem: from a Spec, into a call, and into what is expected of it.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "properties/operators/nsa_compress_attention/case.h"
#include "properties/operators/catalogue.h"

namespace attncheck::properties::compress_attention {
namespace {

/// Elements that `set` names, one tensor after the other.
void apply_overrides(const Spec& spec, Parts& parts, bool masks_only) {
    const auto shapes = shapes_of(*spec.schema, parts);
    for (const auto& [ref, value] : spec.overrides) {
        const auto index = static_cast<std::size_t>(ref.tensor);
        const std::string& name = spec.schema->tensors[index].name;
        const bool is_mask = name.ends_with("mask");
        if (masks_only && !is_mask) continue;
        Parts::Mask& mask = name == "atten_mask" ? parts.mask : parts.topk_mask;
        std::vector<std::uint32_t>& bits = is_mask           ? mask.bits
                                           : name == "query" ? parts.query
                                           : name == "key"   ? parts.key
                                                             : parts.value;
        const ref::Dtype dtype = is_mask ? mask.dtype : parts.dtype;
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

Parts::Mask mask_of(std::int64_t kind) {
    Parts::Mask mask;
    mask.present = static_cast<MaskKind>(kind) != MaskKind::absent;
    mask.dtype =
        static_cast<MaskKind>(kind) == MaskKind::uint8 ? ref::Dtype::uint8 : ref::Dtype::boolean;
    return mask;
}

}  // namespace

std::vector<std::uint8_t> Parts::Mask::contents() const {
    if (!present) return {};
    std::vector<std::uint8_t> out(bits.size());
    std::transform(bits.begin(), bits.end(), out.begin(),
                   [](std::uint32_t b) { return static_cast<std::uint8_t>(b != 0); });
    return out;
}

void Parts::fit_mask_shapes() {
    const std::int64_t rows = longest(shape.query_lengths), keys = longest(shape.cmp_lengths);
    mask.shape = {rows, keys};
    topk_mask.shape = {rows, shape.most_select_blocks()};
}

Parts parts_without_values(const Spec& spec) {
    Parts parts;
    const auto& n = spec.numbers;
    parts.dtype = n[kDtype] == 0 ? ref::Dtype::fp16 : ref::Dtype::bf16;
    ref::CompressAttentionShape& s = parts.shape;
    s.query_lengths = spec.lists[0];
    s.cmp_lengths = spec.lists[1];
    s.total_queries = std::accumulate(spec.lists[0].begin(), spec.lists[0].end(), n[kBeyondQ]);
    s.total_keys = std::accumulate(spec.lists[1].begin(), spec.lists[1].end(), n[kBeyondCmp]);
    s.kv_heads = n[kKvHeads];
    s.query_heads = n[kKvHeads] * n[kGroup];
    s.head_dim = n[kDim];
    s.value_dim = n[kValueDim];
    s.compress_block = n[kBlock];
    s.compress_stride = n[kStride];
    s.select_block = n[kSelect];
    s.select_count = n[kCount];
    parts.sparse_mode = n[kSparse];
    parts.scale = scale_of(static_cast<ScaleKind>(n[kScale]), s.head_dim);
    parts.mask = mask_of(n[kMask]);
    parts.topk_mask = mask_of(n[kTopkMask]);
    // Attributes that break a rule have no blocks to count.
    if (s.compress_stride < 1 || s.keys_per_select() < 1)
        parts.mask.shape =
            parts.topk_mask.shape = {longest(s.query_lengths), longest(s.cmp_lengths)};
    else
        parts.fit_mask_shapes();
    return parts;
}

Parts masks_of(const Spec& spec) {
    Parts parts = parts_without_values(spec);
    fill_masks(spec, parts);
    apply_overrides(spec, parts, true);
    return parts;
}

Parts parts_of(const Spec& spec) {
    Parts parts = parts_without_values(spec);
    fill_masks(spec, parts);
    fill_data(spec, parts);
    apply_overrides(spec, parts, false);
    return parts;
}

std::vector<std::vector<std::int64_t>> shapes_of(const Schema& schema, const Parts& parts) {
    const ref::CompressAttentionShape& s = parts.shape;
    const auto mask = [](const Parts::Mask& m) {
        return m.present ? m.shape : std::vector<std::int64_t>{0, 0};
    };
    std::vector<std::vector<std::int64_t>> shapes;
    for (const TensorField& field : schema.tensors) {
        const std::string& name = field.name;
        std::vector<std::int64_t> shape{s.total_queries, s.query_heads, s.value_dim};
        if (name == "query")
            shape[2] = s.head_dim;
        else if (name == "key")
            shape = {s.total_keys, s.kv_heads, s.head_dim};
        else if (name == "value")
            shape = {s.total_keys, s.kv_heads, s.value_dim};
        else if (name == "atten_mask")
            shape = mask(parts.mask);
        else if (name == "topk_mask")
            shape = mask(parts.topk_mask);
        else if (name == "topk_indices")
            shape = {s.total_queries, s.kv_heads, s.select_count};
        else if (name.starts_with("softmax"))
            shape[2] = ref::kStatisticLanes;
        shapes.push_back(std::move(shape));
    }
    return shapes;
}

Call make_call(const Parts& parts) {
    const Schema& schema = find_operator("nsa_compress_attention")->schema();
    const auto shapes = shapes_of(schema, parts);
    Call call;
    call.op = schema.op;
    call.description = &schema;
    for (std::size_t i = 0; i < schema.tensors.size(); ++i) {
        const TensorField& field = schema.tensors[i];
        const std::string& name = field.name;
        const bool is_mask = name.ends_with("mask");
        const Parts::Mask& mask = name == "atten_mask" ? parts.mask : parts.topk_mask;
        const ref::Dtype dtype = name == "topk_indices"        ? ref::Dtype::int32
                                 : is_mask                     ? mask.dtype
                                 : name.starts_with("softmax") ? ref::Dtype::fp32
                                                               : parts.dtype;
        std::vector<std::uint32_t> bits;
        if (name == "query")
            bits = parts.query;
        else if (name == "key")
            bits = parts.key;
        else if (name == "value")
            bits = parts.value;
        else if (is_mask)
            bits = mask.bits;
        call.tensors.push_back(make_tensor(name, field.output, dtype, shapes[i], std::move(bits)));
        if (is_mask) call.tensors.back().present = mask.present;
    }
    const ref::CompressAttentionShape& s = parts.shape;
    const auto lengths = [](const char* name, const std::vector<std::int64_t>& of) {
        return HostArray{name, true, std::ssize(of), cumulative(of)};
    };
    std::vector<std::int64_t> blocks;
    for (const auto cmp : s.cmp_lengths)
        blocks.push_back(s.compress_stride < 1 || s.keys_per_select() < 1 ? 0
                                                                          : s.select_blocks(cmp));
    call.arrays = {lengths("actual_seq_q_len", s.query_lengths),
                   lengths("actual_cmp_seq_kv_len", s.cmp_lengths),
                   lengths("actual_sel_seq_kv_len", blocks)};
    call.texts = {{"input_layout", "TND"}};
    call.numbers = {{"head_num", s.query_heads},
                    {"sparse_mode", parts.sparse_mode},
                    {"compress_block_size", s.compress_block},
                    {"compress_stride", s.compress_stride},
                    {"select_block_size", s.select_block},
                    {"select_block_count", s.select_count}};
    call.reals = {{"scale_value", parts.scale}};
    return call;
}

std::vector<std::int64_t> lists_of(const std::vector<std::uint32_t>& bits) {
    std::vector<std::int64_t> out(bits.size());
    std::transform(bits.begin(), bits.end(), out.begin(),
                   [](std::uint32_t b) { return static_cast<std::int32_t>(b); });
    return out;
}

}  // namespace attncheck::properties::compress_attention
