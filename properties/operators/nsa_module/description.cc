// The NSA module as data: fields, tensors and rules, and the tensors that its operators hand each
// other.
#include <fmt/format.h>

#include "properties/case/attention_fields.h"
#include "properties/operators/nsa_module/case.h"

namespace attncheck::properties::nsa_module {
namespace {

using Int = std::int64_t;

constexpr Int kLongest = 4096;  ///< a module case is meant to be small

std::vector<NumberField> fields() {
    return attention_fields(
        {type_field({"fp16", "bf16"})},
        {.heads = 16, .group = 16, .width = 192, .least_width = 128, .step = 64},
        {{.key = "block", .min = 16, .max = 128, .step = 16, .word = "offset"},
         {.key = "stride", .min = 16, .max = 128, .step = 16},
         {.key = "select", .min = 16, .max = 128, .step = 16},
         {.key = "count", .min = 1, .max = 32, .word = "entry"},
         {.key = "window", .min = 1, .max = kLongest},
         choice("tied", {"no", "yes"}),
         choice("forced", {"no", "yes"}),
         choice("gates", {"half", "random", "compress", "select", "window", "closed"}),
         choice("weights", {"recipe", "onehot", "mean"}),
         choice("logits", {"plain", "lattice"}),
         scale_field(),
         {.key = "beyond", .max = kLongest, .fallback = 0}});
}

std::vector<Int> blocks_of(const Extents& e) {
    ref::CompressShape shape;
    shape.block = e["block"];
    shape.stride = e["stride"];
    std::vector<Int> blocks = e.lengths("seq");
    for (auto& length : blocks) length = shape.blocks_of(length);
    return blocks;
}

std::vector<TensorField> inputs() {
    const std::string query = "seq+ query_heads dim", key = "seq+ kv_heads dim",
                      value = "seq+ kv_heads value_dim", weight = "block kv_heads";
    const auto branch = [](const char* name, const std::string& logical) {
        return TensorField{.name = name,
                           .logical = logical,
                           .forms = {{"tied=yes", "0 kv_heads 0"}},
                           .present = "tied=no"};
    };
    return {
        {.name = "query", .role = Role::query, .logical = query},
        {.name = "key_compress", .role = Role::key, .logical = key},
        {.name = "value_compress", .role = Role::value, .logical = value},
        branch("key_select", key),
        branch("value_select", value),
        branch("key_window", key),
        branch("value_window", value),
        {.name = "key_weight", .role = Role::weight, .logical = weight},
        {.name = "value_weight", .role = Role::weight, .logical = weight},
        {.name = "gate_logits", .logical = "seq+ query_heads branches", .types = {{"", "fp32"}}},
        {.name = "attention_out_grad",
         .role = Role::output_grad,
         .logical = "seq+ query_heads value_dim"}};
}

std::vector<TensorField> tensors() {
    std::vector<TensorField> out = inputs();
    out.push_back({.name = "attention_out",
                   .output = true,
                   .role = Role::output,
                   .logical = "seq+ query_heads value_dim"});
    for (TensorField field : inputs()) {
        if (field.role == Role::output_grad) continue;
        field.name += "_grad";
        field.output = true;
        field.role = Role::other;
        out.push_back(std::move(field));
    }
    return out;
}

/// The tensors that the operators of a run pass on, unpadded and by row and head whatever its order in memory.
std::vector<TensorField> passed_on() {
    std::vector<TensorField> out;
    const auto add = [&](const std::string& name, const char* logical, const char* type = "dtype") {
        out.push_back({.name = name, .output = true, .logical = logical, .types = {{"", type}}});
    };
    const auto add_pair = [&](const std::string& key, const std::string& value, bool blocks) {
        add(key, blocks ? "blocks+ kv_heads dim" : "seq+ kv_heads dim");
        add(value, blocks ? "blocks+ kv_heads value_dim" : "seq+ kv_heads value_dim");
    };
    add_pair("key_blocks", "value_blocks", true);
    add("topk_indices", "seq+ kv_heads count", "int32");
    for (const std::string branch : kBranchNames) {
        add(branch + "_out", "seq+ query_heads value_dim");
        add(branch + "_max", "seq+ query_heads", "fp32");
        add(branch + "_sum", "seq+ query_heads", "fp32");
        add(branch + "_query_grad", "seq+ query_heads dim");
        add_pair(branch + "_key_grad", branch + "_value_grad", false);
    }
    add_pair("key_blocks_grad", "value_blocks_grad", true);
    return out;
}

std::vector<Rule> rules() {
    std::vector<Rule> out = window_rules();
    out.insert(out.end(),
               {value_dim_rule(),
                {{},
                 [](const Extents& e) { return (e["group"] & (e["group"] - 1)) == 0; },
                 "group={group} must be one of 1, 2, 4, 8, 16"},
                {{},
                 [](const Extents& e) { return e["stride"] != e["block"] || e["block"] <= 112; },
                 "block={block} equal to stride must be at most 112"},
                {{},
                 [](const Extents& e) { return e.rows("seq") >= 1; },
                 "seq and beyond: at least one token is needed"}});
    return out;
}

std::optional<std::string> element_rules(const Spec& spec) {
    if (spec.recipe >= Recipe::spiky)
        return fmt::format(
            "data={} may leave the range of a tensor that one operator hands to the next; "
            "allowed: zeros ones ints onehot signs normal cancelling",
            name_of(spec.recipe));
    for (std::size_t i = 0; i < spec.layouts.size(); ++i)
        if (spec.layouts[i] != Layout::dense)
            return fmt::format("{}.layout={}: layouts are for single operators",
                               spec.schema->tensors[i].name, name_of(spec.layouts[i]));
    return std::nullopt;
}

Description describe(std::vector<TensorField> tensors) {
    return resolved(
        {.op = "nsa_module",
         .numbers = fields(),
         .lists = {{"seq", 0, kLongest, 64, "token", "beyond"}},
         .tensors = std::move(tensors),
         .symbols = {query_heads_symbol(),
                     {.name = "branches",
                      .word = "branch",
                      .value = [](const Extents&) { return Int{ref::kModuleBranches}; }},
                     {.name = "blocks", .word = "block", .lengths = blocks_of}},
         .arrays = {{.name = "actual_seq_len", .ends_of = "seq"}},
         .integers = {{"compress_block_size", {}, "block"},
                      {"compress_stride", {}, "stride"},
                      {"select_block_size", {}, "select"},
                      {"select_block_count", {}, "count"},
                      {"window_size", {}, "window"},
                      {"force_blocks", {}, "forced"}},
         .reals = {scale_argument({})},
         .rules = rules(),
         .element_rules = element_rules,
         .build = build_call});
}

}  // namespace

const Description& description() {
    static const Description kDescription = describe(tensors());
    return kDescription;
}

const Description& run_description() {
    static const Description kDescription = [] {
        std::vector<TensorField> all = tensors(), more = passed_on();
        all.insert(all.end(), more.begin(), more.end());
        return describe(std::move(all));
    }();
    return kDescription;
}

}  // namespace attncheck::properties::nsa_module
