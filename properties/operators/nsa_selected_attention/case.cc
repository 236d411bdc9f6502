// The operators: fields, legality, shrinking, the C structs and the documented ruling.
#include "properties/operators/nsa_selected_attention/case.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <utility>

namespace attncheck::properties {
namespace {

constexpr std::int64_t kLongest = 1 << 17;  ///< 128 Ki

Schema make_schema(bool gradient) {
    Schema schema;
    schema.op = gradient ? "nsa_selected_attention_grad" : "nsa_selected_attention";
    schema.parallel_lists = true;
    schema.numbers = {
        {"dtype", 0, 1, 1, -1, {"fp16", "bf16"}},
        {"kv_heads", 1, 128, 1, -1, {}},
        {"group", 1, 32, 1, -1, {}},
        {"dim", 128, 192, 64, -1, {}},
        {"value_dim", 128, 192, 64, -1, {}},
        {"block", 16, 128, 16, -1, {}},
        {"count", 1, 32, 1, -1, {}},
        {"mask", 0, 2, 1, 0, {"absent", "bool", "uint8"}},
        {"mask_shape", 0, 2, 1, 0, {"exact", "single", "large"}},
        {"sparse", 0, 2, 2, 0, {}},
        {"scale", 0, 6, 1, 0, {"one", "rsqrt", "eighth", "zero", "negative", "tenth", "large"}},
        {"topk",
         0,
         11,
         1,
         0,
         {"first", "canonical", "ascending", "descending", "shuffled", "scored", "repeated", "same",
          "diagonal", "future", "shared", "last"}},
        {"logits",
         0,
         7,
         1,
         0,
         {"plain", "equal", "dominant", "minus40", "minus120", "minus300", "plus300",
          "minus20000"}},
        {"beyond_q", 0, kLongest, 1, 0, {}},
        {"beyond_kv", 0, kLongest, 1, 0, {}}};
    if (gradient) {
        schema.numbers.push_back({"stats", 0, 1, 1, 0, {"reference", "shifted"}});
        schema.numbers.push_back({"out", 0, 1, 1, 0, {"reference", "perturbed"}});
    }
    schema.lists = {{"q", 0, kLongest, 1024}, {"kv", 0, kLongest, 1024}};
    const TensorField query{"query", 3}, key{"key", 3}, value{"value", 3};
    const TensorField topk{"topk_indices", 3, false, false, true};
    const TensorField mask{"atten_mask", 2, false, false, true};
    if (gradient)
        schema.tensors = {query,
                          key,
                          value,
                          {"attention_out", 3, false, true},
                          {"attention_out_grad", 3},
                          {"softmax_max", 3, false, true},
                          {"softmax_sum", 3, false, true},
                          topk,
                          mask,
                          {"dq", 3, true},
                          {"dk", 3, true},
                          {"dv", 3, true}};
    else
        schema.tensors = {query,
                          key,
                          value,
                          topk,
                          mask,
                          {"softmax_max", 3, true},
                          {"softmax_sum", 3, true},
                          {"attention_out", 3, true}};
    return schema;
}

class SelectedOperator final : public Operator {
public:
    explicit SelectedOperator(bool gradient)
        : gradient_(gradient),
          schema_(make_schema(gradient)),
          properties_(selected_properties(gradient)),
          required_(selected_required_classes(gradient)) {
        schema_.pack_by_hand = [this](auto&&... of) { return pack(of...); };
        schema_.rule_by_hand = [this](const Call& call) { return rule(call); };
        schema_.describe_by_hand = [this](auto&&... of) { return describe(of...); };
    }

    const Schema& schema() const override { return schema_; }
    const std::vector<Property>& properties() const override { return properties_; }
    const std::vector<RequiredClass>& required_classes() const override { return required_; }
    std::vector<std::string> labels(const Spec& spec) const override {
        return selected_labels(spec);
    }
    Spec draw(Random& random, int size, Profile) const override {
        return sample_selected(schema_, random, size);
    }

    std::optional<std::string> illegal(const Spec& spec) const override {
        const auto& n = spec.numbers;
        if (auto reason = number_outside(schema_, spec.numbers)) return reason;
        if (spec.lists[0].empty() || spec.lists[0].size() != spec.lists[1].size())
            return "q and kv need the same number of sequences, at least one";
        if (n[kSelKvHeads] * n[kSelGroup] > 128) return "kv_heads * group is more than 128";
        if (n[kSelValueDim] > n[kSelDim]) return "value_dim is larger than dim";
        if (n[kSelMaskShape] != 0 && (n[kSelMask] == 0 || n[kSelSparse] != 2))
            return "mask_shape needs a mask and sparse=2";
        if (auto reason = illegal_lengths(spec)) return reason;
        return illegal_elements(spec);
    }

    std::vector<Spec> joint_shrinks(const Spec& spec) const override;
    void carry_overrides(const Spec& from, Spec& to, const std::vector<int>& kept) const override;

    std::vector<std::vector<std::int64_t>> shapes(const Spec& spec) const override {
        return selected_shapes(schema_, selected_shape_parts(spec));
    }

    Call build(const Spec& spec) const override {
        Spec everywhere = spec;
        std::optional<ref::Dtype> dtype;
        for (const Edit& edit : spec.edits) apply_everywhere(print(edit), everywhere, dtype);
        if (everywhere.numbers != spec.numbers) require_edits_fit(shapes(everywhere));
        SelectedParts parts = everywhere.numbers == spec.numbers ? selected_parts(spec)
                                                                 : selected_zero_parts(everywhere);
        if (dtype) parts.dtype = *dtype;
        // "heads.uneven": one query head more than the groups have.
        if (std::ranges::find(spec.edits, Edit("heads.uneven")) != spec.edits.end())
            parts = selected_zero_parts(everywhere, 1);
        Call call = make_selected_call(parts);
        for (std::size_t i = 0; i < call.tensors.size(); ++i)
            call.tensors[i].strides = strides_for(spec.layouts[i], call.tensors[i].buffer_shape);
        for (const Edit& edit : spec.edits) {
            const std::string text = print(edit);
            if (text == "heads.uneven" || edit.name == "all") continue;
            if (is_selected_claim(text))
                apply_selected_claim(text, call);
            else
                apply_edit(call, edit);
        }
        return call;
    }

    Call outline(const Spec& spec) const override {
        Call call = make_selected_call(selected_shape_parts(spec));
        for (std::size_t i = 0; i < call.tensors.size(); ++i)
            call.tensors[i].strides = strides_for(spec.layouts[i], call.tensors[i].buffer_shape);
        return call;
    }

    std::vector<Spec> large_cases(std::int64_t length, std::uint64_t seed) const override {
        return selected_large_cases(schema_, length, seed);
    }

    std::vector<std::byte> pack(const Call& call, const std::vector<attncheck_tensor>& tensors,
                                const std::vector<attncheck_int_array>& arrays,
                                const std::vector<const char*>& texts) const;
    ref::Ruling rule(const Call& call) const;
    std::string describe(const Spec& spec, const std::string& tensor,
                         const std::vector<std::int64_t>& index) const;

private:
    std::optional<std::string> illegal_lengths(const Spec& spec) const {
        const std::int64_t block = spec.numbers[kSelBlock], count = spec.numbers[kSelCount];
        for (const auto& list : spec.lists)
            for (const auto length : list)
                if (length < 0 || length > kLongest) return "a length is outside 0..131072";
        for (const auto length : spec.lists[1])
            if (length != 0 && (length % block != 0 || length < block * count))
                return fmt::format(
                    "kv length {} must be 0 or a multiple of block={} and at least "
                    "block * count = {}",
                    length, block, block * count);
        const auto total = [&](int list, SelectedField beyond) {
            const auto& lengths = spec.lists[static_cast<std::size_t>(list)];
            return std::accumulate(lengths.begin(), lengths.end(), spec.numbers[beyond]);
        };
        const std::int64_t queries = total(0, kSelBeyondQ), keys = total(1, kSelBeyondKv);
        if (queries < 1 || keys < 1)
            return "q and beyond_q, kv and beyond_kv: at least one row of each is needed";
        if (queries > 1 << 21 || keys > 1 << 21) return "more than 2 Mi rows";
        for (std::size_t i = 0; i < schema_.tensors.size(); ++i) {
            const TensorField& field = schema_.tensors[i];
            const Layout layout = spec.layouts[i];
            if ((field.output && layout == Layout::reversed) ||
                ((field.output || field.derived) && layout == Layout::broadcast))
                return fmt::format("{}.layout={} is not possible", field.name, name_of(layout));
        }
        return std::nullopt;
    }

    std::optional<std::string> illegal_elements(const Spec& spec) const {
        if (spec.overrides.empty()) return std::nullopt;
        const auto extents = shapes(spec);
        const int topk = schema_.tensor("topk_indices"), mask = schema_.tensor("atten_mask");
        std::vector<ref::SelectedQuery> queries;
        for (const auto& [ref, value] : spec.overrides) {
            const auto& shape = extents[static_cast<std::size_t>(ref.tensor)];
            for (std::size_t dim = 0; dim < shape.size(); ++dim)
                if (ref.index[dim] >= shape[dim])
                    return fmt::format("set names an element outside {}",
                                       schema_.tensors[static_cast<std::size_t>(ref.tensor)].name);
            if (ref.tensor == mask &&
                (spec.numbers[kSelMask] == 0 || !(value >= 0 && value <= 255) ||
                 (spec.numbers[kSelMask] == 1 && value > 1)))
                return "set gives atten_mask a value it cannot hold";
            if (ref.tensor != topk) continue;
            if (queries.empty()) queries = ref::selected_queries(selected_shape_parts(spec).shape);
            const ref::SelectedQuery& query = queries[static_cast<std::size_t>(ref.index[0])];
            if (query.sequence >= 0 && query.kv_length > 0 &&
                !(value >= 0 &&
                  value < static_cast<double>(query.kv_length / spec.numbers[kSelBlock])))
                return "set gives topk_indices a block outside its sequence";
        }
        return std::nullopt;
    }

    /// "all.KEY=VALUE": a field at a value that may be illegal, in every shape and argument that
    /// follows from it.
    void apply_everywhere(const std::string& edit, Spec& spec,
                          std::optional<ref::Dtype>& dtype) const {
        if (!edit.starts_with("all.")) return;
        const auto equals = edit.find('=');
        const std::string key = edit.substr(4, equals == std::string::npos ? equals : equals - 4);
        std::int64_t value = -1;
        if (equals != std::string::npos)
            std::from_chars(edit.data() + equals + 1, edit.data() + edit.size(), value);
        constexpr std::int64_t kLargest = 512;  // buffers are really laid out
        if (key == "dims" && value >= 0 && value <= kLargest) {
            spec.numbers[kSelDim] = spec.numbers[kSelValueDim] = value;
            return;
        }
        const int field = schema_.number(key);
        if (field < 0 || field > kSelCount || value < 0 || value > kLargest)
            throw std::invalid_argument(
                fmt::format("case: break entry '{}', expected all.dtype, all.kv_heads, all.group, "
                            "all.dim, all.dims, "
                            "all.value_dim, all.block or all.count and a value in 0..{}",
                            edit, kLargest));
        if (field == kSelDtype) {
            if (value != ATTNCHECK_FLOAT32 && value != ATTNCHECK_FLOAT16 &&
                value != ATTNCHECK_BFLOAT16)
                throw std::invalid_argument(
                    fmt::format("case: break entry '{}' knows the dtypes 0, 1 and 27", edit));
            dtype = static_cast<ref::Dtype>(value);
        } else {
            spec.numbers[static_cast<std::size_t>(field)] = value;
        }
    }

    bool gradient_;
    Schema schema_;
    std::vector<Property> properties_;
    std::vector<RequiredClass> required_;
};

std::vector<Spec> SelectedOperator::joint_shrinks(const Spec& spec) const {
    std::vector<Spec> out;
    const std::int64_t block = spec.numbers[kSelBlock], count = spec.numbers[kSelCount];
    const auto with = [&](std::int64_t b, std::int64_t c, auto&& kv_length) {
        Spec to = spec;
        to.numbers[kSelBlock] = b;
        to.numbers[kSelCount] = c;
        for (auto& length : to.lists[1])
            if (length > 0) length = std::max(kv_length(length), b * c);
        out.push_back(to);
    };
    // The same number of blocks, and as few as there may be, for every smaller block and count.
    for (std::int64_t c = 1; c <= count; c = c < 4 || c == count ? c + 1 : std::min(2 * c, count))
        for (std::int64_t b = 16; b <= block; b += 16) {
            if (b == block && c == count) continue;
            with(b, c, [&](std::int64_t length) { return length / block * b; });
            with(b, c, [&](std::int64_t) { return b * c; });
            with(b, c, [&](std::int64_t) { return b * (c + 1); });
        }
    for (std::size_t i = 0; i < spec.lists[1].size(); ++i)
        for (const std::int64_t cut : {std::int64_t{1}, (spec.lists[1][i] / block - count) / 2}) {
            Spec to = spec;
            to.lists[1][i] -= cut * block;
            if (cut > 0 && to.lists[1][i] >= block * count) out.push_back(to);
        }
    if (spec.numbers[kSelDim] > 128 && spec.numbers[kSelValueDim] > 128) {
        Spec to = spec;
        to.numbers[kSelDim] = to.numbers[kSelValueDim] = 128;
        out.push_back(to);
    }
    if (spec.numbers[kSelMask] != 0) {
        Spec to = spec;
        to.numbers[kSelMask] = to.numbers[kSelMaskShape] = 0;
        out.push_back(to);
    }
    for (std::size_t i = 0; i < spec.lists[0].size(); ++i) {  // a sequence without queries or keys
        Spec to = spec;
        to.lists[1][i] = 0;
        if (to.numbers[kSelBeyondKv] == 0 &&
            std::accumulate(to.lists[1].begin(), to.lists[1].end(), std::int64_t{0}) == 0)
            to.numbers[kSelBeyondKv] = 1;
        out.push_back(to);
    }
    const auto with_change = [&](auto&& change) {
        Spec to = spec;
        change(to);
        out.push_back(std::move(to));
    };
    // Rows behind the last sequence become part of it, kv heads become members of one group.
    with_change([](Spec& to) {
        to.lists[0].back() += std::exchange(to.numbers[kSelBeyondQ], 0);
    });
    with_change([&](Spec& to) {
        to.numbers[kSelBeyondKv] = 0;
        to.lists[1].back() = std::max(to.lists[1].back(), block * count);
    });
    with_change([](Spec& to) {
        to.numbers[kSelGroup] *= std::exchange(to.numbers[kSelKvHeads], 1);
    });
    return out;
}

void SelectedOperator::carry_overrides(const Spec& from, Spec& to,
                                       const std::vector<int>& kept) const {
    to.overrides.clear();
    const auto extents = shapes(to);
    for (const auto& [from_ref, value] : from.overrides) {
        ElementRef ref = from_ref;
        const std::string& name = schema_.tensors[static_cast<std::size_t>(ref.tensor)].name;
        if (name != "atten_mask") {
            const std::size_t list = name == "key" || name == "value" ? 1 : 0;
            if (!follow_sequence(ref, from.lists[list], to.lists[list], kept)) continue;
        }
        if (is_inside(ref, extents[static_cast<std::size_t>(ref.tensor)]))
            to.overrides[ref] = value;
    }
    if (illegal_elements(to)) {  // a list that names a block which is no more names the first
        const int topk = schema_.tensor("topk_indices");
        std::erase_if(to.overrides, [&](const auto& item) { return item.first.tensor == topk; });
    }
}

std::vector<std::byte> SelectedOperator::pack(const Call& call,
                                              const std::vector<attncheck_tensor>& tensors,
                                              const std::vector<attncheck_int_array>& arrays,
                                              const std::vector<const char*>& texts) const {
    const auto tensor = [&](std::string_view name) { return tensors[tensor_index(call, name)]; };
    const auto bytes_of = [&](auto arguments) {
        arguments.query = tensor("query");
        arguments.key = tensor("key");
        arguments.value = tensor("value");
        arguments.topk_indices = tensor("topk_indices");
        arguments.atten_mask = tensor("atten_mask");
        arguments.softmax_max = tensor("softmax_max");
        arguments.softmax_sum = tensor("softmax_sum");
        arguments.attention_out = tensor("attention_out");
        arguments.actual_seq_q_len = arrays[0];
        arguments.actual_seq_kv_len = arrays[1];
        arguments.scale_value = call.real("scale_value");
        arguments.head_num = call.number("head_num");
        arguments.input_layout = texts[0];
        arguments.sparse_mode = call.number("sparse_mode");
        arguments.selected_block_size = call.number("selected_block_size");
        arguments.selected_block_count = call.number("selected_block_count");
        std::vector<std::byte> bytes(sizeof arguments);
        std::memcpy(bytes.data(), &arguments, sizeof arguments);
        return bytes;
    };
    if (!gradient_) return bytes_of(attncheck_nsa_selected_attention_args{});
    attncheck_nsa_selected_attention_grad_args arguments{};
    arguments.attention_out_grad = tensor("attention_out_grad");
    arguments.dq = tensor("dq");
    arguments.dk = tensor("dk");
    arguments.dv = tensor("dv");
    return bytes_of(arguments);
}

ref::Ruling SelectedOperator::rule(const Call& call) const {
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
    const auto fill_common = [&](auto& arguments) {
        arguments.query = tensor("query");
        arguments.key = tensor("key");
        arguments.value = tensor("value");
        arguments.topk_indices = tensor("topk_indices");
        arguments.atten_mask = tensor("atten_mask");
        arguments.softmax_max = tensor("softmax_max");
        arguments.softmax_sum = tensor("softmax_sum");
        arguments.attention_out = tensor("attention_out");
        arguments.actual_seq_q_len = array(0);
        arguments.actual_seq_kv_len = array(1);
        arguments.scale_value = call.real("scale_value");
        arguments.head_num = call.number("head_num");
        arguments.input_layout = call.texts[0].value;
        arguments.sparse_mode = call.number("sparse_mode");
        arguments.selected_block_size = call.number("selected_block_size");
        arguments.selected_block_count = call.number("selected_block_count");
        for (const auto bits : call.tensor("topk_indices").bits)
            arguments.topk_values.push_back(static_cast<std::int32_t>(bits));
        // An edit may claim rows that are not there; what they would hold is the first block.
        std::int64_t claimed = 1;
        for (const auto extent : arguments.topk_indices.shape)
            claimed =
                extent >= 0 && extent < (1 << 22) && claimed < (1 << 22) ? claimed * extent : 0;
        if (claimed > std::ssize(arguments.topk_values) && claimed < (1 << 24))
            arguments.topk_values.resize(static_cast<std::size_t>(claimed));
    };
    if (!gradient_) {
        ref::SelectedAttentionArguments arguments;
        fill_common(arguments);
        return ref::rule_nsa_selected_attention(arguments);
    }
    ref::SelectedAttentionGradArguments arguments;
    fill_common(arguments);
    arguments.attention_out_grad = tensor("attention_out_grad");
    arguments.dq = tensor("dq");
    arguments.dk = tensor("dk");
    arguments.dv = tensor("dv");
    return ref::rule_nsa_selected_attention_grad(arguments);
}

std::string SelectedOperator::describe(const Spec& spec, const std::string& tensor,
                                       const std::vector<std::int64_t>& index) const {
    if (tensor == "atten_mask") return fmt::format("row {}, column {}", index[0], index[1]);
    const bool of_keys = tensor == "key" || tensor == "value" || tensor == "dk" || tensor == "dv";
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

std::unique_ptr<Operator> make_nsa_selected_attention() {
    return std::make_unique<SelectedOperator>(false);
}
std::unique_ptr<Operator> make_nsa_selected_attention_grad() {
    return std::make_unique<SelectedOperator>(true);
}

std::vector<Property> selected_properties(bool gradient) {
    std::vector<Property> list;
    add_selected_agreement(list, gradient);
    add_selected_tiers(list);
    add_selected_validation(list, gradient);
    if (gradient)
        add_selected_gradient_relations(list);
    else
        add_selected_forward_relations(list);
    add_selected_sampled(list);
    return list;
}

}  // namespace attncheck::properties
