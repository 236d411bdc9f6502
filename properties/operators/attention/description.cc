// Attention and AttentionGrad as data: fields, tensors in their layouts, arguments and rules.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <utility>

#include "properties/case/attention_fields.h"
#include "properties/case/claims.h"
#include "properties/operators/attention/case.h"
#include "ref/constraints/attention.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;
using Forward = attncheck_attention_args;
using Gradient = attncheck_attention_grad_args;

constexpr Int kLongest = 1 << 20;
constexpr std::pair<const char*, const char*> kPairForms[] = {
    {"full", "B query_heads q kv"},     {"one_batch", "1 query_heads q kv"},
    {"one_head", "B 1 q kv"},           {"shared", "1 1 q kv"},
    {"per_key", "B 1 1 kv"},            {"head_key", "1 query_heads 1 kv"},
    {"per_query", "B query_heads q 1"}, {"head", "1 query_heads 1 1"}};

// ---- arguments: the forward's rules are a member of the gradient's ----

ref::AttentionArguments& forward_of(const Forward*, void* ruled) {
    return *static_cast<ref::AttentionArguments*>(ruled);
}
ref::AttentionArguments& forward_of(const Gradient*, void* ruled) {
    return static_cast<ref::AttentionGradArguments*>(ruled)->forward;
}

template <class A, auto Given, auto Ruled>
constexpr auto in_both = Argument<typename MemberOf<Given>::Value, typename MemberOf<Ruled>::Value>{
    MemberOf<Given>::put, MemberOf<Given>::get,
    [](void* ruled, typename MemberOf<Ruled>::Value value) {
        forward_of(static_cast<const A*>(nullptr), ruled).*Ruled = std::move(value);
    }};

// ---- fields ----

NumberField pair_field(const char* key) {
    std::vector<std::string> names{"none"};
    for (const auto& [name, shape] : kPairForms) names.emplace_back(name);
    return choice(key, std::move(names));
}

std::vector<NumberField> fields(bool gradient) {
    const auto window = [](const char* key) {
        return NumberField{.key = key, .min = -1, .max = kLongest, .fallback = -1};
    };
    const std::vector<NumberField> softcap = softcap_fields();
    std::vector<NumberField> out = attention_fields(
        {type_field(), {.key = "layout", .max = 3, .names = {"bshd", "bhsd", "sbhd", "packed"}}},
        {.heads = 256, .group = 256, .width = 1024},
        {scale_field(),
         logits_field(), softcap[0], softcap[1],
         window("window_left"),
         window("window_right"),
         choice("align", {"top_left", "bottom_right"}),
         pair_field("bias"),
         choice("bias_type", {"fp32", "input"}),
         choice("bias_values", {"normal", "hides", "far", "masks"}),
         pair_field("mask"),
         choice("kv_length", {"none", "all", "some", "empty"}),
         choice("hidden_keys", {"numbers", "nan"}),
         choice("sink", {"none", "normal", "large", "low", "mixed"}),
         choice("lse", {"given", "absent"})});
    if (!gradient) return out;
    out.push_back(choice("out", {"reference", "perturbed"}));
    out.push_back(choice("dbias", {"given", "absent"}));
    out.push_back(choice("dsink", {"given", "absent"}));
    return out;
}

// ---- tensors ----

/// Indexed by row, head and channel.
TensorField rows(const char* name, Role role, const std::string& row, const std::string& heads,
                 const std::string& width, TensorArgument argument) {
    TensorField tensor = row_tensor(name, role, row, heads, width, argument);
    const std::string shape = "B " + row + " " + heads + " " + width;
    tensor.forms = {{.when = "layout=bshd", .shape = shape, .repeated = 2},
                    {.when = "layout=bhsd",
                     .shape = shape,
                     .strides = "B " + heads + " " + row + " " + width,
                     .repeated = 2},
                    {.when = "layout=sbhd",
                     .shape = shape,
                     .strides = row + " B " + heads + " " + width,
                     .repeated = 2},
                    {"layout=packed", row + "+ " + heads + " " + width}};
    return tensor;
}

TensorField lse_tensor(bool gradient, TensorArgument argument) {
    return {.name = "lse",
            .output = !gradient,
            .derived = gradient,
            .optional = !gradient,
            .role = Role::lse,
            .logical = "q+ query_heads",
            .forms = {{"layout!=packed", "B query_heads q"}, {"layout=packed", "query_heads q+"}},
            .types = {{"", "fp32"}},
            .present = "lse=given",
            .argument = argument};
}

/// A bias, its gradient or a mask. Where an extent is 1, so that one number serves all, the stride
/// is 0.
TensorField pairs(const char* name, Role role, const std::string& key, const char* present,
                  std::vector<TypeRule> types, TensorArgument argument) {
    TensorField tensor{.name = name,
                       .output = role == Role::bias_grad,
                       .integer = role == Role::mask,
                       .optional = role == Role::bias_grad,
                       .role = role,
                       .types = std::move(types),
                       .present = present,
                       .argument = argument};
    for (const auto& [form, shape] : kPairForms) {
        std::string strides = shape;
        for (auto one = strides.find('1'); one != strides.npos; one = strides.find('1'))
            strides.erase(one, 1);
        tensor.forms.push_back(
            {.when = (key + "=" + form).c_str(), .shape = shape, .strides = strides});
    }
    return tensor;
}

TensorField sinks(const char* name, Role role, const char* present, TensorArgument argument) {
    return {.name = name,
            .output = role == Role::sink_grad,
            .optional = role == Role::sink_grad,
            .role = role,
            .forms = {{"", "query_heads"}},
            .types = {{"", "fp32"}},
            .present = present,
            .argument = argument};
}

template <class A>
void add_tensors(Description& d) {
    using R = ref::AttentionArguments;
    constexpr bool gradient = std::is_same_v<A, Gradient>;
    const std::string n1 = "query_heads", n2 = "kv_heads";
    const std::vector<TypeRule> bias_type{{"bias_type=input", "dtype"}, {"", "fp32"}};
    auto& t = d.tensors;
    if constexpr (gradient)
        t = {rows("dout", Role::output_grad, "q", n1, "value_dim",
                  both<&A::dout, &ref::AttentionGradArguments::dout>)};
    t.insert(t.end(),
             {rows("query", Role::query, "q", n1, "dim", in_both<A, &A::query, &R::query>),
              rows("key", Role::key, "kv", n2, "dim", in_both<A, &A::key, &R::key>),
              rows("value", Role::value, "kv", n2, "value_dim", in_both<A, &A::value, &R::value>),
              pairs("bias", Role::bias, "bias", "bias", bias_type, in_both<A, &A::bias, &R::bias>),
              pairs("mask", Role::mask, "mask", "mask", {{"", "bool"}},
                    in_both<A, &A::mask, &R::mask>),
              sinks("sink", Role::sink, "sink", in_both<A, &A::sink, &R::sink>),
              rows("out", Role::output, "q", n1, "value_dim", in_both<A, &A::out, &R::out>),
              lse_tensor(gradient, in_both<A, &A::lse, &R::lse>)});
    TensorField& out = t[t.size() - 2];
    (gradient ? out.derived : out.output) = true;
    if constexpr (gradient) {
        using G = ref::AttentionGradArguments;
        for (TensorField tensor :
             {rows("dq", Role::query_grad, "q", n1, "dim", both<&A::dq, &G::dq>),
              rows("dk", Role::key_grad, "kv", n2, "dim", both<&A::dk, &G::dk>),
              rows("dv", Role::value_grad, "kv", n2, "value_dim", both<&A::dv, &G::dv>)})
            t.push_back(as_output(std::move(tensor)));
        t.push_back(pairs("dbias", Role::bias_grad, "bias", "bias dbias=given", bias_type,
                          both<&A::dbias, &G::dbias>));
        t.push_back(
            sinks("dsink", Role::sink_grad, "sink dsink=given", both<&A::dsink, &G::dsink>));
    }
}

template <class A>
void add_host_arguments(Description& d) {
    using R = ref::AttentionArguments;
    const auto starts = [](const char* list) {
        return [list](const Extents& e) { return row_starts(e.lengths(list)); };
    };
    d.arrays = {{"cu_seqlens_q", in_both<A, &A::cu_seqlens_q, &R::cu_seqlens_q>, starts("q"),
                 "layout=packed"},
                {"cu_seqlens_kv", in_both<A, &A::cu_seqlens_kv, &R::cu_seqlens_kv>, starts("kv"),
                 "layout=packed"},
                {"kv_length", in_both<A, &A::kv_length, &R::kv_length>, used_keys, "kv_length"}};
    d.integers = {{"window_left", in_both<A, &A::window_left, &R::window_left>, "left"},
                  {"window_right", in_both<A, &A::window_right, &R::window_right>, "right"},
                  {"align", in_both<A, &A::align, &R::align>, "align"}};
    RealField scale = scale_argument(in_both<A, &A::scale, &R::scale>);
    scale.name = "scale";
    scale.tried = {"nan", "inf", "-inf", "0", "-1"};
    d.reals = {scale,
               {"softcap", in_both<A, &A::softcap, &R::softcap>,
                softcap_of,
                {"nan", "inf", "-1", "-1e-30", "0", "30"}}};
}

void add_rules(Description& d, bool gradient) {
    const auto all_equal = [](const std::vector<Int>& lengths) {
        return std::ranges::adjacent_find(lengths, std::not_equal_to<>()) == lengths.end();
    };
    d.rules = {
        {"layout!=packed",
         [=](const Extents& e) { return all_equal(e.lengths("q")) && all_equal(e.lengths("kv")); },
         "all batches have the same length unless layout=packed"},
        {.when = "layout=packed",
         .message = "bias, mask and kv_length are for padded layouts",
         .needs = "bias=none mask=none kv_length=none"},
        {"", [](const Extents& e) { return e["query_heads"] <= 256; },
         "kv_heads * group is more than 256"},
        {.when = "bias=none",
         .message = "bias_type and bias_values need a bias",
         .needs = "bias_type=fp32 bias_values=normal"},
        {.when = "kv_length=none,all",
         .message = "hidden_keys needs keys that kv_length hides",
         .needs = "hidden_keys=numbers"},
        softcap_rule()};
    if (!gradient) return;
    d.rules.push_back({.when = "bias=none", .message = "dbias needs a bias", .needs = "dbias=given"});
    d.rules.push_back({.when = "sink=none", .message = "dsink needs a sink", .needs = "dsink=given"});
}

void claim_more_batches(Extents& e, Int count) {
    claim_batches(e, count, e["layout"] == static_cast<Int>(NeutralLayout::packed));
}

std::optional<std::string> element_rules(const Spec& spec) {
    constexpr Int kMostElements = 1 << 26;  // biases and masks are really laid out
    const Extents extents = extents_of(spec);
    const auto shapes = shapes_of(extents);
    for (std::size_t i = 0; i < shapes.size(); ++i) {
        const TensorField& tensor = spec.schema->tensors[i];
        if (std::accumulate(shapes[i].begin(), shapes[i].end(), Int{1}, std::multiplies<>()) >
            kMostElements)
            return tensor.name + " is too large for a case";
        if (!repeats(spec.layouts[i])) continue;
        if (tensor.logical.empty())
            return fmt::format("{}.layout={}: extents of 1 say that one number serves all", tensor.name, name_of(spec.layouts[i]));
        // Hidden rows would be the rows that are not.
        if ((tensor.role == Role::key || tensor.role == Role::value) && spec.layouts[i] != Layout::broadcast && extents["hidden_keys"] != 0)
            return fmt::format("{}.layout={}: rows that are hidden as NaN are no others", tensor.name, name_of(spec.layouts[i]));
    }
    const ref::Ruling ruling = rule(outline_of(extents));
    return ruling.accepted() ? std::nullopt : std::optional(ruling.message);
}

template <class A, class R>
Description describe(const char* op, ref::Ruling (*rule)(const R&)) {
    constexpr bool gradient = std::is_same_v<A, Gradient>;
    Description d{.op = op, .numbers = fields(gradient)};
    d.lists = {{"q", 0, kLongest, 2048, "query"}, {"kv", 0, kLongest, 2048, "key"}};
    d.parallel_lists = true;
    d.repeats_anywhere = true;
    d.symbols = uneven_head_symbols();
    // Limits of a window are no enumeration, whose every value validation would try.
    d.symbols.push_back(
        {.name = "left", .value = [](const Extents& e) { return e["window_left"]; }});
    d.symbols.push_back(
        {.name = "right", .value = [](const Extents& e) { return e["window_right"]; }});
    add_tensors<A>(d);
    add_host_arguments<A>(d);
    add_rules(d, gradient);
    for (const char* key : {"all.dim", "all.value_dim", "all.kv_heads", "all.group", "all.q",
                            "all.kv", "all.dtype"})
        d.claims.push_back({.key = key, .largest = 4096});  // buffers are really laid out
    d.claims.push_back({.key = "all.batches", .largest = 4096, .apply = claim_more_batches,
                        .tried = [](const Extents&) { return std::vector<Int>{0, 1, 2, 7}; }});
    d.claims.push_back(uneven_head_claim());
    d.entry = entry_point<A>(rule);
    d.element_rules = element_rules;
    d.build = build_neutral_call;
    return resolved(std::move(d));
}

/// Keys that are used of a sequence: any number; one of four around whole tiles, where a kernel has no last partial one.
Int some_keys(std::uint64_t hash, Int length) {
    const Int keys = static_cast<Int>(hash % static_cast<std::uint64_t>(length + 1));
    const std::uint64_t kind = mix(hash);
    if (kind % 8 == 1) return std::max<Int>(length - 1, 0);
    if (kind % 8 > 1 || keys < 16) return keys;
    Int tile = Int{16} << (kind >> 8) % 5;
    while (tile > keys) tile /= 2;
    return keys / tile * tile;
}

}  // namespace

std::vector<Int> used_keys(const Extents& e) {
    const auto kind = static_cast<KvLength>(e["kv_length"]);
    std::vector<Int> used = e.lengths("kv");
    if (kind == KvLength::all) return used;
    for (std::size_t b = 0; b < used.size(); ++b)
        used[b] = kind == KvLength::empty && b == 0
                      ? 0
                      : some_keys(mix(e.seed() + 7 * b + 3), used[b]);
    return used;
}

const Description& neutral_description(bool gradient) {
    static const Description
        forward = describe<Forward>("attention", ref::rule_attention),
        backward = describe<Gradient>("attention_grad", ref::rule_attention_grad);
    return gradient ? backward : forward;
}

}  // namespace attncheck::properties
