#include "properties/nsa_selected_attention_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <numeric>
#include <stdexcept>

namespace attncheck::properties {
namespace {

constexpr std::int64_t kLongest = 1 << 17;  ///< 128 Ki
constexpr std::int64_t kLargeMask = 300;
constexpr std::int64_t kStatisticLanes = 8;

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

/// Elements that `set` names, one tensor after the other.
void apply_overrides(const Spec& spec, SelectedParts& parts, bool lists_only) {
    const auto shapes = selected_shapes(*spec.schema, parts);
    for (const auto& [ref, value] : spec.overrides) {
        const auto index = static_cast<std::size_t>(ref.tensor);
        const std::string& name = spec.schema->tensors[index].name;
        const bool is_topk = name == "topk_indices", is_mask = name == "atten_mask";
        if (lists_only && !is_topk && !is_mask) continue;
        std::vector<std::uint32_t>& bits = is_topk           ? parts.topk
                                           : is_mask         ? parts.mask.bits
                                           : name == "query" ? parts.query
                                           : name == "key"   ? parts.key
                                           : name == "value" ? parts.value
                                                             : parts.output_grad;
        const ref::Dtype dtype = is_topk   ? ref::Dtype::int32
                                 : is_mask ? parts.mask.dtype
                                           : parts.dtype;
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

SelectedParts parts_without_values(const Spec& spec) {
    SelectedParts parts;
    const auto& n = spec.numbers;
    parts.gradient = spec.schema->op == "nsa_selected_attention_grad";
    parts.dtype = n[kSelDtype] == 0 ? ref::Dtype::fp16 : ref::Dtype::bf16;
    ref::SelectedAttentionShape& s = parts.shape;
    s.query_lengths = spec.lists[0];
    s.kv_lengths = spec.lists[1];
    s.total_queries = std::accumulate(spec.lists[0].begin(), spec.lists[0].end(), n[kSelBeyondQ]);
    s.total_keys = std::accumulate(spec.lists[1].begin(), spec.lists[1].end(), n[kSelBeyondKv]);
    s.kv_heads = n[kSelKvHeads];
    s.query_heads = n[kSelKvHeads] * n[kSelGroup];
    s.head_dim = n[kSelDim];
    s.value_dim = n[kSelValueDim];
    s.block = n[kSelBlock];
    s.count = n[kSelCount];
    parts.sparse_mode = n[kSelSparse];
    parts.scale = scale_of(static_cast<ScaleKind>(n[kSelScale]), s.head_dim);
    const auto kind = static_cast<MaskKind>(n[kSelMask]);
    parts.mask.present = kind != MaskKind::absent;
    parts.mask.dtype = kind == MaskKind::uint8 ? ref::Dtype::uint8 : ref::Dtype::boolean;
    switch (static_cast<MaskExtent>(n[kSelMaskShape])) {
        case MaskExtent::exact:
            parts.mask.shape = {longest(s.query_lengths), longest(s.kv_lengths)};
            break;
        case MaskExtent::single:
            parts.mask.shape = {1, 1};
            break;
        case MaskExtent::large:
            parts.mask.shape = {kLargeMask, kLargeMask};
            break;
    }
    s.mask = !parts.mask.present      ? ref::SelectedMask::none
             : parts.sparse_mode == 2 ? ref::SelectedMask::causal
                                      : ref::SelectedMask::contents;
    s.mask_columns = parts.mask.shape[1];
    return parts;
}

class SelectedOperator final : public Operator {
public:
    explicit SelectedOperator(bool gradient)
        : gradient_(gradient),
          schema_(make_schema(gradient)),
          properties_(selected_properties(gradient)),
          required_(selected_required_classes(gradient)) {}

    const Schema& schema() const override { return schema_; }
    const std::vector<Property>& properties() const override { return properties_; }
    const std::vector<RequiredClass>& required_classes() const override { return required_; }
    std::vector<std::string> labels(const Spec& spec) const override {
        return selected_labels(spec);
    }
    Spec sample(Random& random, int size) const override {
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
        return selected_shapes(schema_, parts_without_values(spec));
    }

    Call build(const Spec& spec) const override {
        Spec everywhere = spec;
        std::optional<ref::Dtype> dtype;
        for (const auto& edit : spec.edits) apply_everywhere(edit, everywhere, dtype);
        SelectedParts parts =
            everywhere.numbers == spec.numbers ? selected_parts(spec) : zero_parts(everywhere);
        if (dtype) parts.dtype = *dtype;
        // "heads.uneven": one query head more than the groups have.
        if (std::ranges::find(spec.edits, "heads.uneven") != spec.edits.end())
            parts = zero_parts(everywhere, 1);
        Call call = make_selected_call(parts);
        for (std::size_t i = 0; i < call.tensors.size(); ++i)
            call.tensors[i].strides = strides_for(spec.layouts[i], call.tensors[i].buffer_shape);
        for (const auto& edit : spec.edits) {
            if (edit == "heads.uneven") continue;
            if (edit.starts_with("sequences="))
                add_sequences(edit, call);
            else if (edit.starts_with("long."))
                claim_sequence(edit, call);
            else if (edit.starts_with("rows."))
                claim_rows(edit, call);
            else if (!edit.starts_with("all."))
                apply_edit(call, edit);
        }
        return call;
    }

    Call outline(const Spec& spec) const override {
        Call call = make_selected_call(parts_without_values(spec));
        for (std::size_t i = 0; i < call.tensors.size(); ++i)
            call.tensors[i].strides = strides_for(spec.layouts[i], call.tensors[i].buffer_shape);
        return call;
    }

    std::vector<Spec> large_cases(std::int64_t length, std::uint64_t seed) const override {
        return selected_large_cases(schema_, length, seed);
    }

    std::vector<std::byte> pack(const Call& call, const std::vector<attncheck_tensor>& tensors,
                                const std::vector<attncheck_int_array>& arrays,
                                const std::vector<const char*>& texts) const override;
    ref::Ruling rule(const Call& call) const override;
    std::string describe(const Spec& spec, const std::string& tensor,
                         const std::vector<std::int64_t>& index) const override;

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
            if (queries.empty()) queries = ref::selected_queries(parts_without_values(spec).shape);
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

    /// "long.q=ROWS", "long.kv=ROWS": rows.q or rows.kv, all of them in the last sequence.
    void claim_sequence(const std::string& edit, Call& call) const {
        claim_rows("rows" + edit.substr(4), call);
        HostArray& lengths = call.arrays[edit.starts_with("long.kv=") ? 1 : 0];
        std::int64_t rows = 0;
        std::from_chars(edit.data() + edit.find('=') + 1, edit.data() + edit.size(), rows);
        if (!lengths.values.empty()) lengths.values.back() = rows;
    }

    /// "sequences=COUNT": empty sequences behind the last one, up to this many.
    static void add_sequences(const std::string& edit, Call& call) {
        std::int64_t count = -1;
        std::from_chars(edit.data() + edit.find('=') + 1, edit.data() + edit.size(), count);
        if (count < 0 || count > 1 << 14)
            throw std::invalid_argument(
                fmt::format("case: break entry '{}', expected a count up to 16384", edit));
        for (HostArray& array : call.arrays)
            if (std::ssize(array.values) < count && !array.values.empty()) {
                array.values.resize(static_cast<std::size_t>(count), array.values.back());
                array.size = count;
            }
    }

    /// "rows.q=VALUE", "rows.kv=VALUE": T1 or T2 in the shape of every tensor that has it, without
    /// the memory: only a limit on the number of rows can object.
    void claim_rows(const std::string& edit, Call& call) const {
        const bool of_keys = edit.starts_with("rows.kv=");
        std::int64_t rows = -1;
        const auto equals = edit.find('=');
        if (equals != std::string::npos)
            std::from_chars(edit.data() + equals + 1, edit.data() + edit.size(), rows);
        if (rows < 0 || (!of_keys && !edit.starts_with("rows.q=")))
            throw std::invalid_argument(fmt::format(
                "case: break entry '{}', expected rows.q= or rows.kv= and a count", edit));
        for (Tensor& tensor : call.tensors) {
            const std::string& name = tensor.name;
            const bool key = name == "key" || name == "value" || name == "dk" || name == "dv";
            if (key == of_keys && name != "atten_mask" && !tensor.shape.empty())
                tensor.shape[0] = rows;
        }
    }

    /// All elements zero: for shapes that no reference is defined on.
    static SelectedParts zero_parts(const Spec& spec, std::int64_t more_heads = 0) {
        SelectedParts parts = parts_without_values(spec);
        parts.shape.query_heads += more_heads;
        const ref::SelectedAttentionShape& s = parts.shape;
        const auto zeros = [](std::int64_t rows, std::int64_t heads, std::int64_t dim) {
            return std::vector<std::uint32_t>(static_cast<std::size_t>(rows * heads * dim));
        };
        parts.query = zeros(s.total_queries, s.query_heads, s.head_dim);
        parts.key = zeros(s.total_keys, s.kv_heads, s.head_dim);
        parts.value = zeros(s.total_keys, s.kv_heads, s.value_dim);
        parts.topk = zeros(s.total_queries, s.kv_heads, s.count);
        if (parts.mask.present)
            parts.mask.bits = zeros(parts.mask.shape[0], parts.mask.shape[1], 1);
        if (parts.gradient) {
            parts.output = parts.output_grad = zeros(s.total_queries, s.query_heads, s.value_dim);
            parts.row_max.assign(static_cast<std::size_t>(s.total_queries * s.query_heads), 0);
            parts.row_sum.assign(parts.row_max.size(), 1);
        }
        return parts;
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

ref::ColumnLister SelectedParts::columns() const {
    const auto indices = std::make_shared<std::vector<std::int64_t>>();
    for (const auto bits : topk) indices->push_back(static_cast<std::int32_t>(bits));
    const auto hidden =
        std::make_shared<std::vector<std::uint8_t>>(mask.bits.begin(), mask.bits.end());
    return [indices, hidden, list = ref::selected_columns(shape, *indices, *hidden)](
               std::int64_t t, std::int64_t head, std::vector<ref::KeyColumn>& out) {
        return list(t, head, out);
    };
}

void give_reference_statistics(SelectedParts& parts) {
    const ref::AttentionShape dense = parts.shape.dense();
    const auto rows = static_cast<std::size_t>(dense.query_rows * dense.query_heads);
    std::vector<double> output(rows * static_cast<std::size_t>(dense.value_dim)), row_max(rows),
        row_sum(rows);
    const auto query = parts.values(parts.query), key = parts.values(parts.key),
               value = parts.values(parts.value);
    const ref::AttentionInputs<double> in{query, key, value, parts.narrowed_scale(), 1};
    ref::dense_attention<double>(dense, parts.columns(), in, output, row_max, row_sum);
    parts.output.resize(output.size());
    std::transform(output.begin(), output.end(), parts.output.begin(),
                   [&](double v) { return ref::encode(parts.dtype, v); });
    parts.row_max.assign(row_max.begin(), row_max.end());
    parts.row_sum.assign(row_sum.begin(), row_sum.end());
}

SelectedParts selected_lists(const Spec& spec) {
    SelectedParts parts = parts_without_values(spec);
    fill_selected_lists(spec, parts);
    apply_overrides(spec, parts, true);
    return parts;
}

SelectedParts selected_input_parts(const Spec& spec) {
    SelectedParts parts = parts_without_values(spec);
    fill_selected_lists(spec, parts);
    fill_selected_data(spec, parts);
    apply_overrides(spec, parts, false);
    return parts;
}

SelectedParts selected_parts(const Spec& spec) {
    SelectedParts parts = selected_input_parts(spec);
    if (!parts.gradient) return parts;
    give_reference_statistics(parts);
    if (spec.numbers[kSelStats] == static_cast<std::int64_t>(StatsKind::shifted))
        shift_statistics(parts.row_max, parts.row_sum);
    if (spec.numbers[kSelOut] == static_cast<std::int64_t>(OutKind::perturbed))
        perturb_output(parts.dtype, parts.output);
    return parts;
}

std::vector<std::vector<std::int64_t>> selected_shapes(const Schema& schema,
                                                       const SelectedParts& parts) {
    const ref::SelectedAttentionShape& s = parts.shape;
    const std::vector<std::int64_t> query{s.total_queries, s.query_heads, s.head_dim},
        key{s.total_keys, s.kv_heads, s.head_dim}, value{s.total_keys, s.kv_heads, s.value_dim},
        output{s.total_queries, s.query_heads, s.value_dim},
        statistics{s.total_queries, s.query_heads, kStatisticLanes},
        topk{s.total_queries, s.kv_heads, s.count};
    std::vector<std::vector<std::int64_t>> shapes;
    for (const TensorField& field : schema.tensors) {
        const std::string& name = field.name;
        shapes.push_back(
            name == "query" || name == "dq"   ? query
            : name == "key" || name == "dk"   ? key
            : name == "value" || name == "dv" ? value
            : name == "topk_indices"          ? topk
            : name == "atten_mask"
                ? (parts.mask.present ? parts.mask.shape : std::vector<std::int64_t>{0, 0})
            : name.starts_with("softmax") ? statistics
                                          : output);
    }
    return shapes;
}

Call make_selected_call(const SelectedParts& parts) {
    const Schema& schema =
        find_operator(parts.gradient ? "nsa_selected_attention_grad" : "nsa_selected_attention")
            ->schema();
    const auto shapes = selected_shapes(schema, parts);
    const auto lanes = [](const std::vector<float>& rows) {
        std::vector<std::uint32_t> bits;
        for (const float value : rows)
            bits.insert(bits.end(), kStatisticLanes, ref::encode(ref::Dtype::fp32, value));
        return bits;
    };
    Call call;
    call.op = schema.op;
    for (std::size_t i = 0; i < schema.tensors.size(); ++i) {
        const TensorField& field = schema.tensors[i];
        const std::string& name = field.name;
        const ref::Dtype dtype = name == "topk_indices"        ? ref::Dtype::int32
                                 : name == "atten_mask"        ? parts.mask.dtype
                                 : name.starts_with("softmax") ? ref::Dtype::fp32
                                                               : parts.dtype;
        std::vector<std::uint32_t> bits;
        if (name == "query")
            bits = parts.query;
        else if (name == "key")
            bits = parts.key;
        else if (name == "value")
            bits = parts.value;
        else if (name == "topk_indices")
            bits = parts.topk;
        else if (name == "atten_mask")
            bits = parts.mask.bits;
        else if (name == "attention_out_grad")
            bits = parts.output_grad;
        else if (!field.output && name == "attention_out")
            bits = parts.output;
        else if (!field.output && name == "softmax_max")
            bits = lanes(parts.row_max);
        else if (!field.output && name == "softmax_sum")
            bits = lanes(parts.row_sum);
        call.tensors.push_back(make_tensor(name, field.output, dtype, shapes[i], std::move(bits)));
        if (name == "atten_mask") call.tensors.back().present = parts.mask.present;
    }
    const ref::SelectedAttentionShape& s = parts.shape;
    const auto lengths = [](const char* name, const std::vector<std::int64_t>& of) {
        return HostArray{name, true, std::ssize(of), cumulative(of)};
    };
    call.arrays = {lengths("actual_seq_q_len", s.query_lengths),
                   lengths("actual_seq_kv_len", s.kv_lengths)};
    call.texts = {{"input_layout", "TND"}};
    call.numbers = {{"head_num", s.query_heads},
                    {"sparse_mode", parts.sparse_mode},
                    {"selected_block_size", s.block},
                    {"selected_block_count", s.count}};
    call.reals = {{"scale_value", parts.scale}};
    return call;
}

ExpectedOutputs expected_of(const SelectedParts& parts, const ref::RoundingClass& rounding,
                            ref::Grant grant) {
    const auto query = parts.values(parts.query), key = parts.values(parts.key),
               value = parts.values(parts.value);
    const ref::AttentionInputs<double> in{query, key, value, parts.narrowed_scale(), 1};
    ExpectedOutputs out;
    if (!parts.gradient) {
        auto expected = ref::expected_attention(parts.shape.dense(), parts.columns(), in,
                                                parts.dtype, rounding, grant);
        const auto lanes = [](const ref::ExpectedTensor& rows) {
            ref::ExpectedTensor all(rows.size() * kStatisticLanes);
            for (std::size_t i = 0; i < all.size(); ++i) {
                all.value[i] = rows.value[i / kStatisticLanes];
                all.bound[i] = rows.bound[i / kStatisticLanes];
                all.overflow[i] = rows.overflow[i / kStatisticLanes];
            }
            return all;
        };
        out.emplace_back("softmax_max", lanes(expected.row_max));
        out.emplace_back("softmax_sum", lanes(expected.row_sum));
        out.emplace_back("attention_out", std::move(expected.output));
        return out;
    }
    const auto output = parts.values(parts.output), output_grad = parts.values(parts.output_grad);
    const std::vector<double> row_max(parts.row_max.begin(), parts.row_max.end()),
        row_sum(parts.row_sum.begin(), parts.row_sum.end());
    auto expected = ref::expected_attention_grad(parts.shape.dense(), parts.columns(),
                                                 {in, output_grad, output, row_max, row_sum},
                                                 parts.dtype, rounding, grant);
    out.emplace_back("dq", std::move(expected.query_grad));
    out.emplace_back("dk", std::move(expected.key_grad));
    out.emplace_back("dv", std::move(expected.value_grad));
    return out;
}

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
