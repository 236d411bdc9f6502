// Flash attention problems as calls: tensors in their layouts, and the expected outputs in the
// order of the call.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <numeric>
#include <stdexcept>

#include "properties/operators/flash_attention/case.h"
#include "properties/operators/catalogue.h"

namespace attncheck::properties {
namespace {

constexpr std::int64_t kStatisticLanes = 8, kCompressedMask = 2048, kCompressedBias = 1024;

/// The shape of a packed [rows, heads, dim] tensor in its layout.
std::vector<std::int64_t> layout_shape(FlashLayout layout, std::int64_t batches,
                                       std::int64_t length,
                                       const std::vector<std::int64_t>& packed) {
    const std::int64_t heads = packed[1], dim = packed[2];
    switch (layout) {
        case FlashLayout::bsh:
            return {batches, length, heads * dim};
        case FlashLayout::bsnd:
            return {batches, length, heads, dim};
        case FlashLayout::tnd:
            return packed;
        case FlashLayout::sbh:
            return {length, batches, heads * dim};
        case FlashLayout::bnsd:
            return {batches, heads, length, dim};
    }
    return packed;
}

/// The documented contents of a compressed mask: above the diagonal hides; for mode 6 a second part
/// for the prefix.
std::shared_ptr<const std::vector<std::uint8_t>> compressed_mask(bool with_prefix) {
    const auto make = [](std::int64_t rows) {
        auto bytes = std::make_shared<std::vector<std::uint8_t>>(
            static_cast<std::size_t>(rows * kCompressedMask));
        for (std::int64_t r = 0; r < rows; ++r)
            for (std::int64_t c = 0; c < kCompressedMask; ++c)
                (*bytes)[static_cast<std::size_t>(r * kCompressedMask + c)] =
                    r < kCompressedMask ? c > r : c >= kCompressedBias;
        return std::shared_ptr<const std::vector<std::uint8_t>>(bytes);
    };
    static const auto causal = make(kCompressedMask),
                      prefix = make(kCompressedMask + kCompressedBias);
    return with_prefix ? prefix : causal;
}

/// Part [begin, begin + width) of the last dimension.
ref::ExpectedTensor columns_of(const ref::ExpectedTensor& all, std::int64_t dim, std::int64_t begin,
                               std::int64_t width) {
    const auto rows = static_cast<std::int64_t>(all.size()) / std::max<std::int64_t>(dim, 1);
    ref::ExpectedTensor out(static_cast<std::size_t>(rows * width));
    for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t c = 0; c < width; ++c) {
            const auto to = static_cast<std::size_t>(row * width + c),
                       from = static_cast<std::size_t>(row * dim + begin + c);
            out.value[to] = all.value[from];
            out.bound[to] = all.bound[from];
            out.overflow[to] = all.overflow[from];
        }
    return out;
}

/// Packed number (t N1 + n) of each row of the statistics tensor as it lies in memory.
std::vector<std::int64_t> statistics_rows(const FlashParts& parts) {
    const ref::FlashAttentionShape& s = parts.shape;
    if (parts.layout == FlashLayout::tnd) return ref::statistics_order(s, parts.same_as_input);
    // [B,N1,S1,8]: the order of BNSD, whatever the layout.
    std::vector<std::int64_t> packed(static_cast<std::size_t>(s.total_queries * s.query_heads));
    std::iota(packed.begin(), packed.end(), std::int64_t{0});
    return to_layout(FlashLayout::bnsd, s.query_lengths, s.query_heads, 1, packed);
}

}  // namespace

Call make_flash_call(const FlashParts& parts) {
    const Schema& schema =
        find_operator(parts.gradient ? "flash_attention_score_grad" : "flash_attention_score")
            ->schema();
    const ref::FlashAttentionShape& s = parts.shape;
    const auto batches = static_cast<std::int64_t>(s.query_lengths.size());
    const auto lanes = [&](const std::vector<float>& rows) {
        std::vector<std::uint32_t> bits;
        if (rows.empty()) return bits;
        for (const std::int64_t row : statistics_rows(parts))
            bits.insert(bits.end(), kStatisticLanes,
                        ref::encode(ref::Dtype::fp32, rows[static_cast<std::size_t>(row)]));
        return bits;
    };
    Call call;
    call.op = schema.op;
    call.profile = parts.profile;
    call.description = &schema;
    for (const TensorField& field : schema.tensors) {
        const std::string& name = field.name;
        const auto packed = flash_logical_shape(name, parts);
        if (packed.size() == 1) {
            std::vector<std::uint32_t> bits;
            std::vector<std::int64_t> shape{packed[0]};
            ref::Dtype dtype = ref::Dtype::uint8;
            bool present = false;
            if (name.ends_with("shift")) {
                present = s.bias.present;
                dtype = s.bias.type >= 2 ? ref::Dtype::fp32 : parts.result;
                shape = s.bias.shape;
                bits = parts.pse;
            } else if (name == "drop_mask") {
                present = s.dropout.present;
                bits.assign(s.dropout.bytes.begin(), s.dropout.bytes.end());
            } else if (name == "atten_mask") {
                present = s.mask.present;
                dtype = parts.mask_dtype;
                if (present) shape = s.mask.shape;
                bits.assign(s.mask.values.begin(), s.mask.values.end());
            }
            Tensor tensor = make_tensor(name, false, dtype, shape, std::move(bits));
            tensor.present = present;
            if (name == "atten_mask" && present && !flash_reads_mask(s.mask.sparse_mode))
                tensor.shared_bytes = compressed_mask(s.mask.sparse_mode == 6);
            call.tensors.push_back(std::move(tensor));
            continue;
        }
        const bool of_keys =
            name.starts_with("key") || name == "value" || name.starts_with("dk") || name == "dv";
        const auto& lengths = of_keys ? s.kv_lengths : s.query_lengths;
        const std::int64_t length = lengths.empty() ? 0 : lengths[0];
        if (name.starts_with("softmax")) {
            const std::vector<std::int64_t> shape =
                parts.layout == FlashLayout::tnd
                    ? packed
                    : std::vector<std::int64_t>{batches, s.query_heads, length, kStatisticLanes};
            const auto& rows = name == "softmax_max" ? parts.row_max : parts.row_sum;
            call.tensors.push_back(
                make_tensor(name, field.output, ref::Dtype::fp32, shape,
                            field.output ? std::vector<std::uint32_t>{} : lanes(rows)));
            continue;
        }
        const std::vector<std::uint32_t> none;
        const auto& bits = field.output           ? none
                           : name == "query"      ? parts.query
                           : name == "query_rope" ? parts.query_rope
                           : name == "key"        ? parts.key
                           : name == "key_rope"   ? parts.key_rope
                           : name == "value"      ? parts.value
                           : name == "dy"         ? parts.output_grad
                                                  : parts.output;
        Tensor tensor = make_tensor(
            name, field.output, field.output || name == "attention_in" ? parts.result : parts.dtype,
            layout_shape(parts.layout, batches, length, packed),
            bits.empty() ? none : to_layout(parts.layout, lengths, packed[1], packed[2], bits));
        if (name.ends_with("rope")) tensor.present = s.rope_dim > 0;
        call.tensors.push_back(std::move(tensor));
    }
    const auto array = [](const char* name,
                          const std::optional<std::vector<std::int64_t>>& values) {
        HostArray out{name, values.has_value(), 0, values.value_or(std::vector<std::int64_t>{})};
        out.size = std::ssize(out.values);
        return out;
    };
    const bool tnd = parts.layout == FlashLayout::tnd;
    const auto lengths = [&](const std::vector<std::int64_t>& of) {
        return tnd ? std::optional(cumulative(of)) : std::nullopt;
    };
    constexpr const char* kLayouts[] = {"BSH", "BSND", "TND", "SBH", "BNSD"};
    call.arrays = {array("prefix", parts.prefix),
                   array("actual_seq_q_len", lengths(s.query_lengths)),
                   array("actual_seq_kv_len", lengths(s.kv_lengths)),
                   array("q_start_idx", parts.query_start), array("kv_start_idx", parts.key_start)};
    call.texts = {{"input_layout", kLayouts[static_cast<int>(parts.layout)]},
                  {parts.gradient ? "softmax_in_layout" : "softmax_out_layout",
                   parts.same_as_input ? "same_as_input" : ""}};
    call.numbers = {{"pre_tokens", s.mask.pre_tokens},   {"next_tokens", s.mask.next_tokens},
                    {"head_num", s.query_heads},         {"inner_precise", parts.inner_precise},
                    {"sparse_mode", s.mask.sparse_mode}, {"pse_type", s.bias.type}};
    call.reals = {{"scale_value", parts.scale}, {"keep_prob", parts.keep_prob}};
    return call;
}

bool is_flash_claim(const std::string& edit) {
    return edit.starts_with("all.") || edit.starts_with("short_drop.") ||
           edit.starts_with("drop_mask.spare=") || edit.starts_with("drop_mask.lead=") ||
           edit.starts_with("atten_mask.lead=");
}

namespace {

/// "drop_mask.spare=N": N bytes more than needed. "drop_mask.lead=N", "atten_mask.lead=N": N
/// leading extents of 1.
void reform_tensor(const std::string& edit, std::int64_t value, Call& call) {
    if (value < 0 || value > 64)
        throw std::invalid_argument(
            fmt::format("case: break entry '{}', expected a count up to 64", edit));
    Tensor& mask = call.tensor(edit.substr(0, edit.find('.')));
    if (edit.find(".spare=") != std::string::npos) {
        mask.buffer_shape[0] += value;
        if (!mask.shape.empty()) mask.shape[0] += value;
        mask.bits.resize(mask.elements(), 0xff);
        return;
    }
    const auto count = static_cast<std::size_t>(std::clamp<std::int64_t>(
        value, 0,
        ATTNCHECK_MAX_RANK - std::max(std::ssize(mask.shape), std::ssize(mask.buffer_shape))));
    for (auto* extents : {&mask.shape, &mask.buffer_shape, &mask.strides})
        extents->insert(extents->begin(), count, 1);
    mask.rank += static_cast<std::int32_t>(count);
}

}  // namespace

void apply_flash_claim(const std::string& edit, const Spec& spec, Call& call) {
    const auto dot = edit.find('.'), equals = edit.find('=');
    const std::string key =
        edit.substr(dot + 1, equals == std::string::npos ? equals : equals - dot - 1);
    std::int64_t value = -1;
    if (equals != std::string::npos)
        std::from_chars(edit.data() + equals + 1, edit.data() + edit.size(), value);
    if (edit.find("_mask.") != std::string::npos) return reform_tensor(edit, value, call);
    constexpr std::int64_t kLargest = (std::int64_t{2} << 20) + 1;  // lengths are really listed
    static const std::map<std::string, FlashField> kFields{{"dim", kFaDim},
                                                           {"value_dim", kFaValueDim},
                                                           {"rope", kFaRope},
                                                           {"kv_heads", kFaKvHeads},
                                                           {"group", kFaGroup}};
    Spec claimed = spec;
    claimed.edits.clear();
    const auto all_lengths = [&](std::size_t list) {
        for (auto& length : claimed.lists[list]) length = value;
    };
    const bool tnd = claimed.numbers[kFaLayout] == static_cast<std::int64_t>(FlashLayout::tnd);
    std::int64_t query_heads = -1;
    if (value < 0 || value > kLargest) {
        value = -1;
    } else if (const auto field = kFields.find(key); field != kFields.end()) {
        claimed.numbers[field->second] = value;
    } else if (key == "sparse") {
        claimed.numbers[kFaSparse] = value;
        claimed.numbers[kFaPre] = claimed.numbers[kFaNext] = 0;
        claimed.numbers[kFaTokens] = static_cast<std::int64_t>(FlashTokens::pre_unlimited);
    } else if (key == "query_heads") {
        query_heads = value;
    } else if (key == "batches") {  // empty sequences in TND, more of the same elsewhere
        for (auto& list : claimed.lists)
            list.resize(static_cast<std::size_t>(value), tnd ? 0 : list[0]);
    } else if (key == "q" || key == "rows") {
        all_lengths(0);
        if (key == "rows") all_lengths(1);
    } else if (key == "kv") {
        all_lengths(1);
    } else {
        value = -1;
    }
    if (value < 0)
        throw std::invalid_argument(fmt::format(
            "case: break entry '{}', expected all.KEY=VALUE with KEY one of dim, value_dim, rope, "
            "kv_heads, group, "
            "query_heads, sparse, batches, q, kv, rows, or short_drop.rows=VALUE, and a value in "
            "0..{}",
            edit, kLargest));
    FlashParts parts = flash_shape_parts(claimed);
    if (query_heads >= 0) {
        parts.shape.query_heads = query_heads;
        shape_flash_options(claimed, parts.shape);
    }
    const Call wanted = make_flash_call(parts);
    for (std::size_t i = 0; i < call.tensors.size(); ++i) {
        Tensor& tensor = call.tensors[i];
        if (edit.starts_with("short_drop.") && tensor.name == "drop_mask") continue;
        tensor.shape = wanted.tensors[i].shape;
        if (tensor.rank == wanted.tensors[i].rank) continue;
        tensor.rank = wanted.tensors[i].rank;  // an earlier edit gave it another
        tensor.strides = strides_for(Layout::dense, tensor.buffer_shape);
    }
    call.arrays = wanted.arrays;
    call.numbers = wanted.numbers;
}

}  // namespace attncheck::properties
