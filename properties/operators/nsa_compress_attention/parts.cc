// Parts of a compress-attention problem: from a Spec, and into a call.
#include <algorithm>
#include <numeric>

#include "properties/case/values.h"
#include "properties/operators/nsa_compress_attention/case.h"

namespace attncheck::properties::compress_attention {
namespace {

/// Elements that `set` names, one tensor after the other.
void apply_overrides(const Spec& spec, Parts& parts, bool masks_only) {
    properties::apply_overrides(spec, [&](std::size_t input) {
        return masks_only && input < kAttenMask ? nullptr : &parts.bits_of(input);
    });
}

Parts::Mask mask_of(std::int64_t kind) {
    Parts::Mask mask;
    mask.present = static_cast<MaskKind>(kind) != MaskKind::absent;
    mask.dtype =
        static_cast<MaskKind>(kind) == MaskKind::uint8 ? ref::Dtype::uint8 : ref::Dtype::boolean;
    return mask;
}

}  // namespace

std::vector<std::uint32_t>& Parts::bits_of(std::size_t input) {
    const std::array<std::vector<std::uint32_t>*, kInputs> all{&query, &key, &value, &mask.bits,
                                                               &topk_mask.bits};
    return *all.at(input);
}

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
    const Extents extents = extents_of(spec);
    const auto& n = spec.numbers;
    parts.dtype = n[kDtype] == 0 ? ref::Dtype::fp16 : ref::Dtype::bf16;
    ref::CompressAttentionShape& s = parts.shape;
    s.query_lengths = spec.lists[0];
    s.cmp_lengths = spec.lists[1];
    s.total_queries = extents.rows("q");
    s.total_keys = extents.rows("cmp");
    s.kv_heads = n[kKvHeads];
    s.query_heads = extents["query_heads"];
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

namespace {

void set_values(Parts parts, Call& call) {
    for (std::size_t input = 0; input < kInputs; ++input)
        call.tensors[input].bits = std::move(parts.bits_of(input));
}

}  // namespace

Call make_call(const Parts& parts) {
    const ref::CompressAttentionShape& s = parts.shape;
    Spec spec(description());
    auto& n = spec.numbers;
    const auto kind_of = [](const Parts::Mask& mask) {
        return static_cast<std::int64_t>(!mask.present                      ? MaskKind::absent
                                         : mask.dtype == ref::Dtype::uint8 ? MaskKind::uint8
                                                                           : MaskKind::boolean);
    };
    n[kDtype] = parts.dtype != ref::Dtype::fp16;
    n[kKvHeads] = s.kv_heads;
    n[kDim] = s.head_dim;
    n[kValueDim] = s.value_dim;
    n[kBlock] = s.compress_block;
    n[kStride] = s.compress_stride;
    n[kSelect] = s.select_block;
    n[kCount] = s.select_count;
    n[kMask] = kind_of(parts.mask);
    n[kTopkMask] = kind_of(parts.topk_mask);
    n[kSparse] = parts.sparse_mode;
    spec.lists = {s.query_lengths, s.cmp_lengths};
    n[kBeyondQ] = s.total_queries - std::reduce(s.query_lengths.begin(), s.query_lengths.end());
    n[kBeyondCmp] = s.total_keys - std::reduce(s.cmp_lengths.begin(), s.cmp_lengths.end());
    Extents extents = extents_of(spec);
    extents.claim("query_heads", s.query_heads);
    Call call = outline_of(extents);
    call.reals[0].value = parts.scale;
    set_values(parts, call);
    return call;
}

Call build_call(const Spec& spec) {
    return build_of(spec, [](const Spec& of, Call& call) {
        if (has_extents_of(of, call))
            set_values(parts_of(of), call);
        else
            fill_with_zeros(call);  // no reference is defined on claimed extents
    });
}

std::vector<std::int64_t> lists_of(const std::vector<std::uint32_t>& bits) {
    std::vector<std::int64_t> out(bits.size());
    std::transform(bits.begin(), bits.end(), out.begin(),
                   [](std::uint32_t b) { return static_cast<std::int32_t>(b); });
    return out;
}

}  // namespace attncheck::properties::compress_attention
