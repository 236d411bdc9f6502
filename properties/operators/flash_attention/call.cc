// Flash attention problems as calls: their extents, and the elements in their layouts.
#include <algorithm>

#include "properties/case/row_order.h"
#include "properties/operators/flash_attention/case.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

/// The documented contents of a compressed mask: above the diagonal hides; for mode 6 a second part
/// for the prefix.
std::shared_ptr<const std::vector<std::uint8_t>> compressed_mask(bool with_prefix) {
    constexpr Int kSide = 2048, kPrefixRows = 1024;
    const auto make = [](Int rows) {
        auto bytes =
            std::make_shared<std::vector<std::uint8_t>>(static_cast<std::size_t>(rows * kSide));
        for (Int r = 0; r < rows; ++r)
            for (Int c = 0; c < kSide; ++c)
                (*bytes)[static_cast<std::size_t>(r * kSide + c)] =
                    r < kSide ? c > r : c >= kPrefixRows;
        return std::shared_ptr<const std::vector<std::uint8_t>>(bytes);
    };
    static const auto causal = make(kSide), prefix = make(kSide + kPrefixRows);
    return with_prefix ? prefix : causal;
}

/// Every statistic, in all its lanes.
std::vector<std::uint32_t> in_lanes(const std::vector<float>& rows, Int lanes) {
    std::vector<std::uint32_t> bits;
    bits.reserve(rows.size() * static_cast<std::size_t>(lanes));
    for (const float value : rows)
        bits.insert(bits.end(), static_cast<std::size_t>(lanes),
                    ref::encode(ref::Dtype::fp32, value));
    return bits;
}

/// The number of a name among those of a field.
Int value_named(const Description& d, std::string_view key, std::string_view name) {
    const auto& names = d.numbers[static_cast<std::size_t>(d.number(key))].names;
    return std::find(names.begin(), names.end(), name) - names.begin();
}

/// What a field of the case says of something that the problem has; the simplest where the case
/// lacks it.
Int if_present(bool present, Int value) { return present ? std::max<Int>(value, 1) : 0; }

/// Another shape than the case's, as relations give masks and biases.
void reshape(Tensor& tensor, const std::vector<Int>& shape) {
    if (!tensor.present || tensor.shape == shape) return;
    tensor = make_tensor(tensor.name, false, tensor.type(), shape, {});
}

void give_array(Call& call, std::string_view name, const std::optional<std::vector<Int>>& values) {
    HostArray& array = call.array(name);
    array.present = values.has_value();
    array.values = values.value_or(std::vector<Int>{});
    array.size = std::ssize(array.values);
}

}  // namespace

Extents flash_extents(const FlashParts& parts, bool gradient) {
    const Description& d = flash_description(gradient);
    const ref::FlashAttentionShape& s = parts.shape;
    Spec spec(d);
    std::copy_n(parts.fields.begin(), std::min(parts.fields.size(), spec.numbers.size()),
                spec.numbers.begin());
    auto& n = spec.numbers;
    n[kFaDtype] = value_named(d, "dtype", ref::dtype_name(parts.dtype));
    if (gradient) n[kFaResult] = value_named(d, "result", ref::dtype_name(parts.result));
    n[kFaLayout] = static_cast<Int>(parts.layout);
    n[kFaKvHeads] = s.kv_heads;
    n[kFaDim] = s.head_dim;
    n[kFaValueDim] = s.value_dim;
    n[kFaRope] = s.rope_dim;
    n[kFaMask] = !s.mask.present ? 0 : parts.mask_dtype == ref::Dtype::uint8 ? 2 : 1;
    n[kFaSparse] = s.mask.sparse_mode;
    n[kFaPse] = if_present(s.bias.present, n[kFaPse]);
    n[kFaPseType] = s.bias.type;
    n[kFaDrop] = if_present(s.dropout.present, n[kFaDrop]);
    n[kFaOrder] = parts.same_as_input;
    n[kFaBeyondQ] = s.total_queries - total(s.query_lengths);
    n[kFaBeyondKv] = s.total_keys - total(s.kv_lengths);
    Extents extents(d, n, {s.query_lengths, s.kv_lengths}, 0, parts.profile);
    extents.claim("query_heads", s.query_heads);
    extents.claim("pre_tokens", s.mask.pre_tokens);
    extents.claim("next_tokens", s.mask.next_tokens);
    return extents;
}

void give_values(const FlashParts& parts, const Extents& extents, Call& call) {
    const auto as_bits = [](const std::vector<std::uint8_t>& bytes) {
        return std::vector<std::uint32_t>(bytes.begin(), bytes.end());
    };
    for (std::size_t i = 0; i < call.tensors.size(); ++i) {
        Tensor& tensor = call.tensors[i];
        const TensorField& field = call.description->tensors[i];
        if (tensor.output || !tensor.present) continue;
        if (field.role == Role::mask && !flash_reads_mask(parts.shape.mask.sparse_mode))
            tensor.shared_bytes = compressed_mask(parts.shape.mask.sparse_mode == 6);
        else if (field.role == Role::mask)
            tensor.bits = as_bits(parts.shape.mask.values);
        else if (field.role == Role::drop)
            tensor.bits = as_bits(parts.shape.dropout.bytes);
        else if (const auto rows = statistic_of(field.name))
            tensor.bits =
                RowOrder(field, extents).to_memory(in_lanes(parts.*rows, extents["lanes"]));
        else if (const auto bits = bits_of(field.name))
            tensor.bits = RowOrder(field, extents).to_memory(parts.*bits);
    }
}

Call make_flash_call(const FlashParts& parts) {
    const Extents extents = flash_extents(parts, parts.gradient);
    Call call = outline_of(extents);
    for (std::size_t i = 0; i < call.tensors.size(); ++i) {
        const Role role = call.description->tensors[i].role;
        if (role == Role::mask) reshape(call.tensors[i], parts.shape.mask.shape);
        if (role == Role::bias) reshape(call.tensors[i], parts.shape.bias.shape);
    }
    give_array(call, "prefix", parts.prefix);
    give_array(call, "q_start_idx", parts.query_start);
    give_array(call, "kv_start_idx", parts.key_start);
    call.real("scale_value") = parts.scale;
    call.real("keep_prob") = parts.keep_prob;
    give_values(parts, extents, call);
    return call;
}

}  // namespace attncheck::properties
