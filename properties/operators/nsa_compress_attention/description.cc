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
Int keys_per_select(const Extents& e) { return e["stride"] < 1 ? 0 : e["select"] / e["stride"]; }

/// ceil(Cmp / M) of each sequence.
std::vector<Int> select_blocks(const Extents& e) {
    const Int keys = keys_per_select(e);
    std::vector<Int> blocks = e.lengths("cmp");
    for (auto& length : blocks) length = keys < 1 ? 0 : (length + keys - 1) / keys;
    return blocks;
}

std::vector<NumberField> fields() {
    return {
        {.key = "dtype", .max = 1, .names = {"fp16", "bf16"}},
        {.key = "kv_heads", .min = 1, .max = 128, .word = "head"},
        {.key = "group", .min = 1, .max = 64},
        {.key = "dim", .min = 1, .max = 768, .word = "channel"},
        {.key = "value_dim", .min = 1, .max = 768, .word = "channel"},
        {.key = "block", .min = 16, .max = 128, .step = 16},
        {.key = "stride", .min = 16, .max = 64, .step = 16},
        {.key = "select", .min = 16, .max = 128, .step = 16},
        {.key = "count", .min = 1, .max = 32, .word = "entry"},
        {.key = "mask", .max = 2, .fallback = 0, .names = {"absent", "bool", "uint8"}},
        {.key = "hides",
         .max = 4,
         .fallback = 0,
         .names = {"random", "causal", "ramp", "all", "striped"}},
        {.key = "topk_mask", .max = 2, .fallback = 0, .names = {"absent", "bool", "uint8"}},
        {.key = "forces",
         .max = 4,
         .fallback = 0,
         .names = {"random", "paper", "most", "last", "all"}},
        {.key = "sparse", .max = 1, .fallback = 0},
        {.key = "scale",
         .max = 6,
         .fallback = 0,
         .names = {"one", "rsqrt", "eighth", "zero", "negative", "tenth", "large"}},
        {.key = "logits",
         .max = 8,
         .fallback = 0,
         .names = {"plain", "equal", "dominant", "single", "minus40", "minus120", "minus300",
                   "plus300", "minus20000"}},
        {.key = "beyond_q", .max = kLongestQuery, .fallback = 0},
        {.key = "beyond_cmp", .max = kLongestQuery, .fallback = 0}};
}

std::vector<Symbol> symbols() {
    return {{.name = "uneven", .value = [](const Extents&) { return Int{0}; }},
            {.name = "query_heads",
             .word = "head",
             .value = [](const Extents& e) { return e["kv_heads"] * e["group"] + e["uneven"]; }},
            {.name = "lanes",
             .word = "lane",
             .value = [](const Extents&) { return ref::kStatisticLanes; }},
            {.name = "blocks", .lengths = select_blocks},
            {.name = "mask_rows",
             .word = "row",
             .value = [](const Extents& e) { return longest(e.lengths("q")); }},
            {.name = "mask_columns",
             .word = "column",
             .value = [](const Extents& e) { return longest(e.lengths("cmp")); }},
            {.name = "mask_blocks", .word = "block", .value = [](const Extents& e) {
                 return longest(e.lengths(keys_per_select(e) < 1 ? "cmp" : "blocks"));
             }}};
}

TensorField mask(const char* name, const char* key, const char* logical, TensorArgument argument) {
    return {.name = name,
            .integer = true,
            .role = Role::mask,
            .logical = logical,
            .types = {{(std::string(key) + "=uint8").c_str(), "uint8"}, {"", "bool"}},
            .present = key,
            .argument = argument};
}

/// Lies as [N1,S_q] per sequence.
TensorField statistic(const char* name, TensorArgument argument) {
    return {.name = name,
            .output = true,
            .role = Role::statistic,
            .logical = "q+ query_heads lanes",
            .forms = {{"", "q+ query_heads lanes", "+(query_heads q) lanes"}},
            .types = {{"", "fp32"}},
            .argument = argument};
}

std::vector<TensorField> tensors() {
    return {{.name = "query",
             .role = Role::query,
             .logical = "q+ query_heads dim",
             .argument = both<&A::query, &R::query>},
            {.name = "key",
             .role = Role::key,
             .logical = "cmp+ kv_heads dim",
             .argument = both<&A::key, &R::key>},
            {.name = "value",
             .role = Role::value,
             .logical = "cmp+ kv_heads value_dim",
             .argument = both<&A::value, &R::value>},
            mask("atten_mask", "mask", "mask_rows mask_columns",
                 both<&A::atten_mask, &R::atten_mask>),
            mask("topk_mask", "topk_mask", "mask_rows mask_blocks",
                 both<&A::topk_mask, &R::topk_mask>),
            statistic("softmax_max", both<&A::softmax_max, &R::softmax_max>),
            statistic("softmax_sum", both<&A::softmax_sum, &R::softmax_sum>),
            {.name = "attention_out",
             .output = true,
             .role = Role::output,
             .logical = "q+ query_heads value_dim",
             .argument = both<&A::attention_out, &R::attention_out>},
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
    std::vector<Rule> out = {
        {{},
         [](const Extents& e) { return kGroupLanes % e["group"] == 0; },
         "group={group} must be one of 1, 2, 4, 8, 16, 32, 64"},
        {{},
         [](const Extents& e) { return e["value_dim"] <= e["dim"]; },
         "value_dim={value_dim} is larger than dim={dim}"},
        {{},
         [](const Extents& e) { return e["stride"] <= e["block"]; },
         "stride={stride} must be at most block={block}"},
        {{},
         [](const Extents& e) {
             return e["select"] >= e["block"] && e["select"] % e["stride"] == 0;
         },
         "select={select} must be a multiple of stride={stride} and at least block={block}"},
        {.when = "hides!=random", .message = "hides needs a mask", .needs = "mask"},
        {.when = "forces!=random", .message = "forces needs a topk_mask", .needs = "topk_mask"},
        {.message = "cmp length {length} must give at least count={count} selection blocks of "
                    "select={select} divided by stride={stride} keys, unless the sequence is empty",
         .list = "cmp",
         .each = has_enough_blocks}};
    add_row_rules(out, {"q", "cmp"});
    return out;
}

/// A last sequence too long to count its selection blocks is rows alone.
void claim_last_sequence(Extents& e, Int rows) {
    const Int keys = keys_per_select(e);
    const bool countable = keys >= 1 && rows <= INT64_MAX - keys;
    (countable ? length_claim("cmp", {"mask_columns", "mask_blocks"}) : row_claim("cmp"))
        .apply(e, rows);
}

std::vector<Claim> claims() {
    constexpr Int kLargest = 1024;  // buffers are really laid out
    std::vector<Claim> out = field_claims({"dtype", "kv_heads", "group", "dim", "value_dim",
                                           "block", "stride", "select", "count"},
                                          kLargest);
    out.push_back(joint_claim("all.dims", {"dim", "value_dim"}, kLargest));
    // One query head more than the groups have.
    out.push_back({.key = "heads.uneven", .apply = [](Extents& e, Int) { e.claim("uneven", 1); }});
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
                           const Int enough = (e["count"] - 1) * keys_per_select(e) + 1;
                           return std::vector<Int>{0, enough - 1, enough, enough + 1};
                       }});
    out.push_back(row_claim("q"));
    out.push_back(row_claim("cmp"));
    out.push_back(length_claim("cmp", {}));
    out.back().apply = claim_last_sequence;
    return out;
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
         .integers =
             {{"head_num", both<&A::head_num, &R::head_num>, "query_heads", 128},
              {"sparse_mode", both<&A::sparse_mode, &R::sparse_mode>, "sparse"},
              {"compress_block_size", both<&A::compress_block_size, &R::compress_block_size>,
               "block"},
              {"compress_stride", both<&A::compress_stride, &R::compress_stride>, "stride"},
              {"select_block_size", both<&A::select_block_size, &R::select_block_size>, "select"},
              {"select_block_count", both<&A::select_block_count, &R::select_block_count>,
               "count", 32}},
         .reals = {{"scale_value", both<&A::scale_value, &R::scale_value>,
                    [](const Extents& e) {
                        return scale_of(static_cast<ScaleKind>(e["scale"]), e["dim"]);
                    }}},
         .rules = rules(),
         .claims = claims(),
         .entry = entry_point<A>(ref::rule_nsa_compress_attention),
         .element_rules = element_rules,
         .build = build_call});
    return kDescription;
}

}  // namespace attncheck::properties::compress_attention
