#include "properties/case/attention_fields.h"

#include "properties/case/attention_data.h"
#include "properties/case/claims.h"

namespace attncheck::properties {

NumberField mask_field(const char* key) {
    return {.key = key, .max = 2, .fallback = 0, .names = {"absent", "bool", "uint8"}};
}

NumberField scale_field() {
    return {.key = "scale",
            .max = 6,
            .fallback = 0,
            .names = {"one", "rsqrt", "eighth", "zero", "negative", "tenth", "large"}};
}

NumberField logits_field(std::vector<std::string> leading) {
    NumberField field{.key = "logits", .fallback = 0, .names = {"plain", "equal"}};
    field.names.insert(field.names.end(), leading.begin(), leading.end());
    for (const char* offset : {"minus40", "minus120", "minus300", "plus300", "minus20000"})
        field.names.emplace_back(offset);
    field.max = std::ssize(field.names) - 1;
    return field;
}

void add_given_fields(std::vector<NumberField>& fields) {
    fields.push_back({.key = "stats", .max = 1, .fallback = 0, .names = {"reference", "shifted"}});
    fields.push_back({.key = "out", .max = 1, .fallback = 0, .names = {"reference", "perturbed"}});
}

TensorField row_tensor(const char* name, Role role, Axes logical, TensorArgument argument) {
    return {.name = name, .role = role, .logical = logical, .argument = argument};
}

TensorField statistic(const char* name, bool gradient, TensorArgument argument) {
    return {.name = name,
            .output = !gradient,
            .derived = gradient,
            .optional = !gradient,
            .role = Role::statistic,
            .logical = "q+ query_heads lanes",
            .types = {{"", "fp32"}},
            .argument = argument};
}

TensorField mask_tensor(const char* name, const char* key, Axes logical, TensorArgument argument) {
    return {.name = name,
            .integer = true,
            .role = Role::mask,
            .logical = logical,
            .types = {{(std::string(key) + "=uint8").c_str(), "uint8"}, {"", "bool"}},
            .present = key,
            .argument = argument};
}

TensorField as_output(TensorField tensor) {
    tensor.output = true;
    return tensor;
}

RealField scale_argument(RealArgument argument) {
    return {"scale_value", argument, [](const Extents& e) {
                return scale_of(static_cast<ScaleKind>(e["scale"]), e["dim"]);
            }};
}

std::vector<Symbol> uneven_head_symbols() {
    return {
        {.name = "uneven", .value = [](const Extents&) { return std::int64_t{0}; }},
        {.name = "query_heads",
         .word = "head",
         .value = [](const Extents& e) { return e["kv_heads"] * e["group"] + e["uneven"]; }},
        {.name = "lanes", .word = "lane", .value = [](const Extents&) { return std::int64_t{8}; }}};
}

Claim uneven_head_claim() {
    return {.key = "heads.uneven", .apply = [](Extents& e, std::int64_t) { e.claim("uneven", 1); }};
}

Rule value_dim_rule() {
    return {{},
            [](const Extents& e) { return e["value_dim"] <= e["dim"]; },
            "value_dim={value_dim} is larger than dim={dim}"};
}

std::vector<Rule> window_rules() {
    return {{{},
             [](const Extents& e) { return e["stride"] <= e["block"]; },
             "stride={stride} must be at most block={block}"},
            {{},
             [](const Extents& e) {
                 return e["select"] >= e["block"] && e["select"] % e["stride"] == 0;
             },
             "select={select} must be a multiple of stride={stride} and at least block={block}"}};
}

void add_row_rules(std::vector<Rule>& rules, const std::vector<std::string>& lists) {
    for (const std::string& list : lists)
        rules.push_back(
            {{},
             [list](const Extents& e) { return e.rows(list) >= 1 && e.rows(list) <= kMostRows; },
             list + " and beyond_" + list + " must give at least 1 row and at most 2 Mi rows"});
}

}  // namespace attncheck::properties
