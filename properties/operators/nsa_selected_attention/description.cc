// NsaSelectedAttention and NsaSelectedAttentionGrad as data: fields, tensors, arguments and rules.
#include <algorithm>
#include <type_traits>

#include "properties/case/attention_fields.h"
#include "properties/case/claims.h"
#include "properties/case/values.h"
#include "properties/operators/nsa_selected_attention/case.h"
#include "ref/attention/rounding_noise.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

constexpr Int kLongest = 1 << 17;  ///< 128 Ki
constexpr Int kMostSequences = 1024;
constexpr Int kLargeMask = 300;

std::vector<NumberField> fields(bool gradient) {
    std::vector<NumberField> out = attention_fields(
        {type_field({"fp16", "bf16"})},
        {.heads = 128, .group = 32, .width = 192, .least_width = 128, .step = 64},
        {{.key = "block", .min = 16, .max = 128, .step = 16},
         {.key = "count", .min = 1, .max = 32, .word = "entry"},
         mask_field("mask"),
         choice("mask_shape", {"exact", "single", "large"}),
         {.key = "sparse", .max = 2, .step = 2, .fallback = 0},
         scale_field(),
         choice("topk", {"first", "canonical", "ascending", "descending", "shuffled", "scored",
                         "repeated", "same", "diagonal", "future", "shared", "last"}),
         logits_field(),
         {.key = "beyond_q", .max = kLongest, .fallback = 0},
         {.key = "beyond_kv", .max = kLongest, .fallback = 0}});
    if (gradient) add_given_fields(out);
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

template <class A, class R>
void add_tensors(Description& d) {
    constexpr bool gradient = std::is_same_v<A, attncheck_nsa_selected_attention_grad_args>;
    constexpr auto query_heads = "q+ query_heads dim", output_heads = "q+ query_heads value_dim",
                   key_heads = "kv+ kv_heads dim", value_heads = "kv+ kv_heads value_dim";
    auto& t = d.tensors;
    t = {row_tensor("query", Role::query, query_heads, both<&A::query, &R::query>),
         row_tensor("key", Role::key, key_heads, both<&A::key, &R::key>),
         row_tensor("value", Role::value, value_heads, both<&A::value, &R::value>)};
    TensorField out = row_tensor("attention_out", Role::output, output_heads,
                                 both<&A::attention_out, &R::attention_out>);
    out.output = !gradient;
    out.derived = gradient;
    const TensorField topk{.name = "topk_indices",
                           .integer = true,
                           .role = Role::list,
                           .logical = "q+ kv_heads count",
                           .types = {{"", "int32"}},
                           .argument = both<&A::topk_indices, &R::topk_indices>},
        mask = mask_tensor("atten_mask", "mask", "mask_rows mask_columns",
                           both<&A::atten_mask, &R::atten_mask>),
        row_max = statistic("softmax_max", Role::row_max, gradient, both<&A::softmax_max, &R::softmax_max>),
        row_sum = statistic("softmax_sum", Role::row_sum, gradient, both<&A::softmax_sum, &R::softmax_sum>);
    if constexpr (gradient) {
        t.insert(t.end(), {out,
                           row_tensor("attention_out_grad", Role::output_grad, output_heads,
                                      both<&A::attention_out_grad, &R::attention_out_grad>),
                           row_max, row_sum, topk, mask});
        for (TensorField field :
             {row_tensor("dq", Role::query_grad, query_heads, both<&A::dq, &R::dq>),
              row_tensor("dk", Role::key_grad, key_heads, both<&A::dk, &R::dk>),
              row_tensor("dv", Role::value_grad, value_heads, both<&A::dv, &R::dv>)})
            t.push_back(as_output(std::move(field)));
    } else {
        t.insert(t.end(), {topk, mask, row_max, row_sum, out});
    }
}

void add_rules(Description& d) {
    d.rules = {
        {{},
         [](const Extents& e) { return e["query_heads"] <= 128; },
         "kv_heads={kv_heads} times group={group} is more than 128"},
        value_dim_rule(),
        {.when = "mask_shape!=exact",
         .message = "mask_shape needs a mask and sparse=2",
         .needs = "mask sparse=2"},
        {.message =
             "kv length {length} must be 0 or a multiple of block={block} and at least block "
             "times count={count}",
         .list = "kv",
         .each = [](const Extents& e, std::size_t b) {
             const Int block = e["block"], length = e.lengths("kv")[b];
             return length == 0 || (length % block == 0 && length >= block * e["count"]);
         }}};
    add_row_rules(d.rules, {"q", "kv"});
}

void add_claims(Description& d) {
    constexpr Int kLargest = 512;  // buffers are really laid out
    d.claims = field_claims({"dtype", "kv_heads", "group", "dim", "value_dim", "block", "count"},
                            kLargest);
    d.claims.push_back(joint_claim("all.dims", {"dim", "value_dim"}, kLargest));
    d.claims.push_back(uneven_head_claim());
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
                        .shapes = false,
                        .tried =
                            [](const Extents&) {
                                return std::vector<Int>{kMostSequences, kMostSequences + 1};
                            }});
}

/// The rules read the lists as they are passed: an edit may leave rows out, or claim rows that are
/// not there, which would hold block 0.
template <class R>
void take_lists(const Call& call, R& arguments) {
    const Tensor& lists = call.tensor("topk_indices");
    const std::vector<Int>&shape = arguments.topk_indices.shape, &laid_out = lists.buffer_shape;
    Int claimed = 1;
    for (const auto extent : shape)
        claimed = extent >= 0 && extent < (1 << 22) && claimed < (1 << 22) ? claimed * extent : 0;
    if (claimed >= (1 << 24)) return;
    arguments.topk_values.assign(static_cast<std::size_t>(claimed), 0);
    std::vector<Int> at(shape.size());
    for (Int& value : arguments.topk_values) {
        Int offset = lists.bits.empty() ? -1 : 0;
        for (std::size_t k = 0; k < at.size() && offset >= 0; ++k)
            offset = k < laid_out.size() && at[k] < laid_out[k] ? offset * laid_out[k] + at[k] : -1;
        if (offset >= 0 && offset < std::ssize(lists.bits))
            value = static_cast<std::int32_t>(lists.bits[static_cast<std::size_t>(offset)]);
        for (std::size_t k = at.size(); k-- > 0;) {  // the next place
            if (++at[k] < shape[k]) break;
            at[k] = 0;
        }
    }
}

/// Both directions; A is the C struct, R the arguments of the documented rules.
template <class A, class R>
Description describe(const char* op, ref::Ruling (*rule)(const R&)) {
    Description d;
    d.op = op;
    d.numbers = fields(std::is_same_v<A, attncheck_nsa_selected_attention_grad_args>);
    d.lists = {{"q", 0, kLongest, kMostSequences, "query", "beyond_q"},
               {"kv", 0, kLongest, kMostSequences, "key", "beyond_kv"}};
    d.parallel_lists = true;
    d.repeats_anywhere = true;
    d.symbols = uneven_head_symbols();
    d.symbols.push_back(mask_extent("mask_rows", "row", "q"));
    d.symbols.push_back(mask_extent("mask_columns", "column", "kv"));
    add_tensors<A, R>(d);
    d.arrays = {{.name = "actual_seq_q_len",
                 .argument = both<&A::actual_seq_q_len, &R::actual_seq_q_len>,
                 .ends_of = "q"},
                {.name = "actual_seq_kv_len",
                 .argument = both<&A::actual_seq_kv_len, &R::actual_seq_kv_len>,
                 .ends_of = "kv"}};
    d.texts = {{"input_layout", both<&A::input_layout, &R::input_layout>,
                [](const Extents&) { return "TND"; }}};
    d.integers = {
        {"head_num", both<&A::head_num, &R::head_num>, "query_heads", 128},
        {"sparse_mode", both<&A::sparse_mode, &R::sparse_mode>, "sparse"},
        {"selected_block_size", both<&A::selected_block_size, &R::selected_block_size>, "block"},
        {"selected_block_count", both<&A::selected_block_count, &R::selected_block_count>, "count",
         32}};
    d.reals = {scale_argument(both<&A::scale_value, &R::scale_value>)};
    add_rules(d);
    add_claims(d);
    d.entry = entry_point<A>(rule, take_lists<R>);
    d.element_rules = selected_element_rules;
    d.build = build_selected_call;
    return resolved(std::move(d));
}

}  // namespace

std::optional<std::string> selected_element_rules(const Spec& spec) {
    if (spec.overrides.empty()) return std::nullopt;
    const int topk = tensor_with(Role::list, *spec.schema);
    const auto places = ref::sequence_places(spec.lists[0], extents_of(spec).rows("q"));
    for (const auto& [element, value] : spec.overrides) {
        if (element.tensor != topk) continue;
        const std::int64_t sequence = places[static_cast<std::size_t>(element.index[0])].sequence;
        if (sequence < 0) continue;
        const std::int64_t length = spec.lists[1][static_cast<std::size_t>(sequence)];
        if (length > 0 &&
            !(value >= 0 && value < static_cast<double>(length / spec.numbers[kSelBlock])))
            return "set gives topk_indices a block outside its sequence";
    }
    return std::nullopt;
}

const Description& selected_description(bool gradient) {
    static const Description forward = describe<attncheck_nsa_selected_attention_args>(
                                 "nsa_selected_attention", ref::rule_nsa_selected_attention),
                             backward = describe<attncheck_nsa_selected_attention_grad_args>(
                                 "nsa_selected_attention_grad",
                                 ref::rule_nsa_selected_attention_grad);
    return gradient ? backward : forward;
}

}  // namespace attncheck::properties
