// FlashAttentionScore and FlashAttentionScoreGrad as data: fields, tensors in their layouts,
// arguments and rules.
#include <algorithm>
#include <string>
#include <type_traits>

#include "properties/case/attention_fields.h"
#include "properties/case/inert_attribute.h"
#include "properties/operators/flash_attention/case.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;


/// The five layouts of rows of `heads` times `width`; `row` is q or kv.
std::vector<Form> row_layouts(const std::string& row, const std::string& heads,
                          const std::string& width) {
    return {{"layout=BSH", "B " + row + " " + heads + "*" + width},
            {"layout=BSND", "B " + row + " " + heads + " " + width},
            {"layout=TND", row + "+ " + heads + " " + width},
            {"layout=SBH", row + " B " + heads + "*" + width},
            {"layout=BNSD", "B " + heads + " " + row + " " + width}};
}

const std::vector<TypeRule> kResult{{"dtype=fp8_e5m2,fp8_e4m3fn", "result"}, {"", "dtype"}};

Int tokens(const Extents& e, const char* key, FlashTokens negative, FlashTokens unlimited) {
    const auto kind = static_cast<FlashTokens>(e["tokens"]);
    if (kind == negative) return -e[key];
    return kind == unlimited || kind == FlashTokens::unlimited ? INT64_MAX : e[key];
}

/// Bytes of the drop mask: a bit for each head, query and key of a sequence.
Int drop_bytes(const Extents& e) {
    const auto &q = e.lengths("q"), &kv = e.lengths("kv");
    Int pairs = 0;  // sequences may be millions
    for (std::size_t b = 0; b < std::min(q.size(), kv.size()); ++b) pairs += q[b] * kv[b];
    return (e["query_heads"] * pairs + 7) / 8;
}

/// Keys that every query of a sequence sees: from those that the last query sees anyway to all.
std::vector<Int> prefixes(const Extents& e) {
    const auto kind = static_cast<FlashPrefix>(e["prefix"]);
    const auto &q = e.lengths("q"), &kv = e.lengths("kv");
    std::vector<Int> out;
    for (std::size_t b = 0; b < q.size(); ++b) {
        const Int high = kv[b], low = std::max<Int>(0, high - q[b]);
        out.push_back(kind == FlashPrefix::lowest ? low
                      : kind == FlashPrefix::full
                          ? high
                          : low + static_cast<Int>(mix(e.seed() + 7 * b) %
                                                   static_cast<std::uint64_t>(high - low + 1)));
    }
    return out;
}

/// Positions of queries and keys may be those of a long document: next to the limits of 16 bits, or
/// beyond them, for both or for the queries alone. Or they lie apart, by more than the significand of a half has.
Int start_of_document(std::uint64_t seed, bool is_query) {
    switch (mix(seed ^ 0x57a27) % 16) {
        case 0:
            return 65'520;
        case 1:
            return Int{1} << 20;
        case 2:
            return is_query ? 32'750 : 0;
        case 3:
        case 4:
            return is_query ? 300 : 0;
        case 5:
        case 6:
            return is_query ? 0 : 3'000;
        default:
            return 0;
    }
}

std::vector<Int> query_start(const Extents& e) {
    return {start_of_document(e.seed(), true) + static_cast<Int>(mix(e.seed()) % 40)};
}

/// Mode 8 wants the first diagonal to meet.
std::vector<Int> key_start(const Extents& e) {
    if (e["start"] == static_cast<Int>(FlashStart::both) && e["sparse"] == 8 && e["mask"] != 0 &&
        e.sequences() > 0)
        return {query_start(e)[0] + e.lengths("q")[0] - e.lengths("kv")[0]};
    return {start_of_document(e.seed(), false) + static_cast<Int>(mix(e.seed() + 1) % 40)};
}

std::vector<NumberField> fields(bool gradient) {
    std::vector<NumberField> out = attention_fields(
        {type_field(), {.key = "layout", .max = 4, .names = {"BSH", "BSND", "TND", "SBH", "BNSD"}}},
        {.heads = 256, .group = 256, .width = 512},
        {{.key = "rope", .max = 512, .step = 8, .fallback = 0, .word = "channel"},
         mask_field("mask"),
         choice("mask_form", {"single", "one", "batch", "head", "packed"}),
         {.key = "sparse", .max = 8, .fallback = 0},
         {.key = "pre", .max = kLongest, .fallback = 0},
         {.key = "next", .max = kLongest, .fallback = 0},
         choice("tokens", {"given", "pre_negative", "next_negative", "pre_unlimited",
                           "next_unlimited", "unlimited"}),
         choice("prefix", {"lowest", "full", "random", "absent"}),
         choice("pse", {"absent", "plain", "one_batch", "one_row", "one_batch_row", "compressed",
                        "compressed_batch", "flat_keys", "flat_pairs", "slopes", "batch_slopes"}),
         {.key = "pse_type", .max = 3, .fallback = 1},
         choice("start", {"absent", "both", "query", "key"}),
         choice("drop", {"absent", "random", "keep_all", "drop_all"}),
         choice("keep", {"one", "half", "nine_tenths", "tenth", "hundredth", "thousandth"}),
         scale_field(),
         logits_field(),
         choice("stats_order", {"blocks", "same_as_input"}),
         {.key = kInertField, .max = 2, .fallback = 0},
         {.key = "beyond_q", .max = kLongest, .fallback = 0},
         {.key = "beyond_kv", .max = kLongest, .fallback = 0}});
    if (!gradient) return out;
    out[0].max = 4;
    out[0].names.insert(out[0].names.end(), {"fp8_e5m2", "fp8_e4m3fn"});
    add_given_fields(out);
    out.push_back(choice("result", {"fp16", "bf16", "fp32"}));
    return out;
}

/// Tensors that are indexed by row, head and channel.
TensorField rows(const char* name, Role role, const std::string& row, const std::string& heads,
                 const std::string& width, TensorArgument argument) {
    TensorField tensor = row_tensor(name, role, row, heads, width, argument);
    tensor.forms = row_layouts(row, heads, width);
    if (width == "rope") tensor.present = "rope";
    return tensor;
}

std::vector<Form> bias_forms() {
    return {{"pse=plain", "B query_heads q kv"},     {"pse=one_batch", "1 query_heads q kv"},
            {"pse=one_row", "B query_heads 1 kv"},   {"pse=one_batch_row", "1 query_heads 1 kv"},
            {"pse=compressed", "B query_heads 1024 kv"},
            {"pse=compressed_batch", "1 query_heads 1024 kv"},
            {"pse=flat_keys", "+(query_heads kv)"},  {"pse=flat_pairs", "+(query_heads q kv)"},
            {"pse=slopes", "query_heads"},           {"pse=batch_slopes", "B query_heads"}};
}

std::vector<Form> mask_forms() {
    return {{.when = "sparse=6", .shape = "3072 2048", .fixed = true},
            {.when = "sparse=2,3,4,7,8", .shape = "2048 2048", .fixed = true},
            {"mask_form=single", "q kv"},
            {"mask_form=one", "1 1 q kv"},
            {"mask_form=batch", "B 1 q kv"},
            {"mask_form=head", "B query_heads q kv"},
            {"mask_form=packed", "+(q) +(kv)"}};
}

TensorField laid_out_statistic(const char* name, Role role, bool gradient, TensorArgument argument) {
    TensorField tensor = statistic(name, role, gradient, argument);
    tensor.forms = {{"layout!=TND", "B query_heads q lanes"},
                    {"stats_order=blocks", "q+ query_heads lanes", "+(query_heads q) lanes"},
                    {"", "q+ query_heads lanes"}};
    return tensor;
}

template <class A, class R>
void add_tensors(Description& d, TensorArgument pse, TensorArgument dy) {
    constexpr bool gradient = std::is_same_v<A, attncheck_flash_attention_score_grad_args>;
    auto& t = d.tensors;
    const std::string n1 = "query_heads", n2 = "kv_heads";
    t = {rows("query", Role::query, "q", n1, "dim", both<&A::query, &R::query>),
         rows("query_rope", Role::query, "q", n1, "rope", both<&A::query_rope, &R::query_rope>),
         rows("key", Role::key, "kv", n2, "dim", both<&A::key, &R::key>),
         rows("key_rope", Role::key, "kv", n2, "rope", both<&A::key_rope, &R::key_rope>),
         rows("value", Role::value, "kv", n2, "value_dim", both<&A::value, &R::value>)};
    if (gradient) t.push_back(rows("dy", Role::output_grad, "q", n1, "value_dim", dy));
    t.push_back({.name = gradient ? "pse_shift" : "real_shift",
                 .role = Role::bias,
                 .forms = bias_forms(),
                 .types = {{"pse_type>=2", "fp32"}, {"", "dtype"}},
                 .present = "pse",
                 .argument = pse});
    if (gradient) t.back().types = {{"pse_type>=2", "fp32"}, kResult[0], kResult[1]};
    t.push_back({.name = "drop_mask",
                 .integer = true,
                 .role = Role::drop,
                 .forms = {{"", "drop_bytes"}},
                 .types = {{"", "uint8"}},
                 .present = "drop",
                 .argument = both<&A::drop_mask, &R::drop_mask>});
    t.push_back({.name = "padding_mask",
                 .derived = true,
                 .forms = {{"", "0"}},
                 .types = {{"", "uint8"}},
                 .present = "sparse>=9",  // reserved
                 .argument = both<&A::padding_mask, &R::padding_mask>});
    t.push_back(mask_tensor("atten_mask", "mask", {}, both<&A::atten_mask, &R::atten_mask>));
    t.back().forms = mask_forms();
    t.push_back(
        laid_out_statistic("softmax_max", Role::row_max, gradient, both<&A::softmax_max, &R::softmax_max>));
    t.push_back(
        laid_out_statistic("softmax_sum", Role::row_sum, gradient, both<&A::softmax_sum, &R::softmax_sum>));
    if constexpr (gradient) {
        TensorField given = rows("attention_in", Role::output, "q", n1, "value_dim",
                                 both<&A::attention_in, &R::attention>);
        given.derived = true;
        given.types = kResult;
        t.push_back(given);
        for (TensorField tensor :
             {rows("dq", Role::query_grad, "q", n1, "dim", both<&A::dq, &R::dq>),
              rows("dq_rope", Role::query_grad, "q", n1, "rope", both<&A::dq_rope, &R::dq_rope>),
              rows("dk", Role::key_grad, "kv", n2, "dim", both<&A::dk, &R::dk>),
              rows("dk_rope", Role::key_grad, "kv", n2, "rope", both<&A::dk_rope, &R::dk_rope>),
              rows("dv", Role::value_grad, "kv", n2, "value_dim", both<&A::dv, &R::dv>)}) {
            tensor.types = kResult;
            t.push_back(as_output(std::move(tensor)));
        }
    } else {
        t.push_back(as_output(rows("attention_out", Role::output, "q", n1, "value_dim",
                                both<&A::attention_out, &R::attention>)));
    }
}

template <class A, class R>
void add_host_arguments(Description& d, const char* order, TextArgument order_argument) {
    d.arrays = {{"prefix", both<&A::prefix, &R::prefix>, prefixes,
                 "mask sparse=5,6 prefix!=absent"},
                {"actual_seq_q_len", both<&A::actual_seq_q_len, &R::actual_seq_q_len>,
                 {}, "layout=TND", "q"},
                {"actual_seq_kv_len", both<&A::actual_seq_kv_len, &R::actual_seq_kv_len>,
                 {}, "layout=TND", "kv"},
                {"q_start_idx", both<&A::q_start_idx, &R::q_start_idx>, query_start,
                 "start=both,query"},
                {"kv_start_idx", both<&A::kv_start_idx, &R::kv_start_idx>, key_start,
                 "start=both,key"}};
    d.texts = {{"input_layout", both<&A::input_layout, &R::input_layout>, name_in("layout"),
                {"bsh", "BSND", "BSH", "SBH", "BNSD", "TND", "", "BSHX", "TNDX", "ND"}},
               {order, order_argument,
                [](const Extents& e) { return e["stats_order"] == 1 ? "same_as_input" : ""; },
                {"same_as_input", "", "same", "SAME_AS_INPUT", "same_as_inputx"}}};
    d.integers = {{"pre_tokens", both<&A::pre_tokens, &R::pre_tokens>, "pre_tokens"},
                  {"next_tokens", both<&A::next_tokens, &R::next_tokens>, "next_tokens"},
                  {.name = "head_num",
                   .argument = both<&A::head_num, &R::head_num>,
                   .value = "query_heads",
                   .largest = 256},
                  {.name = kInertName,
                   .argument = unruled<kInertMember<A>>,
                   .value = kInertField,
                   .inert = true},
                  {"sparse_mode", both<&A::sparse_mode, &R::sparse_mode>, "sparse"},
                  {"pse_type", both<&A::pse_type, &R::pse_type>, "pse_type"}};
    RealField scale = scale_argument(both<&A::scale_value, &R::scale_value>);
    scale.tried = {"nan", "inf", "0", "-1"};
    d.reals = {scale,
               {"keep_prob", both<&A::keep_prob, &R::keep_prob>,
                [](const Extents& e) { return flash_keep_prob(e["keep"]); },
                {"0", "-0.5", "1.5", "nan", "1e-50", "1", "0.5", "0.999999999999", "1.00000001", "1.0000001"}}};
}

void add_symbols(Description& d) {
    d.lists = {{"q", 0, kLongest, 2048, "query", "beyond_q"},
               {"kv", 0, kLongest, 2048, "key", "beyond_kv"}};
    d.parallel_lists = true;
    d.symbols = {
        query_heads_symbol(),
        {.name = "lanes", .word = "lane", .value = [](const Extents&) { return Int{8}; }},
        {.name = "drop_bytes", .value = drop_bytes},
        {.name = "pre_tokens",
         .value =
             [](const Extents& e) {
                 return tokens(e, "pre", FlashTokens::pre_negative, FlashTokens::pre_unlimited);
             }},
        {.name = "next_tokens", .value = [](const Extents& e) {
             return tokens(e, "next", FlashTokens::next_negative, FlashTokens::next_unlimited);
         }}};
}

void take_profile(const Call& call, ref::FlashAttentionArguments& arguments) {
    arguments.ascend950 = has_fp8(call.profile);
}

/// Both directions; A is the C struct.
template <class A>
Description describe(const char* op, TensorArgument pse, TensorArgument dy, const char* order,
                     TextArgument order_argument,
                     ref::Ruling (*rule)(const ref::FlashAttentionArguments&)) {
    using R = ref::FlashAttentionArguments;
    constexpr bool gradient = std::is_same_v<A, attncheck_flash_attention_score_grad_args>;
    Description d{.op = op, .numbers = fields(gradient)};
    add_symbols(d);
    add_tensors<A, R>(d, pse, dy);
    add_host_arguments<A, R>(d, order, order_argument);
    add_flash_rules(d, gradient);
    add_flash_claims(d);
    d.entry = entry_point<A>(rule, take_profile);
    d.element_rules = flash_element_rules;
    d.build = build_flash_call;
    return resolved(std::move(d));
}

}  // namespace

const Description& flash_description(bool gradient) {
    using A = attncheck_flash_attention_score_args;
    using G = attncheck_flash_attention_score_grad_args;
    using R = ref::FlashAttentionArguments;
    static const Description
        forward = describe<A>("flash_attention_score", both<&A::real_shift, &R::pse>, {},
                              "softmax_out_layout",
                              both<&A::softmax_out_layout, &R::softmax_layout>,
                              ref::rule_flash_attention_score),
        backward = describe<G>("flash_attention_score_grad", both<&G::pse_shift, &R::pse>,
                               both<&G::dy, &R::dy>, "softmax_in_layout",
                               both<&G::softmax_in_layout, &R::softmax_layout>,
                               ref::rule_flash_attention_score_grad);
    return gradient ? backward : forward;
}

}  // namespace attncheck::properties
