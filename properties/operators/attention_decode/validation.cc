// Validation of decoding: a legal call with edits; the ruling on them is the reference's predicate.
#include <fmt/format.h>

#include <algorithm>

#include "properties/laws/call_properties.h"
#include "properties/operators/attention_decode/case.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

/// Those of the description, window_left, and the lengths around what the block table holds.
EditGroups possible_edits(const Spec& spec) {
    const Extents extents = extents_of(spec);
    EditGroups groups = derived_edits(extents);
    groups.push_back(values_of("window_left", {-2, INT64_MIN, -1, 0, INT64_MAX}));
    const Int sequences = extents.sequences(),
              most = extents["table_columns"] * extents["page"];
    groups.push_back({"kv_length.absent"});
    groups.push_back(values_of("kv_length.size", {0, -1, sequences - 1}));
    for (const Int b : {Int{0}, sequences - 1}) {
        const std::string entry = fmt::format("kv_length[{}]", b);
        groups.push_back(values_of(entry, {-1, INT64_MIN, -spec.number("page")}));
        groups.push_back(values_of(entry, {most + 1, most + 256, INT64_MAX, 1 << 30}));
    }
    return groups;
}

/// Validation reads arguments, not elements: few of them make room for many cases.
void plain_data(Spec& spec) {
    for (auto& list : spec.lists)
        if (list.size() > 3) list.resize(3);
    set_queries(spec, std::min<Int>(spec.lists[0][0], 3));
    for (auto& length : spec.lists[1]) length = std::min(length, 2 * spec.number("page") + 1);
    limit_fields(spec, {"group", "kv_heads"}, 3);
    spec.set("rest", 0);
    with_zeros_in_dense_tensors(spec);
}

}  // namespace

void add_decode_validation(std::vector<Property>& list) {
    add_validation_properties(list, plain_data, 8, possible_edits);
}

}  // namespace attncheck::properties
