#include "properties/flash_attention_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <numeric>
#include <stdexcept>

namespace attncheck::properties {
namespace {

constexpr std::int64_t kLongest = 1 << 20;  ///< 1 Mi
constexpr std::int64_t kStatisticLanes = 8, kCompressedMask = 2048, kCompressedBias = 1024;
constexpr std::int64_t kLargestElement = 1 << 26;  ///< masks and biases are really laid out

Schema make_schema(bool gradient) {
    Schema schema;
    schema.op = gradient ? "flash_attention_score_grad" : "flash_attention_score";
    schema.parallel_lists = true;
    schema.numbers = {
        {"dtype", 0, 2, 1, -1, {"fp16", "bf16", "fp32"}},
        {"layout", 0, 4, 1, -1, {"BSH", "BSND", "TND", "SBH", "BNSD"}},
        {"kv_heads", 1, 256, 1, -1, {}},
        {"group", 1, 256, 1, -1, {}},
        {"dim", 1, 512, 1, -1, {}},
        {"value_dim", 1, 512, 1, -1, {}},
        {"rope", 0, 512, 8, 0, {}},
        {"mask", 0, 2, 1, 0, {"absent", "bool", "uint8"}},
        {"mask_form", 0, 4, 1, 0, {"single", "one", "batch", "head", "packed"}},
        {"sparse", 0, 8, 1, 0, {}},
        {"pre", 0, kLongest, 1, 0, {}},
        {"next", 0, kLongest, 1, 0, {}},
        {"tokens",
         0,
         5,
         1,
         0,
         {"given", "pre_negative", "next_negative", "pre_unlimited", "next_unlimited",
          "unlimited"}},
        {"prefix", 0, 3, 1, 0, {"lowest", "full", "random", "absent"}},
        {"pse",
         0,
         10,
         1,
         0,
         {"absent", "plain", "one_batch", "one_row", "one_batch_row", "compressed",
          "compressed_batch", "flat_keys", "flat_pairs", "slopes", "batch_slopes"}},
        {"pse_type", 0, 3, 1, 1, {}},
        {"start", 0, 3, 1, 0, {"absent", "both", "query", "key"}},
        {"drop", 0, 3, 1, 0, {"absent", "random", "keep_all", "drop_all"}},
        {"keep", 0, 3, 1, 0, {"one", "half", "nine_tenths", "tenth"}},
        {"scale", 0, 6, 1, 0, {"one", "rsqrt", "eighth", "zero", "negative", "tenth", "large"}},
        {"logits",
         0,
         7,
         1,
         0,
         {"plain", "equal", "dominant", "minus40", "minus120", "minus300", "plus300",
          "minus20000"}},
        {"stats_order", 0, 1, 1, 0, {"blocks", "same_as_input"}},
        {"precise", 0, 2, 1, 0, {}},
        {"beyond_q", 0, kLongest, 1, 0, {}},
        {"beyond_kv", 0, kLongest, 1, 0, {}}};
    if (gradient) {
        schema.numbers.push_back({"stats", 0, 1, 1, 0, {"reference", "shifted"}});
        schema.numbers.push_back({"out", 0, 1, 1, 0, {"reference", "perturbed"}});
    }
    schema.lists = {{"q", 0, kLongest, 2048}, {"kv", 0, kLongest, 2048}};
    const char* pse = gradient ? "pse_shift" : "real_shift";
    schema.tensors = {{"query", 3}, {"query_rope", 3}, {"key", 3}, {"key_rope", 3}, {"value", 3}};
    if (gradient) schema.tensors.push_back({"dy", 3});
    schema.tensors.push_back({pse, 1});
    schema.tensors.push_back({"drop_mask", 1, false, false, true});
    schema.tensors.push_back({"padding_mask", 1, false, true});
    schema.tensors.push_back({"atten_mask", 1, false, false, true});
    schema.tensors.push_back({"softmax_max", 3, !gradient, gradient});
    schema.tensors.push_back({"softmax_sum", 3, !gradient, gradient});
    if (gradient) {
        schema.tensors.push_back({"attention_in", 3, false, true});
        for (const char* name : {"dq", "dq_rope", "dk", "dk_rope", "dv"})
            schema.tensors.push_back({name, 3, true});
    } else {
        schema.tensors.push_back({"attention_out", 3, true});
    }
    return schema;
}

std::vector<std::int64_t> cumulative(const std::vector<std::int64_t>& lengths) {
    std::vector<std::int64_t> ends(lengths.size());
    std::partial_sum(lengths.begin(), lengths.end(), ends.begin());
    return ends;
}

std::int64_t product(const std::vector<std::int64_t>& shape) {
    return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

bool reads_mask(std::int64_t mode) { return mode == 0 || mode == 1 || mode == 5; }
bool is_compressed(FlashPse pse) {
    return pse == FlashPse::compressed || pse == FlashPse::compressed_batch;
}

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
    if (!reads_mask(mode)) return {kCompressedMask, kCompressedMask};
    const std::int64_t rows = ref::longest_of(s.query_lengths),
                       columns = ref::longest_of(s.kv_lengths);
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
                       rows = ref::longest_of(s.query_lengths),
                       columns = ref::longest_of(s.kv_lengths);
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
    parts.gradient = spec.schema->op == "flash_attention_score_grad";
    constexpr ref::Dtype kTypes[] = {ref::Dtype::fp16, ref::Dtype::bf16, ref::Dtype::fp32};
    parts.dtype = kTypes[n[kFaDtype]];
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
    parts.scale = flash_scale(n[kFaScale], s.head_dim);
    s.scale = static_cast<float>(parts.scale);
    parts.keep_prob = flash_keep_prob(n[kFaKeep]);
    s.mask.present = n[kFaMask] != 0;
    s.mask.sparse_mode = n[kFaSparse];
    s.mask.pre_tokens = token_of(spec, true);
    s.mask.next_tokens = token_of(spec, false);
    if (s.mask.present) s.mask.shape = mask_shape(spec, s);
    parts.mask_dtype = n[kFaMask] == 2 ? ref::Dtype::uint8 : ref::Dtype::boolean;
    const auto pse = static_cast<FlashPse>(n[kFaPse]);
    s.bias.present = pse != FlashPse::absent;
    s.bias.type = n[kFaPseType];
    s.bias.shape = pse_shape(pse, s);
    s.dropout.present = n[kFaDrop] != 0;
    s.dropout.keep_prob = static_cast<float>(parts.keep_prob);
    parts.same_as_input = n[kFaOrder] == 1;
    parts.inner_precise = n[kFaPrecise];
    return parts;
}

/// (m + c, l exp(-c)) with a c of the row's own: the same P from other numbers.
void shift_statistics(FlashParts& parts) {
    for (std::size_t i = 0; i < parts.row_max.size(); ++i) {
        if (std::fabs(parts.row_max[i]) > 1e30f) continue;  // a row without keys
        const double shift = 0.75 * static_cast<double>(mix(i) % 9) - 3;
        const float moved = static_cast<float>(parts.row_max[i] + shift);
        const double really = static_cast<double>(moved) - static_cast<double>(parts.row_max[i]);
        parts.row_sum[i] = static_cast<float>(parts.row_sum[i] * std::exp(-really));
        parts.row_max[i] = moved;
    }
}

void perturb_output(FlashParts& parts) {
    for (std::size_t i = 0; i < parts.output.size(); ++i) {
        const double value = ref::decode(parts.dtype, parts.output[i]);
        const double noise = static_cast<double>(mix(i) % 17) / 16 - 0.5;
        parts.output[i] = ref::encode(parts.dtype, value + noise);
    }
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
            const ref::Dtype dtype = s.bias.type >= 2 ? ref::Dtype::fp32 : parts.dtype;
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

/// Packed shape of a tensor that is indexed [row, head, channel], or {elements}.
std::vector<std::int64_t> logical_shape(const std::string& name, const FlashParts& parts) {
    const ref::FlashAttentionShape& s = parts.shape;
    if (name == "real_shift" || name == "pse_shift")
        return {s.bias.present ? product(s.bias.shape) : 0};
    if (name == "drop_mask") return {s.dropout.present ? (pair_count(s) + 7) / 8 : 0};
    if (name == "padding_mask") return {0};
    if (name == "atten_mask")
        return {s.mask.present && reads_mask(s.mask.sparse_mode) ? product(s.mask.shape) : 0};
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

Tensor make_tensor(const std::string& name, bool output, ref::Dtype dtype,
                   std::vector<std::int64_t> shape, std::vector<std::uint32_t> bits) {
    Tensor tensor;
    tensor.name = name;
    tensor.output = output;
    tensor.dtype = tensor.dtype_of_buffer = static_cast<std::int32_t>(dtype);
    tensor.rank = static_cast<std::int32_t>(shape.size());
    tensor.strides = strides_for(Layout::dense, shape);
    tensor.shape = tensor.buffer_shape = std::move(shape);
    tensor.bits = std::move(bits);
    return tensor;
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

class FlashOperator final : public Operator {
public:
    explicit FlashOperator(bool gradient)
        : gradient_(gradient),
          schema_(make_schema(gradient)),
          properties_(flash_properties(gradient)),
          required_(flash_required_classes(gradient)) {}

    const Schema& schema() const override { return schema_; }
    const std::vector<Property>& properties() const override { return properties_; }
    const std::vector<RequiredClass>& required_classes() const override { return required_; }
    std::vector<std::string> labels(const Spec& spec) const override { return flash_labels(spec); }
    Spec sample(Random& random, int size) const override {
        return sample_flash(schema_, random, size);
    }

    std::optional<std::string> illegal(const Spec& spec) const override;
    std::vector<Spec> joint_shrinks(const Spec& spec) const override;
    void carry_overrides(const Spec& from, Spec& to, const std::vector<int>& kept) const override;

    std::vector<std::vector<std::int64_t>> shapes(const Spec& spec) const override {
        const FlashParts parts = parts_without_values(spec);
        std::vector<std::vector<std::int64_t>> out;
        for (const TensorField& field : schema_.tensors)
            out.push_back(logical_shape(field.name, parts));
        return out;
    }

    Call build(const Spec& spec) const override {
        Call call = make_flash_call(flash_parts(spec));
        for (std::size_t i = 0; i < call.tensors.size(); ++i)
            if (!call.tensors[i].shared_bytes)
                call.tensors[i].strides =
                    strides_for(spec.layouts[i], call.tensors[i].buffer_shape);
        for (const auto& edit : spec.edits) apply_edit(call, edit);
        return call;
    }

    std::vector<Tensor> logical_tensors(const Spec& spec) const override {
        const FlashParts parts = flash_parts(spec);
        std::vector<Tensor> out;
        for (const TensorField& field : schema_.tensors) {
            const std::string& name = field.name;
            std::vector<std::uint32_t> bits;
            ref::Dtype dtype = parts.dtype;
            if (name == "query")
                bits = parts.query;
            else if (name == "query_rope")
                bits = parts.query_rope;
            else if (name == "key")
                bits = parts.key;
            else if (name == "key_rope")
                bits = parts.key_rope;
            else if (name == "value")
                bits = parts.value;
            else if (name == "dy")
                bits = parts.output_grad;
            else if (name == "real_shift" || name == "pse_shift") {
                bits = parts.pse;
                if (parts.shape.bias.type >= 2) dtype = ref::Dtype::fp32;
            } else if (name == "drop_mask" || name == "atten_mask") {
                const auto& bytes =
                    name == "drop_mask" ? parts.shape.dropout.bytes : parts.shape.mask.values;
                bits.assign(bytes.begin(), bytes.end());
                dtype = ref::Dtype::uint8;
            }
            out.push_back(make_tensor(name, field.output, dtype, logical_shape(name, parts),
                                      std::move(bits)));
        }
        return out;
    }

    std::vector<std::byte> pack(const Call& call, const std::vector<attncheck_tensor>& tensors,
                                const std::vector<attncheck_int_array>& arrays,
                                const std::vector<const char*>& texts) const override;
    ref::Ruling rule(const Call& call) const override;
    std::string describe(const Spec& spec, const std::string& tensor,
                         const std::vector<std::int64_t>& index) const override;

private:
    std::optional<std::string> illegal_sizes(const Spec& spec) const;
    std::optional<std::string> illegal_overrides(const Spec& spec) const;

    bool gradient_;
    Schema schema_;
    std::vector<Property> properties_;
    std::vector<RequiredClass> required_;
};

/// What the suite's own fields need; the documented rules are the predicate's.
std::optional<std::string> FlashOperator::illegal(const Spec& spec) const {
    const auto& n = spec.numbers;
    for (std::size_t i = 0; i < schema_.numbers.size(); ++i) {
        const NumberField& field = schema_.numbers[i];
        if (n[i] < field.min || n[i] > field.max || (n[i] - field.min) % field.step)
            return fmt::format("{}={} is outside {}..{} in steps of {}", field.key, n[i], field.min,
                               field.max, field.step);
    }
    if (auto reason = illegal_sizes(spec)) return reason;
    const bool tnd = n[kFaLayout] == static_cast<std::int64_t>(FlashLayout::tnd);
    const auto pse = static_cast<FlashPse>(n[kFaPse]);
    if (n[kFaMask] == 0 &&
        (n[kFaMaskForm] != 0 || n[kFaTokens] != 0 || n[kFaPre] != 0 || n[kFaNext] != 0))
        return "mask_form, tokens, pre and next need a mask";
    if (!reads_mask(n[kFaSparse]) && n[kFaMaskForm] != 0)
        return "mask_form is for sparse 0, 1 and 5";
    if (n[kFaMaskForm] == static_cast<std::int64_t>(FlashMaskForm::packed) && !tnd)
        return "mask_form=packed is for TND";
    if (n[kFaPrefix] != 0 && (n[kFaMask] == 0 || (n[kFaSparse] != 5 && n[kFaSparse] != 6)))
        return "prefix is for sparse 5 and 6 with a mask";
    if (pse == FlashPse::absent && n[kFaStart] != 0) return "start needs a pse";
    if ((pse >= FlashPse::slopes) != (n[kFaPseType] >= 2))
        return "pse_type 2 and 3 take slopes, 0 and 1 do not";
    if ((pse == FlashPse::flat_keys || pse == FlashPse::flat_pairs) && !tnd)
        return "flat biases are for TND";
    if (n[kFaDrop] == 0 && n[kFaKeep] != 0) return "keep needs a drop mask";
    if (!tnd && n[kFaOrder] != 0) return "stats_order is for TND";
    for (std::size_t i = 0; i < schema_.tensors.size(); ++i) {
        const Layout layout = spec.layouts[i];
        if (layout == Layout::broadcast ||
            (schema_.tensors[i].output && layout == Layout::reversed) ||
            (schema_.tensors[i].name == "atten_mask" && layout != Layout::dense &&
             !reads_mask(n[kFaSparse])))
            return fmt::format("{}.layout={} is not possible", schema_.tensors[i].name,
                               name_of(layout));
    }
    if (auto reason = illegal_overrides(spec)) return reason;
    // The documented rules, on the arguments without their elements.
    Spec plain = spec;
    plain.overrides.clear();
    plain.edits.clear();
    plain.recipe = Recipe::zeros;
    const ref::Ruling ruling = rule(make_flash_call(flash_shape_parts(plain)));
    if (!ruling.accepted()) return ruling.message;
    return std::nullopt;
}

std::optional<std::string> FlashOperator::illegal_sizes(const Spec& spec) const {
    const auto& n = spec.numbers;
    const bool tnd = n[kFaLayout] == static_cast<std::int64_t>(FlashLayout::tnd);
    if (spec.lists[0].size() != spec.lists[1].size() || spec.lists[0].empty())
        return "q and kv need the same number of entries, at least one";
    std::int64_t rows = 0;
    for (const auto& list : spec.lists)
        for (const auto length : list) {
            if (length < 0 || length > kLongest) return "a length is outside 0..1048576";
            if (!tnd && length != list[0]) return "all batches have the same length outside TND";
            rows += length;
        }
    if (!tnd && (n[kFaBeyondQ] != 0 || n[kFaBeyondKv] != 0))
        return "beyond_q and beyond_kv are for TND";
    if (rows + n[kFaBeyondQ] + n[kFaBeyondKv] > 2 * kLongest) return "too many rows";
    if (n[kFaKvHeads] * n[kFaGroup] > 256) return "kv_heads * group is more than 256";
    if (n[kFaValueDim] > n[kFaDim]) return "value_dim is larger than dim";
    if (n[kFaRope] > n[kFaDim]) return "rope is larger than dim";
    const FlashParts parts = parts_without_values(spec);
    for (const TensorField& field : schema_.tensors)
        if (product(logical_shape(field.name, parts)) > kLargestElement)
            return fmt::format("{} is too large for a case", field.name);
    return std::nullopt;
}

std::optional<std::string> FlashOperator::illegal_overrides(const Spec& spec) const {
    if (spec.overrides.empty()) return std::nullopt;
    const auto extents = shapes(spec);
    for (const auto& [ref, value] : spec.overrides) {
        const auto& shape = extents[static_cast<std::size_t>(ref.tensor)];
        const std::string& name = schema_.tensors[static_cast<std::size_t>(ref.tensor)].name;
        for (std::size_t dim = 0; dim < shape.size(); ++dim)
            if (ref.index[dim] >= shape[dim])
                return fmt::format("set names an element outside {}", name);
        if ((name == "atten_mask" || name == "drop_mask") && !(value >= 0 && value <= 255))
            return fmt::format("set gives {} a value it cannot hold", name);
        if (name == "atten_mask" && spec.numbers[kFaMask] == 1 && value > 1)
            return "set gives a bool mask a value above 1";
        if (name.ends_with("shift") && is_compressed(static_cast<FlashPse>(spec.numbers[kFaPse])))
            return "a compressed bias depends on i - j alone: set cannot change it";
    }
    return std::nullopt;
}

std::vector<Spec> FlashOperator::joint_shrinks(const Spec& spec) const {
    std::vector<Spec> out;
    const auto with = [&](auto&& change) {
        Spec to = spec;
        change(to);
        out.push_back(to);
    };
    const auto without_mask = [](Spec& to) {
        for (const FlashField field :
             {kFaMask, kFaMaskForm, kFaTokens, kFaPre, kFaNext, kFaPrefix, kFaSparse})
            to.numbers[field] = 0;
    };
    const auto without_pse = [](Spec& to) {
        to.numbers[kFaPse] = to.numbers[kFaStart] = 0;
        to.numbers[kFaPseType] = 1;
    };
    const auto without_drop = [](Spec& to) { to.numbers[kFaDrop] = to.numbers[kFaKeep] = 0; };
    with([&](Spec& to) {
        without_mask(to);
        without_pse(to);
        without_drop(to);
        to.numbers[kFaRope] = 0;
    });
    with(without_mask);
    with([&](Spec& to) {
        without_mask(to);
        to.numbers[kFaRope] = 0;
    });
    with(without_pse);
    with(without_drop);
    with([](Spec& to) { to.numbers[kFaTokens] = to.numbers[kFaPre] = to.numbers[kFaNext] = 0; });
    for (const std::int64_t layout : {0, 1, 2})
        if (layout < spec.numbers[kFaLayout])
            with([&](Spec& to) {
                to.numbers[kFaLayout] = layout;
                if (layout != 2)
                    to.numbers[kFaBeyondQ] = to.numbers[kFaBeyondKv] = to.numbers[kFaOrder] = 0;
            });
    for (const std::int64_t dim : {1, 2, 8, 16, 32, 64})  // both widths, and the rope with them
        if (dim < spec.numbers[kFaDim])
            with([&](Spec& to) {
                to.numbers[kFaDim] = dim;
                to.numbers[kFaValueDim] = std::min(to.numbers[kFaValueDim], dim);
                to.numbers[kFaRope] = std::min(to.numbers[kFaRope], dim / 8 * 8);
            });
    with([](Spec& to) { to.numbers[kFaValueDim] = 1; });
    // All batches at once, queries and keys apart and together.
    for (const int which : {1, 2, 3})
        for (const std::int64_t cut : {std::int64_t{1} << 30, std::int64_t{0}, std::int64_t{1}})
            with([&](Spec& to) {
                for (int list = 0; list < 2; ++list)
                    if (which >> list & 1)
                        for (auto& length : to.lists[static_cast<std::size_t>(list)])
                            length = cut == 0   ? length / 2
                                     : cut == 1 ? std::max<std::int64_t>(0, length - 1)
                                                : std::min<std::int64_t>(length, 1);
            });
    return out;
}

void FlashOperator::carry_overrides(const Spec& from, Spec& to,
                                    const std::vector<int>& kept) const {
    to.overrides.clear();
    const auto extents = shapes(to), old_extents = shapes(from);
    for (const auto& [from_ref, value] : from.overrides) {
        ElementRef ref = from_ref;
        const auto tensor = static_cast<std::size_t>(ref.tensor);
        const auto& shape = extents[tensor];
        if (schema_.tensors[tensor].rank == 1) {  // numbered pairs mean nothing in another shape
            if (shape == old_extents[tensor] || ref.index[0] == 0) {
                if (ref.index[0] < shape[0]) to.overrides[ref] = value;
            }
            continue;
        }
        const std::string& name = schema_.tensors[tensor].name;
        const std::size_t list = name.starts_with("key") || name == "value" ? 1 : 0;
        auto old_starts = cumulative(from.lists[list]), new_starts = cumulative(to.lists[list]);
        old_starts.insert(old_starts.begin(), 0);
        new_starts.insert(new_starts.begin(), 0);
        const auto after = std::upper_bound(old_starts.begin(), old_starts.end(), ref.index[0]);
        const auto sequence = static_cast<std::size_t>(after - old_starts.begin()) - 1;
        const std::int64_t position = ref.index[0] - old_starts[sequence];
        std::size_t target = new_starts.size() - 1;
        if (sequence + 1 < old_starts.size()) {
            const auto it = std::find(kept.begin(), kept.end(), static_cast<int>(sequence));
            if (it == kept.end()) continue;
            target = static_cast<std::size_t>(it - kept.begin());
            if (position >= new_starts[target + 1] - new_starts[target]) continue;
        }
        ref.index[0] = new_starts[target] + position;
        bool inside = true;
        for (std::size_t dim = 0; dim < shape.size(); ++dim)
            inside = inside && ref.index[dim] < shape[dim];
        if (inside) to.overrides[ref] = value;
    }
}

std::vector<std::byte> FlashOperator::pack(const Call& call,
                                           const std::vector<attncheck_tensor>& tensors,
                                           const std::vector<attncheck_int_array>& arrays,
                                           const std::vector<const char*>& texts) const {
    const auto tensor = [&](std::string_view name) { return tensors[tensor_index(call, name)]; };
    const auto bytes_of = [&](auto& arguments) {
        arguments.query = tensor("query");
        arguments.query_rope = tensor("query_rope");
        arguments.key = tensor("key");
        arguments.key_rope = tensor("key_rope");
        arguments.value = tensor("value");
        arguments.drop_mask = tensor("drop_mask");
        arguments.padding_mask = tensor("padding_mask");
        arguments.atten_mask = tensor("atten_mask");
        arguments.softmax_max = tensor("softmax_max");
        arguments.softmax_sum = tensor("softmax_sum");
        arguments.prefix = arrays[0];
        arguments.actual_seq_q_len = arrays[1];
        arguments.actual_seq_kv_len = arrays[2];
        arguments.q_start_idx = arrays[3];
        arguments.kv_start_idx = arrays[4];
        arguments.scale_value = call.real("scale_value");
        arguments.keep_prob = call.real("keep_prob");
        arguments.pre_tokens = call.number("pre_tokens");
        arguments.next_tokens = call.number("next_tokens");
        arguments.head_num = call.number("head_num");
        arguments.input_layout = texts[0];
        arguments.inner_precise = call.number("inner_precise");
        arguments.sparse_mode = call.number("sparse_mode");
        arguments.pse_type = call.number("pse_type");
        std::vector<std::byte> bytes(sizeof arguments);
        std::memcpy(bytes.data(), &arguments, sizeof arguments);
        return bytes;
    };
    if (!gradient_) {
        attncheck_flash_attention_score_args arguments{};
        arguments.real_shift = tensor("real_shift");
        arguments.attention_out = tensor("attention_out");
        arguments.softmax_out_layout = texts[1];
        return bytes_of(arguments);
    }
    attncheck_flash_attention_score_grad_args arguments{};
    arguments.dy = tensor("dy");
    arguments.pse_shift = tensor("pse_shift");
    arguments.attention_in = tensor("attention_in");
    arguments.softmax_in_layout = texts[1];
    arguments.dq = tensor("dq");
    arguments.dq_rope = tensor("dq_rope");
    arguments.dk = tensor("dk");
    arguments.dk_rope = tensor("dk_rope");
    arguments.dv = tensor("dv");
    return bytes_of(arguments);
}

ref::Ruling FlashOperator::rule(const Call& call) const {
    const auto tensor = [&](std::string_view name) {
        const Tensor& t = call.tensor(name);
        return ref::TensorArgument{t.present, t.dtype, t.rank, t.shape};
    };
    const auto array = [&](std::size_t index) {
        const HostArray& given = call.arrays[index];
        ref::ArrayArgument argument{given.present, given.size, given.values};
        if (given.present && given.size >= 0)
            argument.values.resize(static_cast<std::size_t>(given.size));
        return argument;
    };
    ref::FlashAttentionArguments arguments;
    arguments.query = tensor("query");
    arguments.query_rope = tensor("query_rope");
    arguments.key = tensor("key");
    arguments.key_rope = tensor("key_rope");
    arguments.value = tensor("value");
    arguments.pse = tensor(gradient_ ? "pse_shift" : "real_shift");
    arguments.drop_mask = tensor("drop_mask");
    arguments.padding_mask = tensor("padding_mask");
    arguments.atten_mask = tensor("atten_mask");
    arguments.softmax_max = tensor("softmax_max");
    arguments.softmax_sum = tensor("softmax_sum");
    arguments.attention = tensor(gradient_ ? "attention_in" : "attention_out");
    arguments.prefix = array(0);
    arguments.actual_seq_q_len = array(1);
    arguments.actual_seq_kv_len = array(2);
    arguments.q_start_idx = array(3);
    arguments.kv_start_idx = array(4);
    arguments.scale_value = call.real("scale_value");
    arguments.keep_prob = call.real("keep_prob");
    arguments.pre_tokens = call.number("pre_tokens");
    arguments.next_tokens = call.number("next_tokens");
    arguments.head_num = call.number("head_num");
    arguments.input_layout = call.texts[0].value;
    arguments.softmax_layout = call.texts[1].value;
    arguments.inner_precise = call.number("inner_precise");
    arguments.sparse_mode = call.number("sparse_mode");
    arguments.pse_type = call.number("pse_type");
    if (!gradient_) return ref::rule_flash_attention_score(arguments);
    arguments.dy = tensor("dy");
    arguments.dq = tensor("dq");
    arguments.dq_rope = tensor("dq_rope");
    arguments.dk = tensor("dk");
    arguments.dk_rope = tensor("dk_rope");
    arguments.dv = tensor("dv");
    return ref::rule_flash_attention_score_grad(arguments);
}

std::string FlashOperator::describe(const Spec& spec, const std::string& tensor,
                                    const std::vector<std::int64_t>& index) const {
    const bool of_keys = tensor.starts_with("dk") || tensor == "dv" || tensor.starts_with("key") ||
                         tensor == "value";
    const char* what = of_keys ? "key" : "query";
    const auto layout = static_cast<FlashLayout>(spec.numbers[kFaLayout]);
    if (tensor.starts_with("softmax")) {
        if (layout != FlashLayout::tnd)
            return fmt::format("batch {}, head {}, query {}, lane {}", index[0], index[1], index[2],
                               index[3]);
        const FlashParts parts = parts_without_values(spec);
        const std::int64_t heads = parts.shape.query_heads;
        const std::int64_t packed = ref::statistics_order(
            parts.shape,
            parts.same_as_input)[static_cast<std::size_t>(index[0] * heads + index[1])];
        return fmt::format("number {}: query row {}, head {}, lane {}", index[0] * heads + index[1],
                           packed / heads, packed % heads, index[2]);
    }
    const std::int64_t dim =
        tensor.ends_with("rope") ? spec.numbers[kFaRope]
        : tensor == "dv" || tensor.starts_with("attention") || tensor == "value" || tensor == "dy"
            ? spec.numbers[kFaValueDim]
            : spec.numbers[kFaDim];
    switch (layout) {
        case FlashLayout::bsh:
            return fmt::format("batch {}, {} {}, head {}, channel {}", index[0], what, index[1],
                               index[2] / dim, index[2] % dim);
        case FlashLayout::sbh:
            return fmt::format("batch {}, {} {}, head {}, channel {}", index[1], what, index[0],
                               index[2] / dim, index[2] % dim);
        case FlashLayout::bsnd:
            return fmt::format("batch {}, {} {}, head {}, channel {}", index[0], what, index[1],
                               index[2], index[3]);
        case FlashLayout::bnsd:
            return fmt::format("batch {}, {} {}, head {}, channel {}", index[0], what, index[2],
                               index[1], index[3]);
        case FlashLayout::tnd:
            break;
    }
    auto starts = cumulative(spec.lists[of_keys ? 1 : 0]);
    starts.insert(starts.begin(), 0);
    const auto after = std::upper_bound(starts.begin(), starts.end(), index[0]);
    const std::size_t sequence = static_cast<std::size_t>(after - starts.begin()) - 1;
    const std::string row =
        sequence + 1 == starts.size()
            ? fmt::format("row {} beyond the last sequence", index[0])
            : fmt::format("sequence {}, {} {}", sequence, what, index[0] - starts[sequence]);
    return fmt::format("{}, head {}, channel {}", row, index[1], index[2]);
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

ref::ExpectedTensor in_layout(const FlashParts& parts, bool of_keys, std::int64_t heads,
                              std::int64_t dim, const ref::ExpectedTensor& packed) {
    const auto& lengths = of_keys ? parts.shape.kv_lengths : parts.shape.query_lengths;
    ref::ExpectedTensor out(0);
    out.value = to_layout(parts.layout, lengths, heads, dim, packed.value);
    out.bound = to_layout(parts.layout, lengths, heads, dim, packed.bound);
    out.overflow = to_layout(parts.layout, lengths, heads, dim, packed.overflow);
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

double flash_scale(std::int64_t kind, std::int64_t head_dim) {
    switch (kind) {
        case 0:
            return 1;
        case 1:
            return 1 / std::sqrt(static_cast<double>(head_dim));
        case 2:
            return 0.125;
        case 3:
            return 0;
        case 4:
            return -0.2;
        case 5:
            return 0.1;  // no fp32 number
        default:
            return 3;
    }
}

double flash_keep_prob(std::int64_t kind) {
    constexpr double kProbabilities[] = {1, 0.5, 0.9, 0.1};
    return kProbabilities[kind];
}

std::vector<double> FlashParts::query_values() const { return with_rope(*this, query, query_rope); }
std::vector<double> FlashParts::key_values() const { return with_rope(*this, key, key_rope); }

void give_reference_statistics(FlashParts& parts) {
    const ref::AttentionShape dense = parts.shape.dense();
    const auto rows = static_cast<std::size_t>(dense.query_rows * dense.query_heads);
    std::vector<double> output(rows * static_cast<std::size_t>(dense.value_dim)), row_max(rows),
        row_sum(rows);
    const auto query = parts.query_values(), key = parts.key_values(),
               value = parts.values(parts.value);
    const ref::AttentionInputs<double> in{query, key, value, parts.shape.scale,
                                          parts.shape.dropout.keep_prob};
    ref::dense_attention<double>(dense, ref::flash_columns(parts.shape), in, output, row_max,
                                 row_sum);
    parts.output.resize(output.size());
    std::transform(output.begin(), output.end(), parts.output.begin(),
                   [&](double v) { return ref::encode(parts.dtype, v); });
    parts.row_max.assign(row_max.begin(), row_max.end());
    parts.row_sum.assign(row_sum.begin(), row_sum.end());
}

FlashParts flash_shape_parts(const Spec& spec) {
    FlashParts parts = parts_without_values(spec);
    const auto& n = spec.numbers;
    const auto start = static_cast<FlashStart>(n[kFaStart]);
    if (start == FlashStart::both || start == FlashStart::query)
        parts.query_start = {{static_cast<std::int64_t>(mix(spec.seed) % 40)}};
    if (start == FlashStart::both || start == FlashStart::key)
        parts.key_start = {{static_cast<std::int64_t>(mix(spec.seed + 1) % 40)}};
    if (parts.query_start && n[kFaSparse] == 8 && n[kFaMask] != 0 && parts.key_start)
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

FlashParts flash_parts(const Spec& spec) {
    FlashParts parts = flash_shape_parts(spec);
    fill_flash_mask(spec, parts);
    fill_flash_bias(spec, parts);
    fill_flash_dropout(spec, parts);
    fill_flash_data(spec, parts);
    apply_overrides(spec, parts);
    if (!parts.gradient) return parts;
    give_reference_statistics(parts);
    if (spec.numbers[kFaStats] != 0) shift_statistics(parts);
    if (spec.numbers[kFaOut] != 0) perturb_output(parts);
    return parts;
}

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
    for (const TensorField& field : schema.tensors) {
        const std::string& name = field.name;
        const auto packed = logical_shape(name, parts);
        if (packed.size() == 1) {
            std::vector<std::uint32_t> bits;
            std::vector<std::int64_t> shape{packed[0]};
            ref::Dtype dtype = ref::Dtype::uint8;
            bool present = false;
            if (name.ends_with("shift")) {
                present = s.bias.present;
                dtype = s.bias.type >= 2 ? ref::Dtype::fp32 : parts.dtype;
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
            if (name == "atten_mask" && present && !reads_mask(s.mask.sparse_mode))
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
            name, field.output, parts.dtype, layout_shape(parts.layout, batches, length, packed),
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

ExpectedOutputs expected_of(const FlashParts& parts, const ref::RoundingClass& rounding,
                            ref::Grant grant) {
    const ref::FlashAttentionShape& s = parts.shape;
    const auto query = parts.query_values(), key = parts.key_values(),
               value = parts.values(parts.value);
    const ref::AttentionInputs<double> in{query, key, value, s.scale, s.dropout.keep_prob};
    ExpectedOutputs out;
    if (!parts.gradient) {
        auto expected = ref::expected_attention(s.dense(), ref::flash_columns(s), in, parts.dtype,
                                                rounding, grant);
        const auto lanes = [&](const ref::ExpectedTensor& rows) {
            ref::ExpectedTensor all(rows.size() * kStatisticLanes);
            const auto order = statistics_rows(parts);
            for (std::size_t i = 0; i < all.size(); ++i) {
                const auto row = static_cast<std::size_t>(order[i / kStatisticLanes]);
                all.value[i] = rows.value[row];
                all.bound[i] = rows.bound[row];
                all.overflow[i] = rows.overflow[row];
            }
            return all;
        };
        out.emplace_back("softmax_max", lanes(expected.row_max));
        out.emplace_back("softmax_sum", lanes(expected.row_sum));
        out.emplace_back("attention_out",
                         in_layout(parts, false, s.query_heads, s.value_dim, expected.output));
        return out;
    }
    const auto output = parts.values(parts.output), output_grad = parts.values(parts.output_grad);
    const std::vector<double> row_max(parts.row_max.begin(), parts.row_max.end()),
        row_sum(parts.row_sum.begin(), parts.row_sum.end());
    auto expected = ref::expected_attention_grad(s.dense(), ref::flash_columns(s),
                                                 {in, output_grad, output, row_max, row_sum},
                                                 parts.dtype, rounding, grant);
    const std::int64_t wide = s.head_dim + s.rope_dim;
    const auto part = [&](const ref::ExpectedTensor& all, bool of_keys, std::int64_t begin,
                          std::int64_t width) {
        return in_layout(parts, of_keys, of_keys ? s.kv_heads : s.query_heads, width,
                         columns_of(all, wide, begin, width));
    };
    out.emplace_back("dq", part(expected.query_grad, false, 0, s.head_dim));
    if (s.rope_dim > 0)
        out.emplace_back("dq_rope", part(expected.query_grad, false, s.head_dim, s.rope_dim));
    out.emplace_back("dk", part(expected.key_grad, true, 0, s.head_dim));
    if (s.rope_dim > 0)
        out.emplace_back("dk_rope", part(expected.key_grad, true, s.head_dim, s.rope_dim));
    out.emplace_back("dv", in_layout(parts, true, s.kv_heads, s.value_dim, expected.value_grad));
    return out;
}

std::unique_ptr<Operator> make_flash_attention_score() {
    return std::make_unique<FlashOperator>(false);
}
std::unique_ptr<Operator> make_flash_attention_score_grad() {
    return std::make_unique<FlashOperator>(true);
}

std::vector<Property> flash_properties(bool gradient) {
    std::vector<Property> list;
    add_flash_agreement(list, gradient);
    add_flash_validation(list, gradient);
    if (gradient)
        add_flash_gradient_relations(list);
    else
        add_flash_forward_relations(list);
    return list;
}

}  // namespace attncheck::properties
