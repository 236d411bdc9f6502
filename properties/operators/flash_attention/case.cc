// The operators: fields, legality, shrinking, and where an element of an output belongs.
#include "properties/operators/flash_attention/case.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace attncheck::properties {
namespace {

constexpr std::int64_t kLongest = 1 << 20;         ///< 1 Mi
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
        schema.numbers.push_back({"result", 0, 2, 1, 0, {"fp16", "bf16", "fp32"}});
        schema.numbers[kFaDtype].names.insert(schema.numbers[kFaDtype].names.end(),
                                              {"fp8_e5m2", "fp8_e4m3fn"});
        schema.numbers[kFaDtype].max = 4;
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

class FlashOperator final : public Operator {
public:
    explicit FlashOperator(bool gradient)
        : gradient_(gradient),
          schema_(make_schema(gradient)),
          properties_(flash_properties(gradient)),
          required_(flash_required_classes(gradient)) {
        schema_.pack_by_hand = [gradient](auto&&... of) { return pack_flash(of..., gradient); };
        schema_.rule_by_hand = [gradient](const Call& call) { return rule_flash(call, gradient); };
        schema_.describe_by_hand = [this](auto&&... of) { return describe(of...); };
    }

    const Schema& schema() const override { return schema_; }
    const std::vector<Property>& properties() const override { return properties_; }
    const std::vector<RequiredClass>& required_classes() const override { return required_; }
    std::vector<std::string> labels(const Spec& spec) const override { return flash_labels(spec); }
    Spec draw(Random& random, int size, Profile profile) const override {
        return sample_flash(schema_, random, size, profile);
    }

    std::optional<std::string> illegal(const Spec& spec) const override;
    std::vector<Spec> joint_shrinks(const Spec& spec) const override;
    void carry_overrides(const Spec& from, Spec& to, const std::vector<int>& kept) const override;

    std::vector<std::vector<std::int64_t>> shapes(const Spec& spec) const override {
        const FlashParts parts = flash_shape_parts(spec);
        std::vector<std::vector<std::int64_t>> out;
        for (const TensorField& field : schema_.tensors)
            out.push_back(flash_logical_shape(field.name, parts));
        return out;
    }

    Call build(const Spec& spec) const override {
        Call call = make_flash_call(flash_parts(spec));
        lay_out(spec, call);
        for (const Edit& edit : spec.edits)
            if (is_flash_claim(print(edit)))
                apply_flash_claim(print(edit), spec, call);
            else
                apply_edit(call, edit);
        return call;
    }

    Call outline(const Spec& spec) const override {
        Call call = make_flash_call(flash_shape_parts(spec));
        lay_out(spec, call);
        return call;
    }

    std::vector<Spec> large_cases(std::int64_t length, std::uint64_t seed) const override {
        return flash_large_cases(schema_, length, seed);
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
                if (parts.shape.bias.type >= 2)
                    dtype = ref::Dtype::fp32;
                else
                    dtype = parts.result;
            } else if (name == "drop_mask" || name == "atten_mask") {
                const auto& bytes =
                    name == "drop_mask" ? parts.shape.dropout.bytes : parts.shape.mask.values;
                bits.assign(bytes.begin(), bytes.end());
                dtype = ref::Dtype::uint8;
            }
            out.push_back(make_tensor(name, field.output, dtype, flash_logical_shape(name, parts),
                                      std::move(bits)));
        }
        return out;
    }

    std::string describe(const Spec& spec, const std::string& tensor,
                         const std::vector<std::int64_t>& index) const;

private:
    static void lay_out(const Spec& spec, Call& call) {
        for (std::size_t i = 0; i < call.tensors.size(); ++i)
            if (!call.tensors[i].shared_bytes)
                call.tensors[i].strides =
                    strides_for(spec.layouts[i], call.tensors[i].buffer_shape);
    }
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
    if (auto reason = number_outside(schema_, spec.numbers)) return reason;
    if (auto reason = illegal_sizes(spec)) return reason;
    const bool tnd = n[kFaLayout] == static_cast<std::int64_t>(FlashLayout::tnd);
    const auto pse = static_cast<FlashPse>(n[kFaPse]);
    if (n[kFaMask] == 0 &&
        (n[kFaMaskForm] != 0 || n[kFaTokens] != 0 || n[kFaPre] != 0 || n[kFaNext] != 0))
        return "mask_form, tokens, pre and next need a mask";
    if (!flash_reads_mask(n[kFaSparse]) && n[kFaMaskForm] != 0)
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
    if (flash_is_fp8(spec) && !has_fp8(spec.profile))
        return "dtype fp8_e5m2 and fp8_e4m3fn need --profile ascend950";
    if (gradient_ && n[kFaResult] != 0 && !flash_is_fp8(spec))
        return "result is for fp8: otherwise the gradients have the dtype of the query";
    if (!tnd && n[kFaOrder] != 0) return "stats_order is for TND";
    for (std::size_t i = 0; i < schema_.tensors.size(); ++i) {
        const Layout layout = spec.layouts[i];
        if (layout == Layout::broadcast ||
            (schema_.tensors[i].output && layout == Layout::reversed) ||
            (schema_.tensors[i].name == "atten_mask" && layout != Layout::dense &&
             !flash_reads_mask(n[kFaSparse])))
            return fmt::format("{}.layout={} is not possible", schema_.tensors[i].name,
                               name_of(layout));
    }
    if (auto reason = illegal_overrides(spec)) return reason;
    // The documented rules, on the arguments without their elements.
    Spec plain = spec;
    plain.overrides.clear();
    plain.edits.clear();
    plain.recipe = Recipe::zeros;
    const ref::Ruling ruling = properties::rule(make_flash_call(flash_shape_parts(plain)));
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
    const FlashParts parts = flash_shape_parts(spec);
    for (const TensorField& field : schema_.tensors)
        if (flash_elements(flash_logical_shape(field.name, parts)) > kLargestElement)
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
        if (name.ends_with("shift") &&
            flash_is_compressed(static_cast<FlashPse>(spec.numbers[kFaPse])))
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
    if (flash_is_fp8(spec))
        with([](Spec& to) { to.numbers[kFaDtype] = to.numbers[kFaResult] = 0; });
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
    with([](Spec& to) {  // kv heads become members of one group
        to.numbers[kFaGroup] *= std::exchange(to.numbers[kFaKvHeads], 1);
    });
    with([](Spec& to) {  // heads become queries
        const std::int64_t heads = std::exchange(to.numbers[kFaKvHeads], 1) *
                                   std::exchange(to.numbers[kFaGroup], 1);
        for (auto& length : to.lists[0]) length *= heads;
    });
    with([](Spec& to) {  // 1/sqrt(1) is no scale: another one shows the same
        to.numbers[kFaDim] = to.numbers[kFaValueDim] = 1;
        to.numbers[kFaRope] = 0;
        to.numbers[kFaScale] = static_cast<std::int64_t>(ScaleKind::eighth);
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
        if (follow_sequence(ref, from.lists[list], to.lists[list], kept) && is_inside(ref, shape))
            to.overrides[ref] = value;
    }
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
        const FlashParts parts = flash_shape_parts(spec);
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
    const auto starts = row_starts(spec.lists[of_keys ? 1 : 0]);
    const auto after = std::upper_bound(starts.begin(), starts.end(), index[0]);
    const std::size_t sequence = static_cast<std::size_t>(after - starts.begin()) - 1;
    const std::string row =
        sequence + 1 == starts.size()
            ? fmt::format("row {} beyond the last sequence", index[0])
            : fmt::format("sequence {}, {} {}", sequence, what, index[0] - starts[sequence]);
    return fmt::format("{}, head {}, channel {}", row, index[1], index[2]);
}

}  // namespace

std::unique_ptr<Operator> make_flash_attention_score() {
    return std::make_unique<FlashOperator>(false);
}
std::unique_ptr<Operator> make_flash_attention_score_grad() {
    return std::make_unique<FlashOperator>(true);
}

std::vector<Property> flash_properties(bool gradient) {
    std::vector<Property> list;
    add_flash_agreement(list, gradient);
    add_flash_tiers(list);
    add_flash_validation(list, gradient);
    if (gradient)
        add_flash_gradient_relations(list);
    else
        add_flash_forward_relations(list);
    add_flash_sampled(list);
    // Relations change data by steps that fp8 does not have; what is compared with the reference
    // runs on it too.
    for (Property& property : list) {
        constexpr std::string_view kOnAnyType[] = {"agreement",  "non_finite",         "memory",
                                                   "repeatable", "concurrent",         "history",
                                                   "validation", "validation_combined"};
        if (std::find(std::begin(kOnAnyType), std::end(kOnAnyType), property.name) !=
            std::end(kOnAnyType))
            continue;
        property.domain = [inner = property.domain](const Spec& spec) {
            return !flash_is_fp8(spec) && (!inner || inner(spec));
        };
    }
    return list;
}

}  // namespace attncheck::properties
