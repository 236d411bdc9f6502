#include "properties/operators/nsa_module/case.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "properties/operators/catalogue.h"
#include "properties/operators/nsa_module/operators.h"

namespace attncheck::properties {
namespace nsa_module {
namespace {

constexpr std::int64_t kLongest = 4096;  ///< a module case is meant to be small

Schema make_schema() {
    Schema schema;
    schema.op = "nsa_module";
    schema.numbers = {
        {"dtype", 0, 1, 1, -1, {"fp16", "bf16"}},
        {"kv_heads", 1, 16, 1, -1, {}},
        {"group", 1, 16, 1, -1, {}},
        {"dim", 128, 192, 64, -1, {}},
        {"value_dim", 128, 192, 64, -1, {}},
        {"block", 16, 128, 16, -1, {}},
        {"stride", 16, 128, 16, -1, {}},
        {"select", 16, 128, 16, -1, {}},
        {"count", 1, 32, 1, -1, {}},
        {"window", 1, kLongest, 1, -1, {}},
        {"tied", 0, 1, 1, 0, {"no", "yes"}},
        {"forced", 0, 1, 1, 0, {"no", "yes"}},
        {"gates", 0, 5, 1, 0, {"half", "random", "compress", "select", "window", "closed"}},
        {"weights", 0, 2, 1, 0, {"recipe", "onehot", "mean"}},
        {"logits", 0, 1, 1, 0, {"plain", "lattice"}},
        {"scale", 0, 6, 1, 0, {"one", "rsqrt", "eighth", "zero", "negative", "tenth", "large"}},
        {"beyond", 0, kLongest, 1, 0, {}}};
    schema.lists = {{"seq", 0, kLongest, 64}};
    for (int input = 0; input < kInputs; ++input)
        schema.tensors.push_back({input_names()[static_cast<std::size_t>(input)],
                                  input == kKeyWeight || input == kValueWeight ? 2 : 3});
    schema.tensors.push_back({"attention_out", 3, true});
    for (int input = 0; input < kOutputGrad; ++input)
        schema.tensors.push_back(
            {std::string(input_names()[static_cast<std::size_t>(input)]) + "_grad",
             input == kKeyWeight || input == kValueWeight ? 2 : 3, true});
    return schema;
}

bool is_tied_input(int input) { return input >= kKeySelect && input <= kValueWindow; }

class ModuleOperator final : public Operator {
public:
    ModuleOperator() : schema_(make_schema()), required_(nsa_module::required_classes()) {
        add_agreement(properties_);
        add_relations(properties_);
        add_handover(properties_);
        schema_.describe_by_hand = [this](auto&&... of) { return describe(of...); };
    }

    const Schema& schema() const override { return schema_; }
    std::vector<std::string> entry_points() const override { return module_operators(); }
    const std::vector<Property>& properties() const override { return properties_; }
    const std::vector<RequiredClass>& required_classes() const override { return required_; }
    std::vector<std::string> labels(const Spec& spec) const override { return labels_of(spec); }
    Spec draw(Random& random, int size, Profile) const override {
        return nsa_module::sample(schema_, random, size);
    }
    std::optional<std::string> illegal(const Spec& spec) const override;
    std::vector<Spec> joint_shrinks(const Spec& spec) const override;
    void carry_overrides(const Spec& from, Spec& to, const std::vector<int>& kept) const override;
    std::vector<std::vector<std::int64_t>> shapes(const Spec& spec) const override;
    Call build(const Spec& spec) const override {
        if (!spec.edits.empty())
            throw std::invalid_argument("case: nsa_module has no arguments to break");
        return make_call(parts_of(spec));
    }
    std::string describe(const Spec& spec, const std::string& tensor,
                         const std::vector<std::int64_t>& index) const;

private:
    Schema schema_;
    std::vector<Property> properties_;
    std::vector<RequiredClass> required_;
};

std::optional<std::string> ModuleOperator::illegal(const Spec& spec) const {
    const auto& n = spec.numbers;
    if (auto reason = number_outside(schema_, spec.numbers)) return reason;
    if (n[kValueDim] > n[kDim]) return "value_dim is larger than dim";
    if (n[kGroup] & (n[kGroup] - 1))
        return fmt::format("group={} must be one of 1, 2, 4, 8, 16", n[kGroup]);
    if (n[kStride] > n[kBlock])
        return fmt::format("stride={} must be at most block={}", n[kStride], n[kBlock]);
    if (n[kStride] == n[kBlock] && n[kBlock] > 112)
        return fmt::format("block={} equal to stride must be at most 112", n[kBlock]);
    if (n[kSelect] < n[kBlock] || n[kSelect] % n[kStride] != 0)
        return fmt::format("select={} must be a multiple of stride={} and at least block={}",
                           n[kSelect], n[kStride], n[kBlock]);
    if (spec.lists[0].empty()) return "seq needs one sequence at least";
    std::int64_t tokens = n[kBeyond];
    for (const std::int64_t length : spec.lists[0]) {
        if (length < 0 || length > kLongest)
            return fmt::format("seq holds {}, a length must be in 0..{}", length, kLongest);
        tokens += length;
    }
    if (tokens < 1) return "seq and beyond: at least one token is needed";
    if (spec.recipe >= Recipe::spiky)
        return fmt::format(
            "data={} may leave the range of a tensor that one operator hands to the next; "
            "allowed: zeros ones ints onehot signs normal cancelling",
            name_of(spec.recipe));
    for (std::size_t i = 0; i < schema_.tensors.size(); ++i)
        if (spec.layouts[i] != Layout::dense)
            return fmt::format("{}.layout={}: layouts are for single operators",
                               schema_.tensors[i].name, name_of(spec.layouts[i]));
    const auto extents = shapes(spec);
    for (const auto& [ref, value] : spec.overrides)
        if (!is_inside(ref, extents[static_cast<std::size_t>(ref.tensor)]))
            return fmt::format("set names an element outside {}",
                               schema_.tensors[static_cast<std::size_t>(ref.tensor)].name);
    return std::nullopt;
}

std::vector<Spec> ModuleOperator::joint_shrinks(const Spec& spec) const {
    std::vector<Spec> out;
    const auto& n = spec.numbers;
    const auto with_windows = [&](std::int64_t l, std::int64_t d, std::int64_t select) {
        Spec to = spec;
        to.numbers[kBlock] = l;
        to.numbers[kStride] = d;
        to.numbers[kSelect] = select;
        out.push_back(to);
        // The same number of whole blocks, with as many tokens behind them as fit.
        for (auto& length : to.lists[0])
            length = length / n[kSelect] * select + std::min(length % n[kSelect], select - 1);
        out.push_back(to);
    };
    for (std::int64_t d = 16; d <= n[kStride]; d += 16)
        for (std::int64_t l = d; l <= n[kBlock]; l += 16)
            for (std::int64_t select = (l + d - 1) / d * d; select <= n[kSelect]; select += d)
                if (l != n[kBlock] || d != n[kStride] || select != n[kSelect])
                    with_windows(l, d, select);
    for (std::int64_t group = 1; group < n[kGroup]; group *= 2) {
        Spec to = spec;
        to.numbers[kGroup] = group;
        out.push_back(to);
    }
    Spec narrow = spec;
    narrow.numbers[kDim] = narrow.numbers[kValueDim] = 128;
    out.push_back(narrow);
    return out;
}

void ModuleOperator::carry_overrides(const Spec& from, Spec& to,
                                     const std::vector<int>& kept) const {
    to.overrides.clear();
    const auto extents = shapes(to);
    for (const auto& [from_ref, value] : from.overrides) {
        ElementRef ref = from_ref;
        const bool of_tokens = ref.tensor != kKeyWeight && ref.tensor != kValueWeight;
        if (of_tokens && !follow_sequence(ref, from.lists[0], to.lists[0], kept)) continue;
        if (is_inside(ref, extents[static_cast<std::size_t>(ref.tensor)]))
            to.overrides[ref] = value;
    }
}

std::vector<std::vector<std::int64_t>> ModuleOperator::shapes(const Spec& spec) const {
    const Parts parts = parts_without_values(spec);
    std::vector<std::vector<std::int64_t>> out;
    for (int input = 0; input < kInputs; ++input) out.push_back(parts.shape_of(input));
    out.push_back(parts.shape_of(kOutputGrad));
    for (int input = 0; input < kOutputGrad; ++input) out.push_back(parts.shape_of(input));
    return out;
}

std::string ModuleOperator::describe(const Spec& spec, const std::string& tensor,
                                     const std::vector<std::int64_t>& at) const {
    if (tensor.starts_with("key_weight") || tensor.starts_with("value_weight"))
        return fmt::format("offset {}, head {}", at[0], at[1]);
    std::vector<std::int64_t> lengths = spec.lists[0];
    const bool of_blocks = tensor.find("_blocks") != std::string::npos;
    if (of_blocks)
        for (auto& length : lengths)
            length = parts_without_values(spec).shape.compress(1).blocks_of(length);
    const auto starts = row_starts(lengths);
    const auto after = std::upper_bound(starts.begin(), starts.end(), at[0]);
    const std::size_t sequence = static_cast<std::size_t>(after - starts.begin()) - 1;
    std::string text = sequence + 1 == starts.size()
                           ? fmt::format("row {} beyond the last sequence", at[0])
                           : fmt::format("sequence {}, {} {}", sequence,
                                         of_blocks ? "block" : "token", at[0] - starts[sequence]);
    text += fmt::format(", head {}", at[1]);
    if (at.size() < 3) return text;
    if (tensor.starts_with("gate_logits")) {
        constexpr const char* kNames[] = {"compress", "select", "window"};
        return text + fmt::format(", {} branch", kNames[at[2]]);
    }
    return text + fmt::format(", {} {}", tensor == "topk_indices" ? "entry" : "channel", at[2]);
}

}  // namespace

const std::array<const char*, kInputs>& input_names() {
    static const std::array<const char*, kInputs> names{
        "query",        "key_compress", "value_compress",    "key_select",
        "value_select", "key_window",   "value_window",      "key_weight",
        "value_weight", "gate_logits",  "attention_out_grad"};
    return names;
}

std::vector<std::int64_t> Parts::shape_of(int input) const {
    const ref::NsaModuleShape& s = shape;
    if (input == kQuery) return {s.tokens, s.query_heads, s.head_dim};
    if (input == kKeyWeight || input == kValueWeight) return {s.block, s.kv_heads};
    if (input == kGateLogits) return {s.tokens, s.query_heads, 3};
    if (input == kOutputGrad) return {s.tokens, s.query_heads, s.value_dim};
    if (tied && is_tied_input(input)) return {0, s.kv_heads, 0};
    const bool key = input == kKeyCompress || input == kKeySelect || input == kKeyWindow;
    return {s.tokens, s.kv_heads, key ? s.head_dim : s.value_dim};
}

Parts parts_without_values(const Spec& spec) {
    Parts parts;
    const auto& n = spec.numbers;
    parts.dtype = n[kDtype] == 0 ? ref::Dtype::fp16 : ref::Dtype::bf16;
    parts.tied = n[kTied] != 0;
    parts.forced = n[kForced] != 0;
    parts.scale = scale_of(static_cast<ScaleKind>(n[kScale]), n[kDim]);
    ref::NsaModuleShape& s = parts.shape;
    s.lengths = spec.lists[0];
    s.tokens = std::accumulate(spec.lists[0].begin(), spec.lists[0].end(), n[kBeyond]);
    s.kv_heads = n[kKvHeads];
    s.query_heads = n[kKvHeads] * n[kGroup];
    s.head_dim = n[kDim];
    s.value_dim = n[kValueDim];
    s.block = n[kBlock];
    s.stride = n[kStride];
    s.select_block = n[kSelect];
    s.select_count = n[kCount];
    s.window = n[kWindow];
    s.scale = static_cast<float>(parts.scale);
    return parts;
}

Parts parts_of(const Spec& spec) {
    Parts parts = parts_without_values(spec);
    fill_data(spec, parts);
    for (const auto& [ref, value] : spec.overrides) {
        const auto shape = parts.shape_of(ref.tensor);
        std::int64_t offset = 0;
        for (std::size_t dim = 0; dim < shape.size(); ++dim)
            offset = offset * shape[dim] + ref.index[dim];
        parts.set(ref.tensor, static_cast<std::size_t>(offset), value);
    }
    return parts;
}

Call make_call(const Parts& parts) {
    Call call;
    call.op = "nsa_module";
    call.description = &find_operator(call.op)->schema();
    const auto add = [&](const std::string& name, int input, bool output) {
        call.tensors.push_back(make_tensor(
            name, output, parts.type_of(input), parts.shape_of(input),
            output ? std::vector<std::uint32_t>{} : parts.bits[static_cast<std::size_t>(input)]));
        call.tensors.back().present = !(parts.tied && is_tied_input(input));
    };
    for (int input = 0; input < kInputs; ++input)
        add(input_names()[static_cast<std::size_t>(input)], input, false);
    add("attention_out", kOutputGrad, true);
    for (int input = 0; input < kOutputGrad; ++input)
        add(std::string(input_names()[static_cast<std::size_t>(input)]) + "_grad", input, true);
    const ref::NsaModuleShape& s = parts.shape;
    call.arrays = {{"actual_seq_len", true, std::ssize(s.lengths), cumulative(s.lengths)}};
    call.numbers = {{"compress_block_size", s.block},
                    {"compress_stride", s.stride},
                    {"select_block_size", s.select_block},
                    {"select_block_count", s.select_count},
                    {"window_size", s.window},
                    {"force_blocks", parts.forced}};
    call.reals = {{"scale_value", parts.scale}};
    return call;
}

}  // namespace nsa_module

std::unique_ptr<Operator> make_nsa_module() {
    return std::make_unique<nsa_module::ModuleOperator>();
}

}  // namespace attncheck::properties
