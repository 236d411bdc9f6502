// Fields, tensors, arguments and rules that the descriptions of attention operators share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "properties/case/description.h"

namespace attncheck::properties {

/// A field that names one of several; the first unless a case says so.
NumberField choice(const char* key, std::vector<std::string> names);
/// The type of most tensors, which every case names.
NumberField type_field(std::vector<std::string> names = {"fp16", "bf16", "fp32"});
/// Of key/value heads, query heads of each, and both widths: fields between the first and the rest.
struct HeadLimits {
    std::int64_t heads, group, width;
    std::int64_t least_width = 1, step = 1;
};
std::vector<NumberField> attention_fields(std::vector<NumberField> first, const HeadLimits& most,
                                          std::vector<NumberField> rest);
NumberField mask_field(const char* key);
NumberField scale_field();  ///< ScaleKind (attention_data.h)
/// `softcap`, and `softcap_unit`, which it counts: 7 eighths are 0.875.
std::vector<NumberField> softcap_fields();
double softcap_of(const Extents& extents);
Rule softcap_rule();
/// Kinds of logits: equal ones, those led by some keys, and those that share an offset.
NumberField logits_field(std::vector<std::string> leading = {"dominant"});
/// `stats` and `out`: what a gradient is given (alter_given in laws/attention_parts.h).
void add_given_fields(std::vector<NumberField>& fields);

/// A tensor [row, head, channel].
TensorField row_tensor(const char* name, Role role, Axes logical, TensorArgument argument);
/// The same by the names of a list, of heads and of a width.
TensorField row_tensor(const char* name, Role role, const std::string& list,
                       const std::string& heads, const std::string& width, TensorArgument argument);
/// Statistics [row, query head, lane], given to a gradient.
TensorField statistic(const char* name, Role role, bool gradient, TensorArgument argument);
TensorField mask_tensor(const char* name, const char* key, Axes logical, TensorArgument argument);
TensorField as_output(TensorField tensor);

RealField scale_argument(RealArgument argument);

/// kv_heads * group.
Symbol query_heads_symbol();
/// The same, and one more where the claim `heads.uneven` is made.
std::vector<Symbol> uneven_head_symbols();
Claim uneven_head_claim();

Rule value_dim_rule();
/// Of compression and the blocks that are selected from it: stride <= block <= select, which is a
/// multiple of stride.
std::vector<Rule> window_rules();
/// At least one row and at most 2 Mi in each list.
void add_row_rules(std::vector<Rule>& rules, const std::vector<std::string>& lists);

}  // namespace attncheck::properties
