// From the dense parts of a selected attention problem to a call and its expected outputs, and
// claims: edits of a call that several shapes and arguments follow.
#include <fmt/format.h>

#include <charconv>
#include <stdexcept>

#include "properties/operators/nsa_selected_attention/case.h"
#include "properties/operators/catalogue.h"

namespace attncheck::properties {
namespace {

constexpr std::int64_t kStatisticLanes = 8;

/// "rows.q=VALUE", "rows.kv=VALUE": T1 or T2 in the shape of every tensor that has it, without
/// the memory: only a limit on the number of rows can object.
void claim_rows(const std::string& edit, Call& call) {
    const bool of_keys = edit.starts_with("rows.kv=");
    std::int64_t rows = -1;
    const auto equals = edit.find('=');
    if (equals != std::string::npos)
        std::from_chars(edit.data() + equals + 1, edit.data() + edit.size(), rows);
    if (rows < 0 || (!of_keys && !edit.starts_with("rows.q=")))
        throw std::invalid_argument(
            fmt::format("case: break entry '{}', expected rows.q= or rows.kv= and a count", edit));
    for (Tensor& tensor : call.tensors) {
        const std::string& name = tensor.name;
        const bool key = name == "key" || name == "value" || name == "dk" || name == "dv";
        if (key == of_keys && name != "atten_mask" && !tensor.shape.empty()) tensor.shape[0] = rows;
    }
}

/// "long.q=ROWS", "long.kv=ROWS": rows.q or rows.kv, all of them in the last sequence.
void claim_sequence(const std::string& edit, Call& call) {
    claim_rows("rows" + edit.substr(4), call);
    HostArray& lengths = call.arrays[edit.starts_with("long.kv=") ? 1 : 0];
    std::int64_t rows = 0;
    std::from_chars(edit.data() + edit.find('=') + 1, edit.data() + edit.size(), rows);
    if (!lengths.values.empty()) lengths.values.back() = rows;
}

/// "sequences=COUNT": empty sequences behind the last one, up to this many.
void add_sequences(const std::string& edit, Call& call) {
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

}  // namespace

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
    call.description = &schema;
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

bool is_selected_claim(const std::string& edit) {
    return edit.starts_with("sequences=") || edit.starts_with("long.") || edit.starts_with("rows.");
}

void apply_selected_claim(const std::string& edit, Call& call) {
    if (edit.starts_with("sequences="))
        add_sequences(edit, call);
    else if (edit.starts_with("long."))
        claim_sequence(edit, call);
    else
        claim_rows(edit, call);
}

}  // namespace attncheck::properties
