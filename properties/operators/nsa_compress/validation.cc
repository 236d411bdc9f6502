// Validation: what a call with illegal arguments must come to. The arguments are a legal call with
// edits; the ruling on them is the reference's predicate, never the name of the edit.
#include <fmt/format.h>

#include <algorithm>

#include "properties/laws/call_properties.h"
#include "properties/operators/nsa_compress/case.h"

namespace attncheck::properties {
namespace {

constexpr std::int64_t kMax = INT64_MAX, kMin = INT64_MIN;

/// Every single change of a legal call that validation is tried with. "all.KEY=V" gives the field
/// another value in every place it decides, so that only its own rule can catch it.
EditGroups possible_edits(const Spec& spec) {
    const bool gradient = spec.schema->op == "nsa_compress_grad";
    const ref::CompressShape s = compress_shape(spec);
    EditGroups groups;
    const Call call = outline_of(extents_of(spec));
    for (const Tensor& tensor : call.tensors) add_tensor_edits(groups, tensor.name, tensor.shape);
    groups.push_back(values_of(
        "compress_block_size",
        {0, -16, -32, 8, 17, 24, s.block + 8, s.block - 16, s.block + 16, 144, 256, kMax, kMin}));
    groups.push_back(values_of("compress_stride", {0, -16, 8, 17, 24, s.block, s.block + 16,
                                                   s.stride + 8, 2 * s.block, kMax, kMin}));
    groups.push_back(values_of("act_seq_len_type", {1, 2, -1, kMax}));
    groups.push_back({"layout=\"BSND\"", "layout=\"tnd\"", "layout=\"\"", "layout=\"TNDX\"",
                      "layout=\"TNDx\"", "layout=\"TN\"", "layout=\" TND\""});
    groups.push_back({"layout.absent"});
    groups.push_back(values_of("all.dim", {8, 24, 40, 264, 272}));
    groups.push_back(values_of("all.heads", {129, 130}));
    groups.push_back(values_of("all.block", {0, 8, 24, 136, 144, 160}));
    groups.push_back(values_of("all.stride", {0, 8, 24, s.block, s.block + 16}));
    groups.push_back(values_of("all.dtype", {ATTNCHECK_FLOAT32}));
    if (gradient && spec.number("lengths") == 1) return groups;
    add_length_edits(groups, "act_seq_len", spec.lists[0], s.total_tokens);
    return groups;
}

/// Validation looks at arguments, not at elements: few of them make room for many cases.
void plain_data(Spec& spec) {
    spec.set("heads", std::min<std::int64_t>(spec.number("heads"), 3));
    spec.set("dim", std::min<std::int64_t>(spec.number("dim"), 48));
    if (spec.lists[0].size() > 4) spec.lists[0].resize(4);
    for (auto& length : spec.lists[0]) length = std::min<std::int64_t>(length, 200);
    if (std::count(spec.lists[0].begin(), spec.lists[0].end(), 0) == std::ssize(spec.lists[0]))
        spec.lists[0].back() = 1;
    spec.recipe = Recipe::zeros;
    spec.overrides.clear();
    std::fill(spec.layouts.begin(), spec.layouts.end(), Layout::dense);
}

}  // namespace

void add_compress_validation(std::vector<Property>& list, bool) {
    add_validation_properties(list, plain_data, possible_edits);
}

}  // namespace attncheck::properties
