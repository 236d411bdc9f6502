// Validation of compress attention: a legal call with edits; the ruling on them is the reference's
// predicate.
#include <fmt/format.h>

#include <algorithm>

#include "properties/laws/call_properties.h"
#include "properties/operators/nsa_compress_attention/case.h"

namespace attncheck::properties::compress_attention {
namespace {

constexpr std::int64_t kMax = INT64_MAX, kMin = INT64_MIN;

void add_attribute_edits(EditGroups& groups, const Parts& parts) {
    const ref::CompressAttentionShape& s = parts.shape;
    const std::int64_t l = s.compress_block, d = s.compress_stride, select = s.select_block,
                       count = s.select_count;
    groups.push_back({"scale_value=nan", "scale_value=inf", "scale_value=-inf", "scale_value=1e300",
                      "scale_value=-1e39", "scale_value=0", "scale_value=-1",
                      "scale_value=1e-300"});
    groups.push_back(values_of("head_num", {0, -1, s.query_heads + 1, s.query_heads - 1, s.kv_heads,
                                            2 * s.query_heads, 129, kMax, kMin}));
    groups.push_back(values_of("sparse_mode", {0, 1, 2, 3, -1, 7, 256, kMax, kMin}));
    // Plus 256: the same number where only eight bits are read.
    groups.push_back(values_of("compress_block_size", {0, -16, 8, l + 8, l - 16, l + 16, 2 * l, 144,
                                                       l + 256, kMax, kMin}));
    groups.push_back(values_of("compress_stride",
                               {0, -16, 8, d + 8, d - 16, d + 16, 2 * d, 80, d + 256, kMax, kMin}));
    groups.push_back(
        values_of("select_block_size", {0, -16, 8, select + 8, select - 16, select + 16, 2 * select,
                                        144, select + 256, kMax, kMin}));
    groups.push_back(values_of("select_block_count",
                               {0, -1, count - 1, count + 1, 33, 64, count + 256, kMax, kMin}));
    groups.push_back({"input_layout=\"BSND\"", "input_layout=\"tnd\"", "input_layout=\"\"",
                      "input_layout=\"TNDX\"", "input_layout=\"TN\"", "input_layout=\" TND\""});
    groups.push_back({"input_layout.absent"});
}

void add_joint_edits(EditGroups& groups, const Parts& parts) {
    const ref::CompressAttentionShape& s = parts.shape;
    const std::int64_t l = s.compress_block, d = s.compress_stride, select = s.select_block,
                       count = s.select_count;
    groups.push_back(values_of("all.dim", {0, s.value_dim - 1, 16, 100, 768}));
    groups.push_back(values_of("all.dims", {769, 770, 1024, 768, 1}));
    groups.push_back(values_of("all.value_dim", {0, s.head_dim + 1, s.head_dim, 1}));
    groups.push_back(values_of("all.kv_heads", {0, 129, 130}));
    groups.push_back(values_of("all.group", {0, 3, 5, 6, 7, 12, 24, 48, 127, 128, 64}));
    groups.push_back(
        values_of("all.block", {0, 8, 24, 16, l + 16, select, select + 16, l + 256, 128, 144}));
    groups.push_back(values_of("all.stride", {0, 8, 24, 16, 32, 48, 64, 80, l, l + 16, d + 256}));
    groups.push_back(
        values_of("all.select", {0, 8, 24, l, l - 16, select + 16, select + 256, 128, 144}));
    groups.push_back(values_of("all.count", {0, 1, count + 1, 32, 33, 40, count + 256}));
    groups.push_back(values_of("all.dtype", {ATTNCHECK_FLOAT32}));
    groups.push_back({"heads.uneven"});
    // Fewer selection blocks than count in one sequence, as many in the others.
    const std::int64_t enough = (count - 1) * s.keys_per_select() + 1;
    groups.push_back(values_of("first.cmp", {0, enough - 1, enough, enough + 1}));
    groups.push_back({fmt::format("first.cmp={}", enough - 1)});
    groups.push_back({"first.cmp=0"});
    const std::int64_t before = s.total_keys - s.cmp_lengths.back();
    groups.push_back(values_of("long.cmp", {before + 14001, before + 14000, 1 << 20, kMax}));
    groups.push_back(values_of("rows.q", {kMax, kMax / 8, kMax / s.head_dim, kMax / s.query_heads,
                                          std::int64_t{1} << 40}));
    groups.push_back(values_of(
        "rows.cmp", {kMax, kMax / 2, kMax / s.head_dim, kMax / s.kv_heads, std::int64_t{1} << 40}));
    const int other = parts.dtype == ref::Dtype::fp16 ? ATTNCHECK_BFLOAT16 : ATTNCHECK_FLOAT16;
    for (const char* tensor : {"query", "key", "value", "attention_out"})
        groups.push_back({fmt::format("{}.dtype={}", tensor, other)});
    // Each of these has one rule to itself, and every chance to be missed among many values.
    for (const std::string& alone :
         {std::string("sparse_mode=2"), std::string("all.group=3"), std::string("all.group=128"),
          std::string("all.count=33"), std::string("input_layout=\"tnd\""),
          std::string("all.dims=769"), fmt::format("long.cmp={}", before + 14001),
          std::string("all.block=0"), std::string("all.stride=0"),
          std::string("select_block_count=0"), fmt::format("all.value_dim={}", s.head_dim + 1),
          std::string("scale_value=nan"), fmt::format("compress_block_size={}", l + 256),
          fmt::format("all.stride={}", l + 16), fmt::format("all.block={}", select + 16),
          std::string("all.stride=80")})
        groups.push_back({alone});
}

/// Every single change that is tried.
EditGroups possible_edits(const Spec& spec) {
    const Parts parts = parts_without_values(spec);
    const ref::CompressAttentionShape& s = parts.shape;
    EditGroups groups;
    const Call call = outline_of(extents_of(spec));
    for (const Tensor& tensor : call.tensors)
        if (tensor.present) add_tensor_edits(groups, tensor.name, tensor.shape);
    add_attribute_edits(groups, parts);
    add_joint_edits(groups, parts);
    add_length_edits(groups, "actual_seq_q_len", s.query_lengths, s.total_queries);
    add_length_edits(groups, "actual_cmp_seq_kv_len", s.cmp_lengths, s.total_keys);
    add_length_edits(groups, "actual_sel_seq_kv_len", extents_of(spec).lengths("blocks"),
                     s.total_keys);
    for (const char* array : {"actual_cmp_seq_kv_len", "actual_sel_seq_kv_len"})
        groups.push_back(values_of(fmt::format("{}.size", array),
                                   {std::ssize(s.cmp_lengths) - 1, std::int64_t{0}}));
    return groups;
}

/// Validation looks at arguments, not at elements: few of them make room for many cases.
void plain_data(Spec& spec) {
    auto& n = spec.numbers;
    n[kGroup] = std::min<std::int64_t>(n[kGroup], 4);
    n[kKvHeads] = std::min<std::int64_t>(n[kKvHeads], 3);
    n[kCount] = std::min<std::int64_t>(n[kCount], 3);
    n[kDim] = std::min<std::int64_t>(n[kDim], 32);
    n[kValueDim] = std::min(n[kValueDim], n[kDim]);
    const std::int64_t keys = n[kSelect] / n[kStride];
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
    spec.recipe = Recipe::zeros;
    spec.overrides.clear();
    std::fill(spec.layouts.begin(), spec.layouts.end(), Layout::dense);
}

}  // namespace

void add_validation(std::vector<Property>& list) {
    add_validation_properties(list, plain_data, possible_edits, 24);
}

}  // namespace attncheck::properties::compress_attention
