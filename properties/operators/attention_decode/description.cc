// AttentionDecode as data: fields, tensors, arguments and rules.
#include <algorithm>
#include <functional>
#include <iterator>

#include "properties/case/attention_fields.h"
#include "properties/case/claims.h"
#include "properties/operators/attention_decode/case.h"
#include "ref/constraints/attention_decode.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;
using A = attncheck_attention_decode_args;
using R = ref::AttentionDecodeArguments;

constexpr Int kLongest = 1 << 20;
constexpr Int kMostQueries = 16, kLargestPage = 256, kMostSequences = 2048;
constexpr Int kMostElements = 1 << 27;  ///< of a cache

/// And logits beyond the smallest number of fp16, which some kernels take for -infinity.
NumberField far_logits_field() {
    NumberField field = logits_field();
    field.names.emplace_back("minus60000");
    ++field.max;
    return field;
}

std::vector<NumberField> fields() {
    const std::vector<NumberField> softcap = softcap_fields();
    return attention_fields(
        {type_field()}, {.heads = 128, .group = 128, .width = 1024},
        {{.key = "page", .min = 1, .max = kLargestPage, .word = "slot"},
         choice("cache", {"slots", "heads", "transposed"}),
         choice("values", {"own", "in_keys"}),
         choice("pages", {"ascending", "descending", "shuffled"}),
         choice("shared", {"none", "prefix", "all"}),
         {.key = "spare", .max = 4096, .fallback = 0},
         {.key = "slack", .max = 64, .fallback = 0},
         choice("tail", {"minus_one", "huge", "foreign", "mixed"}),
         choice("rest", {"normal", "nan", "infinite", "huge"}),
         {.key = "window_left", .min = -1, .max = kLongest, .fallback = -1},
         softcap[0], softcap[1],
         choice("sink", {"none", "normal", "large", "low", "mixed"}),
         scale_field(),
         far_logits_field(),
         choice("lse", {"given", "absent"})});
}

/// Rows of the cache as people lay them out: slot after slot, head after head in each page, or with
/// the slots of a page innermost (keys as columns).
TensorField cache(const char* name, Role role, const std::string& width, TensorArgument argument) {
    TensorField tensor = row_tensor(name, role, "page_number*page kv_heads " + width, argument);
    const std::string shape = "page_number page kv_heads " + width;
    tensor.forms = {{.when = "cache=heads",
                     .shape = shape,
                     .strides = "page_number kv_heads page " + width,
                     .repeated = 2},
                    {.when = "cache=transposed",
                     .shape = shape,
                     .strides = "page_number kv_heads " + width + " page",
                     .repeated = 2},
                    {.shape = shape, .repeated = 2}};
    return tensor;
}

TensorField of_queries(const char* name, Role role, const std::string& width,
                       TensorArgument argument) {
    TensorField tensor = row_tensor(name, role, "q+ query_heads " + width, argument);
    tensor.forms = {{.shape = "B q query_heads " + width, .repeated = 2}};
    return tensor;
}

void add_tensors(Description& d) {
    TensorField lse = row_tensor("lse", Role::lse, "q+ query_heads", both<&A::lse, &R::lse>);
    lse.forms = {{.shape = "B query_heads q"}};
    lse.types = {{"", "fp32"}};
    lse.present = "lse=given";
    lse.optional = true;
    TensorField values = cache("value_cache", Role::value, "value_dim", both<&A::value_cache, &R::value_cache>);
    values.view_of = "key_cache";
    values.view_when = "values=in_keys";
    d.tensors = {of_queries("query", Role::query, "dim", both<&A::query, &R::query>),
                 cache("key_cache", Role::key, "dim", both<&A::key_cache, &R::key_cache>),
                 std::move(values),
                 {.name = "block_table",
                  .derived = true,
                  .integer = true,
                  .role = Role::list,
                  .logical = "B table_columns",
                  .types = {{"", "int32"}},
                  .argument = both<&A::block_table, &R::block_table>},
                 {.name = "sink",
                  .role = Role::sink,
                  .logical = "query_heads",
                  .types = {{"", "fp32"}},
                  .present = "sink",
                  .argument = both<&A::sink, &R::sink>},
                 as_output(of_queries("out", Role::output, "value_dim", both<&A::out, &R::out>)),
                 as_output(lse)};
}

bool all_equal(const std::vector<Int>& lengths) {
    return std::ranges::adjacent_find(lengths, std::not_equal_to<>()) == lengths.end();
}

void add_rules(Description& d) {
    d.rules = {
        {{}, [](const Extents& e) { return all_equal(e.lengths("q")); },
         "all sequences have the same number of queries"},
        {{}, [](const Extents& e) { return e["query_heads"] <= 256; },
         "kv_heads * group is more than 256"},
        {{},
         [](const Extents& e) {
             const Int slots = e["kv_heads"] * std::max(e["dim"], e["value_dim"]) * e["page"];
             return e["page_number"] <= kMostElements / slots;
         },
         "the cache has more than 2^27 elements"},
        {{},
         [](const Extents& e) { return e["table_columns"] * e.sequences() <= kMostElements; },
         "the block table has more than 2^27 entries"},
        {.when = "values=in_keys",
         .holds = [](const Extents& e) { return e["value_dim"] <= e["dim"]; },
         .message = "values=in_keys needs value_dim <= dim"},
        softcap_rule()};
}

void add_claims(Description& d) {
    constexpr Int kLargest = 1024;  // buffers are really laid out
    d.claims = field_claims({"dtype", "kv_heads", "dim", "value_dim"}, kLargest);
    // Limits of a case, not of the operator: a kernel may take more.
    const auto zero_only = [](const Extents&) { return std::vector<Int>{0}; };
    for (std::size_t k = 1; k < d.claims.size(); ++k) d.claims[k].tried = zero_only;
    d.claims.push_back(uneven_head_claim());
}

Description describe() {
    Description d{.op = "attention_decode",
                  .numbers = fields(),
                  .entry = entry_point<A>(ref::rule_attention_decode),
                  .build = build_decode_call};
    d.lists = {{"q", 1, kMostQueries, kMostSequences, "query"},
               {"kv", 0, kLongest, kMostSequences, "key"}};
    d.parallel_lists = true;
    d.symbols = uneven_head_symbols();
    d.symbols.pop_back();  // the lanes of statistics
    d.symbols.push_back({.name = "page_number", .word = "page", .value = decode_pages});
    d.symbols.push_back({.name = "table_columns", .word = "entry", .value = decode_table_columns});
    // A symbol: the values of a field are all tried by validation.
    d.symbols.push_back({.name = "window_passed",
                         .value = [](const Extents& e) { return e["window_left"]; }});
    add_tensors(d);
    d.arrays = {{"kv_length", both<&A::kv_length, &R::kv_length>,
                 [](const Extents& e) { return e.lengths("kv"); }}};
    d.integers = {{"window_left", both<&A::window_left, &R::window_left>, "window_passed"}};
    RealField scale = scale_argument(both<&A::scale, &R::scale>);
    scale.name = "scale";
    scale.tried = {"nan", "inf", "-inf", "1e300", "0", "-1"};
    d.reals = {scale,
               {"softcap", both<&A::softcap, &R::softcap>,
                softcap_of,
                {"nan", "inf", "-1", "-0.001", "1e300", "0", "20"}}};
    add_rules(d);
    add_claims(d);
    return resolved(std::move(d));
}

}  // namespace

const Description& decode_description() {
    static const Description only = describe();
    return only;
}

}  // namespace attncheck::properties
