// NsaCompressAttention as data: fields, tensors, arguments, rules and claims.
#include "properties/case/attention_fields.h"
#include "properties/case/claims.h"
#include "properties/operators/nsa_compress_attention/case.h"

namespace attncheck::properties::compress_attention {
namespace {

using A = attncheck_nsa_compress_attention_args;
using R = ref::CompressAttentionArguments;
using Int = std::int64_t;

constexpr Int kLongestQuery = 1 << 17, kLongestCmp = 14000;
constexpr Int kGroupLanes = 128;  ///< a group divides it

/// M; 0 where attributes that break a rule leave nothing to count.
Int keys_per_block(const Extents& e) { return e["stride"] < 1 ? 0 : e["select"] / e["stride"]; }

/// ceil(Cmp / M) of each sequence.
std::vector<Int> blocks_of_lengths(const Extents& e) {
    const Int keys = keys_per_block(e);
    std::vector<Int> blocks = e.lengths("cmp");
    for (auto& length : blocks) length = keys < 1 ? 0 : (length + keys - 1) / keys;
    return blocks;
}

std::vector<NumberField> fields() {
    return attention_fields(
        {type_field({"fp16", "bf16"})}, {.heads = 128, .group = 64, .width = 768},
        {{.key = "block", .min = 16, .max = 128, .step = 16},
         {.key = "stride", .min = 16, .max = 64, .step = 16},
         {.key = "select", .min = 16, .max = 128, .step = 16},
         {.key = "count", .min = 1, .max = 32, .word = "entry"},
         mask_field("mask"),
         choice("hides", {"random", "causal", "ramp", "all", "striped"}),
         mask_field("topk_mask"),
         choice("forces", {"random", "paper", "most", "last", "all"}),
         {.key = "sparse", .max = 1, .fallback = 0},
         scale_field(),
         logits_field({"dominant", "single"}),
         {.key = "beyond_q", .max = kLongestQuery, .fallback = 0},
         {.key = "beyond_cmp", .max = kLongestQuery, .fallback = 0}});
}

std::vector<Symbol> symbols() {
    std::vector<Symbol> out = uneven_head_symbols();
    out.insert(out.end(),
               {{.name = "blocks", .lengths = blocks_of_lengths},
                {.name = "mask_rows",
                 .word = "row",
                 .value = [](const Extents& e) { return longest(e.lengths("q")); }},
                {.name = "mask_columns",
                 .word = "column",
                 .value = [](const Extents& e) { return longest(e.lengths("cmp")); }},
                {.name = "mask_blocks", .word = "block", .value = [](const Extents& e) {
                     return longest(e.lengths(keys_per_block(e) < 1 ? "cmp" : "blocks"));
                 }}});
    return out;
}

/// Lies as [N1,S_q] per sequence.
TensorField head_statistic(const char* name, Role role, TensorArgument argument) {
    TensorField field = statistic(name, role, false, argument);
    field.forms = {{"", field.logical, "+(query_heads q) lanes"}};
    return field;
}

std::vector<TensorField> tensors() {
    return {row_tensor("query", Role::query, "q+ query_heads dim", both<&A::query, &R::query>),
            row_tensor("key", Role::key, "cmp+ kv_heads dim", both<&A::key, &R::key>),
            row_tensor("value", Role::value, "cmp+ kv_heads value_dim", both<&A::value, &R::value>),
            mask_tensor("atten_mask", "mask", "mask_rows mask_columns",
                        both<&A::atten_mask, &R::atten_mask>),
            mask_tensor("topk_mask", "topk_mask", "mask_rows mask_blocks",
                        both<&A::topk_mask, &R::topk_mask>),
            head_statistic("softmax_max", Role::row_max, both<&A::softmax_max, &R::softmax_max>),
            head_statistic("softmax_sum", Role::row_sum, both<&A::softmax_sum, &R::softmax_sum>),
            as_output(row_tensor("attention_out", Role::output, "q+ query_heads value_dim",
                                 both<&A::attention_out, &R::attention_out>)),
            {.name = "topk_indices",
             .output = true,
             .role = Role::list,
             .logical = "q+ kv_heads count",
             .types = {{"", "int32"}},
             .argument = both<&A::topk_indices, &R::topk_indices>}};
}

bool has_enough_blocks(const Extents& e, std::size_t b) {
    return (e.lengths("q")[b] == 0 && e.lengths("cmp")[b] == 0) ||
           e.lengths("blocks")[b] >= e["count"];
}

std::vector<Rule> rules() {
    std::vector<Rule> out = window_rules();
    out.insert(
        out.end(),
        {{{},
          [](const Extents& e) { return kGroupLanes % e["group"] == 0; },
          "group={group} must be one of 1, 2, 4, 8, 16, 32, 64"},
         value_dim_rule(),
         {.when = "hides!=random", .message = "hides needs a mask", .needs = "mask"},
         {.when = "forces!=random", .message = "forces needs a topk_mask", .needs = "topk_mask"},
         {.message =
              "cmp length {length} must give at least count={count} selection blocks of "
              "select={select} divided by stride={stride} keys, unless the sequence is empty",
          .list = "cmp",
          .each = has_enough_blocks}});
    add_row_rules(out, {"q", "cmp"});
    return out;
}

/// A last sequence too long to count its selection blocks is rows alone.
void claim_last_sequence(Extents& e, Int rows) {
    const Int keys = keys_per_block(e);
    const bool countable = keys >= 1 && rows <= INT64_MAX - keys;
    (countable ? length_claim("cmp", {"mask_columns", "mask_blocks"}) : row_claim("cmp"))
        .apply(e, rows);
}

std::vector<Claim> claims() {
    constexpr Int kLargest = 1024;  // buffers are really laid out
    std::vector<Claim> out = field_claims(
        {"dtype", "kv_heads", "group", "dim", "value_dim", "block", "stride", "select", "count"},
        kLargest);
    out.push_back(joint_claim("all.dims", {"dim", "value_dim"}, kLargest));
    out.push_back(uneven_head_claim());
    // Around as many selection blocks in one sequence as a query needs.
    out.push_back({.key = "first.cmp",
                   .largest = kLargest,
                   .apply =
                       [](Extents& e, Int length) {
                           auto lengths = e.lengths("cmp");
                           lengths[0] = length;
                           e.claim_lengths("cmp", std::move(lengths));
                       },
                   .tried =
                       [](const Extents& e) {
                           const Int enough = (e["count"] - 1) * keys_per_block(e) + 1;
                           return std::vector<Int>{0, enough - 1, enough, enough + 1};
                       }});
    out.push_back(row_claim("q"));
    out.push_back(row_claim("cmp"));
    out.push_back(length_claim("cmp", {}));
    out.back().apply = claim_last_sequence;
    return out;
}

std::optional<std::string> element_rules(const Spec& spec) {
    for (const auto& [ref, value] : spec.overrides) {
        if (ref.tensor != kAttenMask && ref.tensor != kForcedBlocks) continue;
        const std::int64_t kind = spec.numbers[ref.tensor == kAttenMask ? kMask : kTopkMask];
        const double most = kind == static_cast<std::int64_t>(MaskKind::boolean) ? 1 : 255;
        if (!(value >= 0 && value <= most)) return "set gives a mask a value it cannot hold";
    }
    return std::nullopt;
}

}  // namespace

const Description& description() {
    static const Description kDescription = resolved(
        {.op = "nsa_compress_attention",
         .numbers = fields(),
         .lists = {{"q", 0, kLongestQuery, 1024, "query", "beyond_q"},
                   {"cmp", 0, kLongestCmp, 1024, "key", "beyond_cmp"}},
         .tensors = tensors(),
         .parallel_lists = true,
         .repeats_anywhere = true,
         .symbols = symbols(),
         .arrays = {{.name = "actual_seq_q_len",
                     .argument = both<&A::actual_seq_q_len, &R::actual_seq_q_len>,
                     .ends_of = "q"},
                    {.name = "actual_cmp_seq_kv_len",
                     .argument = both<&A::actual_cmp_seq_kv_len, &R::actual_cmp_seq_kv_len>,
                     .ends_of = "cmp"},
                    {.name = "actual_sel_seq_kv_len",
                     .argument = both<&A::actual_sel_seq_kv_len, &R::actual_sel_seq_kv_len>,
                     .ends_of = "blocks"}},
         .texts = {{"input_layout", both<&A::input_layout, &R::input_layout>,
                    [](const Extents&) { return "TND"; }}},
         .integers = {{"head_num", both<&A::head_num, &R::head_num>, "query_heads", 128},
                      {"sparse_mode", both<&A::sparse_mode, &R::sparse_mode>, "sparse"},
                      {"compress_block_size",
                       both<&A::compress_block_size, &R::compress_block_size>, "block"},
                      {"compress_stride", both<&A::compress_stride, &R::compress_stride>, "stride"},
                      {"select_block_size", both<&A::select_block_size, &R::select_block_size>,
                       "select"},
                      {"select_block_count", both<&A::select_block_count, &R::select_block_count>,
                       "count", 32}},
         .reals = {scale_argument(both<&A::scale_value, &R::scale_value>)},
         .rules = rules(),
         .claims = claims(),
         .entry = entry_point<A>(ref::rule_nsa_compress_attention),
         .element_rules = element_rules,
         .build = build_call});
    return kDescription;
}

}  // namespace attncheck::properties::compress_attention
