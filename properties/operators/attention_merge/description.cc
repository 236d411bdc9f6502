// AttentionMerge as data: fields, tensors, arguments and rules.
#include "properties/case/attention_fields.h"
#include "properties/operators/attention_merge/problem.h"
#include "ref/constraints/attention_merge.h"

namespace attncheck::properties {
namespace {

using A = attncheck_attention_merge_args;
using R = ref::AttentionMergeArguments;

constexpr std::int64_t kMostElements = 1 << 24;

Description describe() {
    Description d;
    d.op = "attention_merge";
    d.entry = entry_point<A>(ref::rule_attention_merge);
    d.build = build_merge_call;
    d.numbers = {
        type_field(),
        {.key = "parts", .max = 64, .word = "part"},
        {.key = "rows", .max = 1 << 17, .word = "row"},
        {.key = "heads", .min = 1, .max = 256, .word = "head"},
        {.key = "dim", .min = 1, .max = 1024, .word = "channel"},
        {.key = "weights", .max = 4, .names = {"equal", "near", "wide", "far", "dominant"}},
        choice("shift", {"none", "high", "low"}),
        choice("dead", {"none", "some", "most", "rows"}),
        choice("statistics", {"given", "absent"})};
    d.tensors = {{.name = "parts",
                  .logical = "parts rows heads dim",
                  .argument = both<&A::parts, &R::parts>},
                 {.name = "lses",
                  .logical = "parts rows heads",
                  .types = {{"", "fp32"}},
                  .argument = both<&A::lses, &R::lses>},
                 {.name = "out",
                  .output = true,
                  .logical = "rows heads dim",
                  .argument = both<&A::out, &R::out>},
                 {.name = "lse",
                  .output = true,
                  .optional = true,
                  .logical = "rows heads",
                  .types = {{"", "fp32"}},
                  .present = "statistics=given",
                  .argument = both<&A::lse, &R::lse>}};
    d.rules = {{{},
                [](const Extents& e) {
                    return e["parts"] * e["rows"] <= kMostElements / (e["heads"] * e["dim"]);
                },
                "parts={parts} rows={rows} heads={heads} dim={dim} are more than 2^24 elements"}};
    for (const char* key : {"all.dtype", "all.parts", "all.rows", "all.heads", "all.dim"})
        d.claims.push_back({.key = key, .largest = 4096});  // buffers are really laid out
    return resolved(std::move(d));
}

}  // namespace

const Description& merge_description() {
    static const Description only = describe();
    return only;
}

}  // namespace attncheck::properties
