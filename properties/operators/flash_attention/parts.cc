// From the fields of a flash attention case to a problem in packed parts: shapes of masks and
// biases, attributes, element values, and the statistics the gradient is given.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "properties/operators/flash_attention/problem.h"

namespace attncheck::properties {
namespace {

constexpr std::int64_t kStatisticLanes = 8, kCompressedMask = 2048, kCompressedBias = 1024;

/// Bits of the drop mask.
std::int64_t pair_count(const ref::FlashAttentionShape& s) {
    std::int64_t bits = 0;
    for (std::size_t b = 0; b < s.query_lengths.size(); ++b)
        bits += s.query_heads * s.query_lengths[b] * s.kv_lengths[b];
    return bits;
}

std::vector<std::int64_t> mask_shape(const Spec& spec, const ref::FlashAttentionShape& s) {
    const std::int64_t mode = s.mask.sparse_mode, batches = std::ssize(s.query_lengths);
    if (mode == 6) return {kCompressedMask + kCompressedBias, kCompressedMask};
    if (!flash_reads_mask(mode)) return {kCompressedMask, kCompressedMask};
    const std::int64_t rows = longest(s.query_lengths), columns = longest(s.kv_lengths);
    switch (static_cast<FlashMaskForm>(spec.numbers[kFaMaskForm])) {
        case FlashMaskForm::single:
            return {rows, columns};
        case FlashMaskForm::one:
            return {1, 1, rows, columns};
        case FlashMaskForm::batch:
            return {batches, 1, rows, columns};
        case FlashMaskForm::head:
            return {batches, s.query_heads, rows, columns};
        case FlashMaskForm::packed:
            return {
                std::accumulate(s.query_lengths.begin(), s.query_lengths.end(), std::int64_t{0}),
                std::accumulate(s.kv_lengths.begin(), s.kv_lengths.end(), std::int64_t{0})};
    }
    return {};
}

std::vector<std::int64_t> pse_shape(FlashPse pse, const ref::FlashAttentionShape& s) {
    const std::int64_t batches = std::ssize(s.query_lengths), heads = s.query_heads,
                       rows = longest(s.query_lengths), columns = longest(s.kv_lengths);
    switch (pse) {
        case FlashPse::absent:
            return {0};
        case FlashPse::plain:
            return {batches, heads, rows, columns};
        case FlashPse::one_batch:
            return {1, heads, rows, columns};
        case FlashPse::one_row:
            return {batches, heads, 1, columns};
        case FlashPse::one_batch_row:
            return {1, heads, 1, columns};
        case FlashPse::compressed:
            return {batches, heads, kCompressedBias, columns};
        case FlashPse::compressed_batch:
            return {1, heads, kCompressedBias, columns};
        case FlashPse::flat_keys:
            return {heads *
                    std::accumulate(s.kv_lengths.begin(), s.kv_lengths.end(), std::int64_t{0})};
        case FlashPse::flat_pairs:
            return {pair_count(s)};
        case FlashPse::slopes:
            return {heads};
        case FlashPse::batch_slopes:
            return {batches, heads};
    }
    return {};
}

std::int64_t token_of(const Spec& spec, bool pre) {
    const auto tokens = static_cast<FlashTokens>(spec.numbers[kFaTokens]);
    const std::int64_t value = spec.numbers[pre ? kFaPre : kFaNext];
    switch (tokens) {
        case FlashTokens::given:
            return value;
        case FlashTokens::pre_negative:
            return pre ? -value : value;
        case FlashTokens::next_negative:
            return pre ? value : -value;
        case FlashTokens::pre_unlimited:
            return pre ? INT64_MAX : value;
        case FlashTokens::next_unlimited:
            return pre ? value : INT64_MAX;
        case FlashTokens::unlimited:
            return INT64_MAX;
    }
    return value;
}

FlashParts parts_without_values(const Spec& spec) {
    FlashParts parts;
    const auto& n = spec.numbers;
    parts.profile = spec.profile;
    parts.gradient = spec.schema->op == "flash_attention_score_grad";
    constexpr ref::Dtype kTypes[] = {ref::Dtype::fp16, ref::Dtype::bf16, ref::Dtype::fp32,
                                     ref::Dtype::fp8_e5m2, ref::Dtype::fp8_e4m3fn};
    parts.dtype = kTypes[n[kFaDtype]];
    parts.result = flash_is_fp8(spec) ? kTypes[n[kFaResult]] : parts.dtype;
    parts.layout = static_cast<FlashLayout>(n[kFaLayout]);
    ref::FlashAttentionShape& s = parts.shape;
    s.query_lengths = spec.lists[0];
    s.kv_lengths = spec.lists[1];
    s.total_queries = std::accumulate(spec.lists[0].begin(), spec.lists[0].end(), n[kFaBeyondQ]);
    s.total_keys = std::accumulate(spec.lists[1].begin(), spec.lists[1].end(), n[kFaBeyondKv]);
    s.kv_heads = n[kFaKvHeads];
    s.query_heads = n[kFaKvHeads] * n[kFaGroup];
    s.head_dim = n[kFaDim];
    s.rope_dim = n[kFaRope];
    s.value_dim = n[kFaValueDim];
    s.packed = parts.layout == FlashLayout::tnd;
    parts.scale = scale_of(static_cast<ScaleKind>(n[kFaScale]), s.head_dim);
    s.scale = static_cast<float>(parts.scale);
    parts.keep_prob = flash_keep_prob(n[kFaKeep]);
    s.mask.present = n[kFaMask] != 0;
    s.mask.sparse_mode = n[kFaSparse];
    s.mask.pre_tokens = token_of(spec, true);
    s.mask.next_tokens = token_of(spec, false);
    parts.mask_dtype = n[kFaMask] == 2 ? ref::Dtype::uint8 : ref::Dtype::boolean;
    s.bias.present = static_cast<FlashPse>(n[kFaPse]) != FlashPse::absent;
    s.bias.type = n[kFaPseType];
    shape_flash_options(spec, s);
    s.dropout.present = n[kFaDrop] != 0;
    s.dropout.keep_prob = static_cast<float>(parts.keep_prob);
    parts.same_as_input = n[kFaOrder] == 1;
    parts.inner_precise = n[kFaPrecise];
    return parts;
}

void apply_overrides(const Spec& spec, FlashParts& parts) {
    const ref::FlashAttentionShape& s = parts.shape;
    for (const auto& [ref, value] : spec.overrides) {
        const std::string& name = spec.schema->tensors[static_cast<std::size_t>(ref.tensor)].name;
        const auto flat = static_cast<std::size_t>(ref.index[0]);
        if (name == "atten_mask") {
            parts.shape.mask.values.at(flat) = static_cast<std::uint8_t>(value);
            continue;
        }
        if (name == "drop_mask") {
            parts.shape.dropout.bytes.at(flat) = static_cast<std::uint8_t>(value);
            continue;
        }
        if (name == "real_shift" || name == "pse_shift") {
            const ref::Dtype dtype = s.bias.type >= 2 ? ref::Dtype::fp32 : parts.result;
            parts.pse.at(flat) = ref::encode(dtype, value);
            parts.shape.bias.values.at(flat) = ref::decode(dtype, parts.pse[flat]);
            continue;
        }
        const bool of_keys = name.starts_with("key") || name == "value";
        const std::int64_t heads = of_keys ? s.kv_heads : s.query_heads;
        const std::int64_t dim = name.ends_with("rope")            ? s.rope_dim
                                 : name == "value" || name == "dy" ? s.value_dim
                                                                   : s.head_dim;
        std::vector<std::uint32_t>& bits = name == "query"        ? parts.query
                                           : name == "query_rope" ? parts.query_rope
                                           : name == "key"        ? parts.key
                                           : name == "key_rope"   ? parts.key_rope
                                           : name == "value"      ? parts.value
                                                                  : parts.output_grad;
        bits.at(static_cast<std::size_t>((ref.index[0] * heads + ref.index[1]) * dim +
                                         ref.index[2])) = ref::encode(parts.dtype, value);
    }
}

/// Query or key with its rope part behind the head dim.
std::vector<double> with_rope(const FlashParts& parts, const std::vector<std::uint32_t>& main,
                              const std::vector<std::uint32_t>& rope) {
    const std::int64_t dim = parts.shape.head_dim, extra = parts.shape.rope_dim;
    if (extra == 0) return parts.values(main);
    const auto head = parts.values(main), tail = parts.values(rope);
    std::vector<double> out;
    for (std::size_t row = 0; row * static_cast<std::size_t>(dim) < head.size(); ++row) {
        const auto h = head.begin() + static_cast<std::ptrdiff_t>(row) * dim;
        const auto t = tail.begin() + static_cast<std::ptrdiff_t>(row) * extra;
        out.insert(out.end(), h, h + dim);
        out.insert(out.end(), t, t + extra);
    }
    return out;
}

}  // namespace

bool flash_is_fp8(const Spec& spec) { return spec.numbers[kFaDtype] >= 3; }

std::int64_t flash_elements(const std::vector<std::int64_t>& shape) {
    return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

bool flash_reads_mask(std::int64_t mode) { return mode == 0 || mode == 1 || mode == 5; }

bool flash_is_compressed(FlashPse pse) {
    return pse == FlashPse::compressed || pse == FlashPse::compressed_batch;
}

std::vector<std::int64_t> flash_logical_shape(const std::string& name, const FlashParts& parts) {
    const ref::FlashAttentionShape& s = parts.shape;
    if (name == "real_shift" || name == "pse_shift")
        return {s.bias.present ? flash_elements(s.bias.shape) : 0};
    if (name == "drop_mask") return {s.dropout.present ? (pair_count(s) + 7) / 8 : 0};
    if (name == "padding_mask") return {0};
    if (name == "atten_mask")
        return {s.mask.present && flash_reads_mask(s.mask.sparse_mode)
                    ? flash_elements(s.mask.shape)
                    : 0};
    const bool of_keys =
        name.starts_with("key") || name == "value" || name.starts_with("dk") || name == "dv";
    const std::int64_t rows = of_keys ? s.total_keys : s.total_queries,
                       heads = of_keys ? s.kv_heads : s.query_heads;
    if (name.starts_with("softmax")) return {rows, heads, kStatisticLanes};
    if (name.ends_with("rope")) return {s.rope_dim > 0 ? rows : 0, heads, s.rope_dim};
    const bool value_wide =
        name == "value" || name == "dy" || name == "dv" || name.starts_with("attention");
    return {rows, heads, value_wide ? s.value_dim : s.head_dim};
}

double flash_keep_prob(std::int64_t kind) {
    constexpr double kProbabilities[] = {1, 0.5, 0.9, 0.1};
    return kProbabilities[kind];
}

std::vector<double> FlashParts::query_values() const { return with_rope(*this, query, query_rope); }
std::vector<double> FlashParts::key_values() const { return with_rope(*this, key, key_rope); }

void give_reference_statistics(FlashParts& parts) {
    AttentionProblem problem = flash_problem(parts);
    give_reference_forward(problem);
    parts.output = problem.output;
    parts.row_max = problem.row_max;
    parts.row_sum = problem.row_sum;
}

void shape_flash_options(const Spec& spec, ref::FlashAttentionShape& s) {
    if (s.mask.present) s.mask.shape = mask_shape(spec, s);
    s.bias.shape = pse_shape(static_cast<FlashPse>(spec.numbers[kFaPse]), s);
}

FlashParts flash_shape_parts(const Spec& spec) {
    FlashParts parts = parts_without_values(spec);
    const auto& n = spec.numbers;
    const auto start = static_cast<FlashStart>(n[kFaStart]);
    if (start == FlashStart::both || start == FlashStart::query)
        parts.query_start = {{static_cast<std::int64_t>(mix(spec.seed) % 40)}};
    if (start == FlashStart::both || start == FlashStart::key)
        parts.key_start = {{static_cast<std::int64_t>(mix(spec.seed + 1) % 40)}};
    const bool has_sequences = !parts.shape.query_lengths.empty();  // a claimed batch may be empty
    if (parts.query_start && n[kFaSparse] == 8 && n[kFaMask] != 0 && parts.key_start &&
        has_sequences)
        // Mode 8 wants the first diagonal to meet.
        parts.key_start = {{parts.query_start->front() + parts.shape.query_lengths[0] -
                            parts.shape.kv_lengths[0]}};
    if (parts.query_start && parts.key_start) {
        parts.shape.bias.query_start = parts.query_start->front();
        parts.shape.bias.key_start = parts.key_start->front();
    }
    const auto prefix = static_cast<FlashPrefix>(n[kFaPrefix]);
    const bool wanted = n[kFaMask] != 0 && (n[kFaSparse] == 5 || n[kFaSparse] == 6);
    if (wanted && prefix != FlashPrefix::absent) {
        std::vector<std::int64_t> values;
        for (std::size_t b = 0; b < spec.lists[0].size(); ++b) {
            const std::int64_t high = spec.lists[1][b],
                               low = std::max<std::int64_t>(0, high - spec.lists[0][b]);
            values.push_back(
                prefix == FlashPrefix::lowest ? low
                : prefix == FlashPrefix::full
                    ? high
                    : low + static_cast<std::int64_t>(mix(spec.seed + 7 * b) %
                                                      static_cast<std::uint64_t>(high - low + 1)));
        }
        parts.prefix = values;
        parts.shape.mask.prefix = values;
    }
    return parts;
}

FlashParts flash_input_parts(const Spec& spec) {
    FlashParts parts = flash_shape_parts(spec);
    fill_flash_mask(spec, parts);
    fill_flash_bias(spec, parts);
    fill_flash_dropout(spec, parts);
    fill_flash_data(spec, parts);
    apply_overrides(spec, parts);
    return parts;
}

FlashParts flash_parts(const Spec& spec) {
    FlashParts parts = flash_input_parts(spec);
    if (!parts.gradient) return parts;
    give_reference_statistics(parts);
    if (spec.numbers[kFaStats] != 0) shift_statistics(parts.row_max, parts.row_sum);
    if (spec.numbers[kFaOut] != 0) perturb_output(parts.result, parts.output);
    return parts;
}

}  // namespace attncheck::properties
