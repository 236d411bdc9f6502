// From the fields of a flash attention case to a problem in packed parts: extents, attributes,
// element values, and the statistics the gradient is given.
#include <map>

#include "properties/operators/flash_attention/problem.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

std::optional<std::vector<Int>> given(const HostArray& array) {
    return array.present ? std::optional(array.values) : std::nullopt;
}

void apply_overrides(const Spec& spec, FlashParts& parts) {
    if (spec.overrides.empty()) return;
    const Extents extents = extents_of(spec);
    const auto shapes = shapes_of(extents);
    for (const auto& [element, value] : spec.overrides) {
        const auto index = static_cast<std::size_t>(element.tensor);
        const TensorField& tensor = spec.schema->tensors[index];
        std::size_t number = 0;
        for (std::size_t k = 0; k < shapes[index].size(); ++k)
            number = number * static_cast<std::size_t>(shapes[index][k]) +
                     static_cast<std::size_t>(element.index[k]);
        if (tensor.role == Role::mask)
            parts.shape.mask.values.at(number) = static_cast<std::uint8_t>(value);
        else if (tensor.role == Role::drop)
            parts.shape.dropout.bytes.at(number) = static_cast<std::uint8_t>(value);
        else
            (parts.*bits_of(tensor.name)).at(number) =
                ref::encode(extents.type_of(tensor), value);
        if (tensor.role == Role::bias)
            parts.shape.bias.values.at(number) =
                ref::decode(extents.type_of(tensor), parts.pse[number]);
    }
}

}  // namespace

bool flash_reads_mask(std::int64_t mode) { return mode == 0 || mode == 1 || mode == 5; }

std::vector<std::uint32_t> FlashParts::*bits_of(std::string_view tensor) {
    using Part = std::vector<std::uint32_t> FlashParts::*;
    static const std::map<std::string_view, Part> kParts{
        {"query", &FlashParts::query},     {"query_rope", &FlashParts::query_rope},
        {"key", &FlashParts::key},         {"key_rope", &FlashParts::key_rope},
        {"value", &FlashParts::value},     {"dy", &FlashParts::output_grad},
        {"real_shift", &FlashParts::pse},  {"pse_shift", &FlashParts::pse},
        {"attention_in", &FlashParts::output}};
    const auto it = kParts.find(tensor);
    return it == kParts.end() ? nullptr : it->second;
}

std::vector<float> FlashParts::*statistic_of(std::string_view tensor) {
    return tensor == "softmax_max"   ? &FlashParts::row_max
           : tensor == "softmax_sum" ? &FlashParts::row_sum
                                     : nullptr;
}

double flash_keep_prob(std::int64_t kind) {
    constexpr double kProbabilities[] = {1, 0.5, 0.9, 0.1};
    return kProbabilities[kind];
}

void give_reference_statistics(FlashParts& parts) {
    AttentionProblem problem = flash_problem(parts);
    give_reference_forward(problem);
    parts.output = problem.output;
    parts.row_max = problem.row_max;
    parts.row_sum = problem.row_sum;
}

FlashParts flash_shape_parts(const Spec& spec) {
    const Extents e = extents_of(spec);
    const Call call = outline_of(e);
    const auto& n = spec.numbers;
    FlashParts parts;
    parts.fields = n;
    parts.profile = spec.profile;
    parts.gradient = &flash_description(true) == spec.schema;
    parts.dtype = call.tensors.front().type();
    parts.result = call.tensors.back().type();  // of an output
    parts.layout = static_cast<FlashLayout>(n[kFaLayout]);
    ref::FlashAttentionShape& s = parts.shape;
    s.query_lengths = spec.lists[0];
    s.kv_lengths = spec.lists[1];
    s.total_queries = e.rows("q");
    s.total_keys = e.rows("kv");
    s.kv_heads = e["kv_heads"];
    s.query_heads = e["query_heads"];
    s.head_dim = e["dim"];
    s.rope_dim = e["rope"];
    s.value_dim = e["value_dim"];
    s.packed = parts.layout == FlashLayout::tnd;
    parts.scale = call.real("scale_value");
    s.scale = static_cast<float>(parts.scale);
    parts.keep_prob = call.real("keep_prob");
    parts.same_as_input = n[kFaOrder] == 1;
    parts.prefix = given(call.array("prefix"));
    parts.query_start = given(call.array("q_start_idx"));
    parts.key_start = given(call.array("kv_start_idx"));
    s.mask.sparse_mode = e["sparse"];
    s.mask.pre_tokens = e["pre_tokens"];
    s.mask.next_tokens = e["next_tokens"];
    s.mask.prefix = parts.prefix.value_or(std::vector<Int>{});
    s.bias.type = e["pse_type"];
    s.dropout.keep_prob = static_cast<float>(parts.keep_prob);
    if (parts.query_start && parts.key_start) {
        s.bias.query_start = parts.query_start->front();
        s.bias.key_start = parts.key_start->front();
    }
    for (std::size_t i = 0; i < call.tensors.size(); ++i) {
        const Tensor& tensor = call.tensors[i];
        const Role role = spec.schema->tensors[i].role;
        if (role == Role::mask) {
            s.mask.present = tensor.present;
            if (tensor.present) s.mask.shape = tensor.shape;
            parts.mask_dtype = tensor.type();
        } else if (role == Role::bias) {
            s.bias.present = tensor.present;
            s.bias.shape = tensor.shape;
        } else if (role == Role::drop) {
            s.dropout.present = tensor.present;
        }
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
