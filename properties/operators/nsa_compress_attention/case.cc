// The operator: fields, legality, shrinking, the C struct and the documented ruling.
#include "properties/operators/nsa_compress_attention/case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

namespace attncheck::properties {
namespace compress_attention {
namespace {

constexpr std::int64_t kLongestQuery = 1 << 17, kLongestCmp = 14000;
constexpr std::int64_t kGroupLanes = 128;  ///< a group divides it

Schema make_schema() {
    Schema schema;
    schema.op = "nsa_compress_attention";
    schema.parallel_lists = true;
    schema.numbers = {
        {"dtype", 0, 1, 1, -1, {"fp16", "bf16"}},
        {"kv_heads", 1, 128, 1, -1, {}},
        {"group", 1, 64, 1, -1, {}},
        {"dim", 1, 768, 1, -1, {}},
        {"value_dim", 1, 768, 1, -1, {}},
        {"block", 16, 128, 16, -1, {}},
        {"stride", 16, 64, 16, -1, {}},
        {"select", 16, 128, 16, -1, {}},
        {"count", 1, 32, 1, -1, {}},
        {"mask", 0, 2, 1, 0, {"absent", "bool", "uint8"}},
        {"hides", 0, 4, 1, 0, {"random", "causal", "ramp", "all", "striped"}},
        {"topk_mask", 0, 2, 1, 0, {"absent", "bool", "uint8"}},
        {"forces", 0, 4, 1, 0, {"random", "paper", "most", "last", "all"}},
        {"sparse", 0, 1, 1, 0, {}},
        {"scale", 0, 6, 1, 0, {"one", "rsqrt", "eighth", "zero", "negative", "tenth", "large"}},
        {"logits",
         0,
         8,
         1,
         0,
         {"plain", "equal", "dominant", "single", "minus40", "minus120", "minus300", "plus300",
          "minus20000"}},
        {"beyond_q", 0, kLongestQuery, 1, 0, {}},
        {"beyond_cmp", 0, kLongestQuery, 1, 0, {}}};
    schema.lists = {{"q", 0, kLongestQuery, 1024}, {"cmp", 0, kLongestCmp, 1024}};
    schema.tensors = {{"query", 3},
                      {"key", 3},
                      {"value", 3},
                      {"atten_mask", 2, false, false, true},
                      {"topk_mask", 2, false, false, true},
                      {"softmax_max", 3, true},
                      {"softmax_sum", 3, true},
                      {"attention_out", 3, true},
                      {"topk_indices", 3, true}};
    return schema;
}

std::int64_t keys_per_select(const Spec& spec) {
    return spec.numbers[kSelect] / spec.numbers[kStride];
}

/// ceil(Cmp / M).
std::int64_t select_blocks(const Spec& spec, std::int64_t cmp) {
    const std::int64_t keys = keys_per_select(spec);
    return (cmp + keys - 1) / keys;
}

class CompressAttentionOperator final : public Operator {
public:
    CompressAttentionOperator()
        : schema_(make_schema()), required_(compress_attention::required_classes()) {
        add_agreement(properties_);
        add_tiers(properties_);
        add_validation(properties_);
        add_relations(properties_);
        add_list_relations(properties_);
        add_sampled(properties_);
        schema_.pack_by_hand = [this](auto&&... of) { return pack(of...); };
        schema_.rule_by_hand = [this](const Call& call) { return rule(call); };
        schema_.describe_by_hand = [this](auto&&... of) { return describe(of...); };
    }

    const Schema& schema() const override { return schema_; }
    const std::vector<Property>& properties() const override { return properties_; }
    const std::vector<RequiredClass>& required_classes() const override { return required_; }
    std::vector<std::string> labels(const Spec& spec) const override { return labels_of(spec); }
    Spec draw(Random& random, int size, Profile) const override {
        return compress_attention::sample(schema_, random, size);
    }

    std::vector<Spec> large_cases(std::int64_t length, std::uint64_t seed) const override {
        return compress_attention::large_cases(schema_, length, seed);
    }

    std::optional<std::string> illegal(const Spec& spec) const override;
    std::vector<Spec> joint_shrinks(const Spec& spec) const override;
    void carry_overrides(const Spec& from, Spec& to, const std::vector<int>& kept) const override;

    std::vector<std::vector<std::int64_t>> shapes(const Spec& spec) const override {
        return shapes_of(schema_, parts_without_values(spec));
    }

    Call build(const Spec& spec) const override { return build_call(spec); }
    std::vector<std::byte> pack(const Call& call, const std::vector<attncheck_tensor>& tensors,
                                const std::vector<attncheck_int_array>& arrays,
                                const std::vector<const char*>& texts) const;
    ref::Ruling rule(const Call& call) const;
    std::string describe(const Spec& spec, const std::string& tensor,
                         const std::vector<std::int64_t>& index) const;

private:
    std::optional<std::string> illegal_lengths(const Spec& spec) const;
    std::optional<std::string> illegal_elements(const Spec& spec) const;

    Schema schema_;
    std::vector<Property> properties_;
    std::vector<RequiredClass> required_;
};

std::optional<std::string> CompressAttentionOperator::illegal(const Spec& spec) const {
    const auto& n = spec.numbers;
    if (auto reason = number_outside(schema_, spec.numbers)) return reason;
    if (spec.lists[0].empty() || spec.lists[0].size() != spec.lists[1].size())
        return "q and cmp need the same number of sequences, at least one";
    if (kGroupLanes % n[kGroup] != 0)
        return fmt::format("group={} must be one of 1, 2, 4, 8, 16, 32, 64", n[kGroup]);
    if (n[kValueDim] > n[kDim]) return "value_dim is larger than dim";
    if (n[kStride] > n[kBlock])
        return fmt::format("stride={} must be at most block={}", n[kStride], n[kBlock]);
    if (n[kSelect] < n[kBlock] || n[kSelect] % n[kStride] != 0)
        return fmt::format("select={} must be a multiple of stride={} and at least block={}",
                           n[kSelect], n[kStride], n[kBlock]);
    if (n[kHides] != 0 && n[kMask] == 0) return "hides needs a mask";
    if (n[kForces] != 0 && n[kTopkMask] == 0) return "forces needs a topk_mask";
    if (auto reason = illegal_lengths(spec)) return reason;
    return illegal_elements(spec);
}

std::optional<std::string> CompressAttentionOperator::illegal_lengths(const Spec& spec) const {
    const auto& n = spec.numbers;
    std::int64_t queries = n[kBeyondQ], keys = n[kBeyondCmp];
    for (std::size_t b = 0; b < spec.lists[0].size(); ++b) {
        const std::int64_t q = spec.lists[0][b], cmp = spec.lists[1][b];
        if (q < 0 || q > kLongestQuery || cmp < 0 || cmp > kLongestCmp)
            return fmt::format("a q length is outside 0..{} or a cmp length outside 0..{}",
                               kLongestQuery, kLongestCmp);
        if ((q > 0 || cmp > 0) && select_blocks(spec, cmp) < n[kCount])
            return fmt::format(
                "cmp length {} must give at least count={} selection blocks of {} keys, unless the "
                "sequence is empty",
                cmp, n[kCount], keys_per_select(spec));
        queries += q;
        keys += cmp;
    }
    if (queries < 1 || keys < 1)
        return "q and beyond_q, cmp and beyond_cmp: at least one row of each is needed";
    if (queries > 1 << 21 || keys > 1 << 21) return "more than 2 Mi rows";
    for (std::size_t i = 0; i < schema_.tensors.size(); ++i) {
        const TensorField& field = schema_.tensors[i];
        const Layout layout = spec.layouts[i];
        if (field.output && (layout == Layout::reversed || layout == Layout::broadcast))
            return fmt::format("{}.layout={} is not possible", field.name, name_of(layout));
    }
    return std::nullopt;
}

std::optional<std::string> CompressAttentionOperator::illegal_elements(const Spec& spec) const {
    if (spec.overrides.empty()) return std::nullopt;
    const auto extents = shapes(spec);
    const int atten = schema_.tensor("atten_mask"), topk = schema_.tensor("topk_mask");
    for (const auto& [ref, value] : spec.overrides) {
        const auto& shape = extents[static_cast<std::size_t>(ref.tensor)];
        for (std::size_t dim = 0; dim < shape.size(); ++dim)
            if (ref.index[dim] >= shape[dim])
                return fmt::format("set names an element outside {}",
                                   schema_.tensors[static_cast<std::size_t>(ref.tensor)].name);
        if (ref.tensor != atten && ref.tensor != topk) continue;
        const std::int64_t kind = spec.numbers[ref.tensor == atten ? kMask : kTopkMask];
        const double most = kind == static_cast<std::int64_t>(MaskKind::boolean) ? 1 : 255;
        if (!(value >= 0 && value <= most)) return "set gives a mask a value it cannot hold";
    }
    return std::nullopt;
}

std::vector<Spec> CompressAttentionOperator::joint_shrinks(const Spec& spec) const {
    std::vector<Spec> out;
    const auto& n = spec.numbers;
    const std::int64_t count = n[kCount], keys = keys_per_select(spec);
    // Other block sizes and counts: as few keys as there may be, the same selection blocks and
    // rest, or the same keys.
    enum class Keeps { nothing, blocks, length };
    const auto with = [&](std::int64_t l, std::int64_t d, std::int64_t select, std::int64_t c,
                          Keeps keeps) {
        Spec to = spec;
        to.numbers[kBlock] = l;
        to.numbers[kStride] = d;
        to.numbers[kSelect] = select;
        to.numbers[kCount] = c;
        const std::int64_t m = select / d, least = (c - 1) * m + 1;
        for (auto& length : to.lists[1]) {
            if (length == 0) continue;
            const std::int64_t blocks = select_blocks(spec, length),
                               last = std::min(length - (blocks - 1) * keys, m);
            length = keeps == Keeps::nothing  ? least
                     : keeps == Keeps::blocks ? (blocks - 1) * m + last
                                              : std::max(length, least);
        }
        out.push_back(std::move(to));
    };
    const auto with_all = [&](std::int64_t l, std::int64_t d, std::int64_t select, std::int64_t c) {
        for (const Keeps keeps : {Keeps::nothing, Keeps::blocks, Keeps::length})
            with(l, d, select, c, keeps);
    };
    std::vector<std::int64_t> strides{16, 32, n[kStride]};  // 32: blocks that are no multiple
    strides.erase(std::unique(strides.begin(), strides.end()), strides.end());
    for (std::int64_t l = 16; l <= n[kBlock]; l += 16)
        for (const std::int64_t d : strides)
            for (std::int64_t select = (l + d - 1) / d * d; select <= n[kSelect]; select += d) {
                if (d > l || d > n[kStride]) continue;
                if (count > 1) with_all(l, d, select, 1);
                if (l != n[kBlock] || d != n[kStride] || select != n[kSelect])
                    with_all(l, d, select, count);
            }
    for (const std::int64_t c : {std::int64_t{2}, (count + 1) / 2, count - 1})
        if (c > 1 && c < count) with_all(n[kBlock], n[kStride], n[kSelect], c);
    for (std::int64_t g = 1; g < n[kGroup]; g *= 2) {
        Spec to = spec;
        to.numbers[kGroup] = g;
        out.push_back(to);
    }
    for (const std::int64_t dim : {n[kDim] / 2, n[kDim] - 1, n[kValueDim]}) {
        if (dim < 1) continue;
        Spec to = spec;
        to.numbers[kDim] = dim;
        to.numbers[kValueDim] = std::min(dim, n[kValueDim]);
        out.push_back(to);
    }
    for (const auto& [kind, contents] : {std::pair{kMask, kHides}, std::pair{kTopkMask, kForces}}) {
        Spec to = spec;
        to.numbers[kind] = to.numbers[contents] = 0;
        out.push_back(to);
    }
    for (std::size_t b = 0; b < spec.lists[0].size(); ++b) {  // an empty sequence, or the least
        Spec to = spec;
        to.lists[0][b] = to.lists[1][b] = 0;
        out.push_back(to);
        if (spec.lists[1][b] == 0) continue;
        to = spec;
        to.lists[1][b] = (count - 1) * keys + 1;
        out.push_back(to);
        to.lists[0][b] = std::min<std::int64_t>(spec.lists[0][b], 1);
        out.push_back(to);
    }
    // Rows behind the last sequence become part of it, kv heads become members of one group.
    for (const auto& [list, beyond] : {std::pair{0, kBeyondQ}, std::pair{1, kBeyondCmp}}) {
        Spec to = spec;
        to.lists[static_cast<std::size_t>(list)].back() += std::exchange(to.numbers[beyond], 0);
        out.push_back(std::move(to));
    }
    Spec to = spec;
    to.numbers[kGroup] *= std::exchange(to.numbers[kKvHeads], 1);
    out.push_back(std::move(to));
    return out;
}

void CompressAttentionOperator::carry_overrides(const Spec& from, Spec& to,
                                                const std::vector<int>& kept) const {
    to.overrides.clear();
    const auto extents = shapes(to);
    for (const auto& [from_ref, value] : from.overrides) {
        ElementRef ref = from_ref;
        const std::string& name = schema_.tensors[static_cast<std::size_t>(ref.tensor)].name;
        if (!name.ends_with("mask")) {
            const std::size_t list = name == "query" ? 0 : 1;
            if (!follow_sequence(ref, from.lists[list], to.lists[list], kept)) continue;
        }
        if (is_inside(ref, extents[static_cast<std::size_t>(ref.tensor)]))
            to.overrides[ref] = value;
    }
}

std::vector<std::byte> CompressAttentionOperator::pack(
    const Call& call, const std::vector<attncheck_tensor>& tensors,
    const std::vector<attncheck_int_array>& arrays, const std::vector<const char*>& texts) const {
    const auto tensor = [&](std::string_view name) { return tensors[tensor_index(call, name)]; };
    attncheck_nsa_compress_attention_args arguments{};
    arguments.query = tensor("query");
    arguments.key = tensor("key");
    arguments.value = tensor("value");
    arguments.atten_mask = tensor("atten_mask");
    arguments.topk_mask = tensor("topk_mask");
    arguments.actual_seq_q_len = arrays[0];
    arguments.actual_cmp_seq_kv_len = arrays[1];
    arguments.actual_sel_seq_kv_len = arrays[2];
    arguments.scale_value = call.real("scale_value");
    arguments.head_num = call.number("head_num");
    arguments.input_layout = texts[0];
    arguments.sparse_mode = call.number("sparse_mode");
    arguments.compress_block_size = call.number("compress_block_size");
    arguments.compress_stride = call.number("compress_stride");
    arguments.select_block_size = call.number("select_block_size");
    arguments.select_block_count = call.number("select_block_count");
    arguments.softmax_max = tensor("softmax_max");
    arguments.softmax_sum = tensor("softmax_sum");
    arguments.attention_out = tensor("attention_out");
    arguments.topk_indices = tensor("topk_indices");
    std::vector<std::byte> bytes(sizeof arguments);
    std::memcpy(bytes.data(), &arguments, sizeof arguments);
    return bytes;
}

ref::Ruling CompressAttentionOperator::rule(const Call& call) const {
    const auto tensor = [&](std::string_view name) {
        const Tensor& t = call.tensor(name);
        return ref::TensorArgument{t.present, t.dtype, t.rank, t.shape};
    };
    const auto array = [&](std::size_t index) {
        const HostArray& lengths = call.arrays[index];
        ref::ArrayArgument argument{lengths.present, lengths.size, lengths.values};
        if (lengths.present && lengths.size >= 0)
            argument.values.resize(static_cast<std::size_t>(lengths.size));
        return argument;
    };
    ref::CompressAttentionArguments arguments;
    arguments.query = tensor("query");
    arguments.key = tensor("key");
    arguments.value = tensor("value");
    arguments.atten_mask = tensor("atten_mask");
    arguments.topk_mask = tensor("topk_mask");
    arguments.actual_seq_q_len = array(0);
    arguments.actual_cmp_seq_kv_len = array(1);
    arguments.actual_sel_seq_kv_len = array(2);
    arguments.scale_value = call.real("scale_value");
    arguments.head_num = call.number("head_num");
    arguments.input_layout = call.texts[0].value;
    arguments.sparse_mode = call.number("sparse_mode");
    arguments.compress_block_size = call.number("compress_block_size");
    arguments.compress_stride = call.number("compress_stride");
    arguments.select_block_size = call.number("select_block_size");
    arguments.select_block_count = call.number("select_block_count");
    arguments.softmax_max = tensor("softmax_max");
    arguments.softmax_sum = tensor("softmax_sum");
    arguments.attention_out = tensor("attention_out");
    arguments.topk_indices = tensor("topk_indices");
    return ref::rule_nsa_compress_attention(arguments);
}

std::string CompressAttentionOperator::describe(const Spec& spec, const std::string& tensor,
                                                const std::vector<std::int64_t>& at) const {
    if (tensor == "atten_mask") return fmt::format("row {}, column {}", at[0], at[1]);
    if (tensor == "topk_mask") return fmt::format("row {}, block {}", at[0], at[1]);
    std::vector<std::int64_t> index = at;
    if (tensor.starts_with("softmax")) {  // lies as [N1,S_q] per sequence
        const ref::CompressAttentionShape shape = parts_without_values(spec).shape;
        const std::int64_t from = ref::compress_statistics_order(
            shape)[static_cast<std::size_t>(at[0] * shape.query_heads + at[1])];
        index = {from / shape.query_heads, from % shape.query_heads, at[2]};
    }
    const bool of_keys = tensor == "key" || tensor == "value";
    const char* what = of_keys ? "key" : "query";
    const char* last = tensor == "topk_indices"        ? "entry"
                       : tensor.starts_with("softmax") ? "lane"
                                                       : "channel";
    const auto starts = row_starts(spec.lists[of_keys ? 1 : 0]);
    const auto after = std::upper_bound(starts.begin(), starts.end(), index[0]);
    const std::size_t sequence = static_cast<std::size_t>(after - starts.begin()) - 1;
    const std::string row =
        sequence + 1 == starts.size()
            ? fmt::format("row {} beyond the last sequence", index[0])
            : fmt::format("sequence {}, {} {}", sequence, what, index[0] - starts[sequence]);
    return fmt::format("{}, head {}, {} {}", row, index[1], last, index[2]);
}

}  // namespace
}  // namespace compress_attention

std::unique_ptr<Operator> make_nsa_compress_attention() {
    return std::make_unique<compress_attention::CompressAttentionOperator>();
}

}  // namespace attncheck::properties
