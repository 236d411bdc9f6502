#include "properties/case/attention_fields.h"

#include <iterator>
#include <utility>

#include "properties/case/attention_data.h"
#include "properties/case/claims.h"

namespace attncheck::properties {

NumberField choice(const char* key, std::vector<std::string> names) {
    const std::int64_t last = std::ssize(names) - 1;
    return {.key = key, .max = last, .fallback = 0, .names = std::move(names)};
}

NumberField type_field(std::vector<std::string> names) {
    NumberField field = choice("dtype", std::move(names));
    field.fallback = -1;
    return field;
}

std::vector<NumberField> attention_fields(std::vector<NumberField> first, const HeadLimits& most,
                                          std::vector<NumberField> rest) {
    std::vector<NumberField> out = std::move(first);
    out.push_back({.key = "kv_heads", .min = 1, .max = most.heads, .word = "head"});
    out.push_back({.key = "group", .min = 1, .max = most.group});
    for (const char* key : {"dim", "value_dim"})
        out.push_back({.key = key,
                       .min = most.least_width,
                       .max = most.width,
                       .step = most.step,
                       .word = "channel"});
    out.insert(out.end(), std::make_move_iterator(rest.begin()),
               std::make_move_iterator(rest.end()));
    return out;
}

NumberField mask_field(const char* key) { return choice(key, {"absent", "bool", "uint8"}); }

NumberField scale_field() {
    return choice("scale", {"one", "rsqrt", "eighth", "zero", "negative", "tenth", "large"});
}

std::vector<NumberField> softcap_fields() {
    return {{.key = "softcap", .max = 1000, .fallback = 0}, choice("softcap_unit", {"one", "eighth", "tenth"})};
}

double softcap_of(const Extents& extents) {
    constexpr double kParts[] = {1, 8, 10};
    return static_cast<double>(extents["softcap"]) / kParts[extents["softcap_unit"]];
}

Rule softcap_rule() {
    return {.when = "softcap=0", .message = "softcap_unit needs a softcap", .needs = "softcap_unit=one"};
}

NumberField logits_field(std::vector<std::string> leading) {
    std::vector<std::string> names{"plain", "equal"};
    names.insert(names.end(), leading.begin(), leading.end());
    for (const char* offset : {"minus40", "minus120", "minus300", "plus300", "minus20000", "minus200000"})
        names.emplace_back(offset);
    return choice("logits", std::move(names));
}

void add_given_fields(std::vector<NumberField>& fields) {
    fields.push_back(choice("stats", {"reference", "shifted"}));
    fields.push_back(choice("out", {"reference", "perturbed"}));
}

TensorField row_tensor(const char* name, Role role, Axes logical, TensorArgument argument) {
    return {.name = name, .role = role, .logical = logical, .argument = argument};
}

TensorField row_tensor(const char* name, Role role, const std::string& list,
                       const std::string& heads, const std::string& width,
                       TensorArgument argument) {
    return row_tensor(name, role, list + "+ " + heads + " " + width, argument);
}

TensorField statistic(const char* name, Role role, bool gradient, TensorArgument argument) {
    return {.name = name,
            .output = !gradient,
            .derived = gradient,
            .optional = !gradient,
            .role = role,
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

Symbol query_heads_symbol() {
    return {.name = "query_heads", .word = "head", .value = [](const Extents& e) {
                return e["kv_heads"] * e["group"];
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
