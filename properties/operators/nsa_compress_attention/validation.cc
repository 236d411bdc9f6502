// Validation of compress attention: a legal call with edits; the ruling on them is the reference's
// predicate.
#include <algorithm>

#include "properties/case/attention_draws.h"
#include "properties/laws/call_properties.h"
#include "properties/operators/nsa_compress_attention/case.h"

namespace attncheck::properties::compress_attention {
namespace {

/// Every single change that is tried: those of the description, and those that aim at a relation of
/// block sizes, of groups and of their lanes.
EditGroups possible_edits(const Spec& spec) {
    const Extents e = extents_of(spec);
    const std::int64_t enough = (e["count"] - 1) * keys_per_select(spec) + 1;
    EditGroups groups = derived_edits(e);
    groups.push_back(values_of("all.group", {3, 5, 6, 7, 12, 24, 48, 127, 128}));
    groups.push_back({"all.group=3"});
    groups.push_back({"all.group=128"});
    groups.push_back(values_of("all.stride", {16, 32, 48, 64, 80, e["block"], e["block"] + 16}));
    groups.push_back(values_of("all.stride", {e["block"] + 16}));
    groups.push_back(values_of("all.block", {e["select"] + 16}));
    groups.push_back(values_of("first.cmp", {enough - 1}));
    groups.push_back({"first.cmp=0"});
    return groups;
}

/// Validation reads arguments, not elements: few of them make room for many cases.
void plain_data(Spec& spec) {
    auto& n = spec.numbers;
    n[kGroup] = std::min<std::int64_t>(n[kGroup], 4);
    n[kKvHeads] = std::min<std::int64_t>(n[kKvHeads], 3);
    n[kCount] = std::min<std::int64_t>(n[kCount], 3);
    n[kDim] = std::min<std::int64_t>(n[kDim], 32);
    n[kValueDim] = std::min(n[kValueDim], n[kDim]);
    const std::int64_t keys = keys_per_select(spec);
    for (auto& list : spec.lists)
        if (list.size() > 3) list.resize(3);
    for (auto& length : spec.lists[1])
        if (length > 0) length = std::min(length, (n[kCount] + 1) * keys);
    for (auto& length : spec.lists[0]) length = std::min<std::int64_t>(length, 5);
    if (spec.lists[0] == std::vector<std::int64_t>(spec.lists[0].size(), 0))
        n[kBeyondQ] = std::max<std::int64_t>(n[kBeyondQ], 1);
    if (spec.lists[1] == std::vector<std::int64_t>(spec.lists[1].size(), 0))
        n[kBeyondCmp] = std::max<std::int64_t>(n[kBeyondCmp], 1);
    n[kHides] = n[kForces] = 0;
    with_zeros_in_dense_tensors(spec);
}

}  // namespace

void add_validation(std::vector<Property>& list) {
    add_validation_properties(list, plain_data, 24, possible_edits);
}

}  // namespace attncheck::properties::compress_attention
