// NsaSelectedAttention and NsaSelectedAttentionGrad as data: fields, tensors, arguments and rules.
#include <algorithm>
#include <type_traits>

#include "properties/case/claims.h"
#include "properties/operators/nsa_selected_attention/case.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

constexpr Int kLongest = 1 << 17;  ///< 128 Ki
constexpr Int kMostRows = 1 << 21;
constexpr Int kLargeMask = 300;

std::vector<NumberField> fields(bool gradient) {
    std::vector<NumberField> out{
        {.key = "dtype", .max = 1, .names = {"fp16", "bf16"}},
        {.key = "kv_heads", .min = 1, .max = 128, .word = "head"},
        {.key = "group", .min = 1, .max = 32},
        {.key = "dim", .min = 128, .max = 192, .step = 64, .word = "channel"},
        {.key = "value_dim", .min = 128, .max = 192, .step = 64, .word = "channel"},
        {.key = "block", .min = 16, .max = 128, .step = 16},
        {.key = "count", .min = 1, .max = 32, .word = "entry"},
        {.key = "mask", .max = 2, .fallback = 0, .names = {"absent", "bool", "uint8"}},
        {.key = "mask_shape", .max = 2, .fallback = 0, .names = {"exact", "single", "large"}},
        {.key = "sparse", .max = 2, .step = 2, .fallback = 0},
        {.key = "scale",
         .max = 6,
         .fallback = 0,
         .names = {"one", "rsqrt", "eighth", "zero", "negative", "tenth", "large"}},
        {.key = "topk",
         .max = 11,
         .fallback = 0,
         .names = {"first", "canonical", "ascending", "descending", "shuffled", "scored",
                   "repeated", "same", "diagonal", "future", "shared", "last"}},
        {.key = "logits",
         .max = 7,
         .fallback = 0,
         .names = {"plain", "equal", "dominant", "minus40", "minus120", "minus300", "plus300",
                   "minus20000"}},
        {.key = "beyond_q", .max = kLongest, .fallback = 0},
        {.key = "beyond_kv", .max = kLongest, .fallback = 0}};
    if (!gradient) return out;
    out.push_back({.key = "stats", .max = 1, .fallback = 0, .names = {"reference", "shifted"}});
    out.push_back({.key = "out", .max = 1, .fallback = 0, .names = {"reference", "perturbed"}});
    return out;
}

/// Of the mask, along a list of lengths.
Symbol mask_extent(const char* name, const char* word, const char* list) {
    return {.name = name, .word = word, .value = [list](const Extents& e) {
                switch (static_cast<MaskExtent>(e["mask_shape"])) {
                    case MaskExtent::single:
                        return Int{1};
                    case MaskExtent::large:
                        return kLargeMask;
                    default:
                        return longest(e.lengths(list));
                }
            }};
}

TensorField rows(const char* name, Role role, const char* logical, TensorArgument argument) {
    return {.name = name, .role = role, .logical = logical, .argument = argument};
}

TensorField statistic(const char* name, bool gradient, TensorArgument argument) {
    return {.name = name,
            .output = !gradient,
            .derived = gradient,
            .role = Role::statistic,
            .logical = "q+ query_heads lanes",
            .types = {{"", "fp32"}},
            .argument = argument};
}

template <class A, class R>
void add_tensors(Description& d) {
    constexpr bool gradient = std::is_same_v<A, attncheck_nsa_selected_attention_grad_args>;
    constexpr auto query_heads = "q+ query_heads dim", output_heads = "q+ query_heads value_dim",
                   key_heads = "kv+ kv_heads dim", value_heads = "kv+ kv_heads value_dim";
    auto& t = d.tensors;
    t = {rows("query", Role::query, query_heads, both<&A::query, &R::query>),
         rows("key", Role::key, key_heads, both<&A::key, &R::key>),
         rows("value", Role::value, value_heads, both<&A::value, &R::value>)};
    TensorField out = rows("attention_out", Role::output, output_heads,
                           both<&A::attention_out, &R::attention_out>);
    out.output = !gradient;
    out.derived = gradient;
    const TensorField topk{.name = "topk_indices",
                           .integer = true,
                           .role = Role::list,
                           .logical = "q+ kv_heads count",
                           .types = {{"", "int32"}},
                           .argument = both<&A::topk_indices, &R::topk_indices>},
        mask{.name = "atten_mask",
             .integer = true,
             .role = Role::mask,
             .logical = "mask_rows mask_columns",
             .types = {{"mask=uint8", "uint8"}, {"", "bool"}},
             .present = "mask",
             .argument = both<&A::atten_mask, &R::atten_mask>},
        row_max = statistic("softmax_max", gradient, both<&A::softmax_max, &R::softmax_max>),
        row_sum = statistic("softmax_sum", gradient, both<&A::softmax_sum, &R::softmax_sum>);
    if constexpr (gradient) {
        t.insert(t.end(), {out,
                           rows("attention_out_grad", Role::output_grad, output_heads,
                                both<&A::attention_out_grad, &R::attention_out_grad>),
                           row_max, row_sum, topk, mask});
        for (TensorField field :
             {rows("dq", Role::query_grad, query_heads, both<&A::dq, &R::dq>),
              rows("dk", Role::key_grad, key_heads, both<&A::dk, &R::dk>),
              rows("dv", Role::value_grad, value_heads, both<&A::dv, &R::dv>)}) {
            field.output = true;
            t.push_back(field);
        }
    } else {
        t.insert(t.end(), {topk, mask, row_max, row_sum, out});
    }
}

void add_rules(Description& d) {
    d.rules = {
        {{},
         [](const Extents& e) { return e["query_heads"] <= 128; },
         "kv_heads={kv_heads} times group={group} is more than 128"},
        {{},
         [](const Extents& e) { return e["value_dim"] <= e["dim"]; },
         "value_dim={value_dim} is larger than dim={dim}"},
        {.when = "mask_shape!=exact",
         .message = "mask_shape needs a mask and sparse=2",
         .needs = "mask sparse=2"},
        {.message = "kv length {length} must be 0 or a multiple of block={block} and at least block "
                    "times count={count}",
         .list = "kv",
         .each = [](const Extents& e, std::size_t b) {
             const Int block = e["block"], length = e.lengths("kv")[b];
             return length == 0 || (length % block == 0 && length >= block * e["count"]);
         }}};
    for (const char* list : {"q", "kv"})
        d.rules.push_back({{},
                           [list](const Extents& e) {
                               return e.rows(list) >= 1 && e.rows(list) <= kMostRows;
                           },
                           std::string(list) + " and beyond_" + list +
                               " must give at least 1 row and at most 2 Mi rows"});
}

void add_claims(Description& d) {
    constexpr Int kLargest = 512;  // buffers are really laid out
    d.claims = field_claims(
        {"dtype", "kv_heads", "group", "dim", "value_dim", "block", "count"}, kLargest);
    d.claims.push_back(joint_claim("all.dims", {"dim", "value_dim"}, kLargest));
    // One query head more than the groups have.
    d.claims.push_back(
        {.key = "heads.uneven", .apply = [](Extents& e, Int) { e.claim("uneven", 1); }});
    for (const char* list : {"q", "kv"}) {
        d.claims.push_back(row_claim(list));
        d.claims.push_back(length_claim(list, {"mask_rows", "mask_columns"}));
    }
    // Empty sequences behind the last one, up to this many.
    d.claims.push_back({.key = "sequences",
                        .largest = 1 << 14,
                        .laid_out = false,
                        .apply =
                            [](Extents& e, Int count) {
                                for (const char* list : {"q", "kv"}) {
                                    auto lengths = e.lengths(list);
                                    lengths.resize(static_cast<std::size_t>(
                                        std::max<Int>(std::ssize(lengths), count)));
                                    e.claim_lengths(list, std::move(lengths));
                                }
                            },
                        .shapes = false});
}

/// The rules read the lists. An edit may claim rows that are not there, which would hold block 0.
template <class R>
void take_lists(const Call& call, R& arguments) {
    for (const auto bits : call.tensor("topk_indices").bits)
        arguments.topk_values.push_back(static_cast<std::int32_t>(bits));
    Int claimed = 1;
    for (const auto extent : arguments.topk_indices.shape)
        claimed = extent >= 0 && extent < (1 << 22) && claimed < (1 << 22) ? claimed * extent : 0;
    if (claimed > std::ssize(arguments.topk_values) && claimed < (1 << 24))
        arguments.topk_values.resize(static_cast<std::size_t>(claimed));
}

/// Both directions; A is the C struct, R the arguments of the documented rules.
template <class A, class R>
Description describe(const char* op, ref::Ruling (*rule)(const R&)) {
    Description d;
    d.op = op;
    d.numbers = fields(std::is_same_v<A, attncheck_nsa_selected_attention_grad_args>);
    d.lists = {{"q", 0, kLongest, 1024, "query", "beyond_q"},
               {"kv", 0, kLongest, 1024, "key", "beyond_kv"}};
    d.parallel_lists = true;
    d.symbols = {{.name = "uneven", .value = [](const Extents&) { return Int{0}; }},
                 {.name = "query_heads",
                  .word = "head",
                  .value =
                      [](const Extents& e) { return e["kv_heads"] * e["group"] + e["uneven"]; }},
                 {.name = "lanes", .word = "lane", .value = [](const Extents&) { return Int{8}; }},
                 mask_extent("mask_rows", "row", "q"), mask_extent("mask_columns", "column", "kv")};
    add_tensors<A, R>(d);
    d.arrays = {{"actual_seq_q_len", both<&A::actual_seq_q_len, &R::actual_seq_q_len>,
                 ends_of("q")},
                {"actual_seq_kv_len", both<&A::actual_seq_kv_len, &R::actual_seq_kv_len>,
                 ends_of("kv")}};
    d.texts = {{"input_layout", both<&A::input_layout, &R::input_layout>,
                [](const Extents&) { return "TND"; }}};
    d.integers = {
        {"head_num", both<&A::head_num, &R::head_num>, "query_heads"},
        {"sparse_mode", both<&A::sparse_mode, &R::sparse_mode>, "sparse"},
        {"selected_block_size", both<&A::selected_block_size, &R::selected_block_size>, "block"},
        {"selected_block_count", both<&A::selected_block_count, &R::selected_block_count>,
         "count"}};
    d.reals = {{"scale_value", both<&A::scale_value, &R::scale_value>, [](const Extents& e) {
                    return scale_of(static_cast<ScaleKind>(e["scale"]), e["dim"]);
                }}};
    add_rules(d);
    add_claims(d);
    d.entry = entry_point<A>(rule, take_lists<R>);
    d.element_rules = selected_element_rules;
    d.build = build_selected_call;
    return resolved(std::move(d));
}

}  // namespace

const Description& selected_description(bool gradient) {
    static const Description
        forward = describe<attncheck_nsa_selected_attention_args>(
            "nsa_selected_attention", ref::rule_nsa_selected_attention),
        backward = describe<attncheck_nsa_selected_attention_grad_args>(
            "nsa_selected_attention_grad", ref::rule_nsa_selected_attention_grad);
    return gradient ? backward : forward;
}

}  // namespace attncheck::properties
