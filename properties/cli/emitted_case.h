// A case as an emitted program has it: arguments, what the reference needs, and bounds.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "properties/operators/operator.h"

namespace attncheck::properties {

/// {"arguments": {"query": ["fp16", [2,1,4], BASE64], "prefix": [..], "scale_value": 0.5, "x": null},
///  A mask of documented contents has null for its numbers.
///  "outputs": {"attention_out": ["fp16", [2,1,4]]},
///  "bound": {"attention_out": BASE64 of binary64}}
/// and of attention, whose values an emitted program computes:
///  "rows": {"query": [heads, width, [first element of row 0 head 0, ..]], ..}
///  "columns": [[row, head, [keys], [bias], [gain of dropout]], ..]
///  "parts": {"q": ["query", "query_rope"], ..}, "scale", "group", "softcap", "sink"
/// of other operators "want": {"output": BASE64 of binary64}, computed here.
nlohmann::ordered_json emitted_case(const Operator& op, const Spec& spec);

}  // namespace attncheck::properties
