// Where the arguments of every entry point lie in memory, as JSON: what a caller or a callee of
// another language needs, and no more. From the descriptions, so that a new operator is in it.
#pragma once

#include <string>

namespace attncheck::properties {

/// {"flash_attention_score": {
///    "bytes": 1728,
///    "arguments": [{"name": "query", "kind": "tensor", "offset": 0, "output": false,
///                   "optional": false, "derived": false}, ...]}, ...}
///
/// Arguments are in the order of the C struct. Kinds: tensor, array, text, integer, real. Optional:
/// absent in some legal cases. Derived: an input that follows from the others, as the statistics
/// that a gradient is given. Operators that have no entry point of their own are left out.
std::string entry_table_json();

/// The same of all operators, with name, summary and kind of their properties: "properties":
/// [{"name", "summary", "validation", "large"}, ...].
std::string catalogue_json(const std::vector<std::string>& ops = {});

}  // namespace attncheck::properties
