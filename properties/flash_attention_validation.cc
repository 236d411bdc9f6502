// Validation of flash attention: a legal call with edits; the ruling on them is the reference's predicate.
#include <fmt/format.h>

#include <algorithm>

#include "properties/call_properties.h"
#include "properties/flash_attention_case.h"

namespace attncheck::properties {
namespace {

constexpr std::int64_t kMax = INT64_MAX, kMin = INT64_MIN;

void add_attribute_edits(EditGroups& groups, const Call& call) {
    const std::int64_t heads = call.number("head_num"), pre = call.number("pre_tokens"),
                       next = call.number("next_tokens");
    groups.push_back({"scale_value=nan", "scale_value=inf", "scale_value=0", "scale_value=-1"});
    groups.push_back({"keep_prob=0", "keep_prob=-0.5", "keep_prob=1.5", "keep_prob=nan",
                      "keep_prob=1e-50", "keep_prob=1", "keep_prob=0.5",
                      "keep_prob=0.999999999999", "keep_prob=1.0000001"});
    groups.push_back(values_of("head_num", {0, -1, heads + 1, heads - 1, 2 * heads, 257,
                                            (std::int64_t{1} << 32) + heads, kMax, kMin}));
    groups.push_back(values_of("sparse_mode", {-1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, kMax, kMin}));
    groups.push_back(values_of("pse_type", {-1, 0, 1, 2, 3, 4, kMax, kMin}));
    groups.push_back(values_of("inner_precise", {-1, 1, 2, 258, kMax, kMin}));
    groups.push_back(values_of("pre_tokens", {0, -1, -2, -5, pre + 1, pre - 1, -next, -next - 1, kMax,
                                              kMin, kMin + 1, INT32_MAX, std::int64_t{1} << 31}));
    groups.push_back(values_of("next_tokens", {0, -1, -2, -5, next + 1, next - 1, -pre, -pre - 1, kMax,
                                               kMin, kMin + 1, INT32_MAX, std::int64_t{1} << 31}));
    groups.push_back({"input_layout=\"bsh\"", "input_layout=\"BSND\"", "input_layout=\"BSH\"",
                      "input_layout=\"SBH\"", "input_layout=\"BNSD\"", "input_layout=\"TND\"",
                      "input_layout=\"\"", "input_layout=\"BSHX\"", "input_layout=\"ND\""});
    groups.push_back({"input_layout.absent"});
    const std::string order = call.texts[1].name;
    groups.push_back({order + "=\"same_as_input\"", order + "=\"\"", order + "=\"same\"",
                      order + "=\"SAME_AS_INPUT\"", order + "=\"same_as_inputx\""});
    groups.push_back({order + ".absent"});
}

/// Every single change that is tried.
EditGroups possible_edits(const Spec& spec) {
    const FlashParts parts = flash_shape_parts(spec);
    const Call call = make_flash_call(parts);
    EditGroups groups;
    for (const Tensor& tensor : call.tensors)
        if (tensor.present) add_tensor_edits(groups, tensor.name, tensor.shape);
    add_attribute_edits(groups, call);
    if (parts.layout == FlashLayout::tnd) {
        add_length_edits(groups, "actual_seq_q_len", spec.lists[0], parts.shape.total_queries);
        add_length_edits(groups, "actual_seq_kv_len", spec.lists[1], parts.shape.total_keys);
        groups.push_back(values_of("actual_seq_kv_len.size", {std::ssize(spec.lists[1]) - 1, 0}));
    }
    if (parts.prefix) {
        groups.push_back({"prefix.absent"});
        groups.push_back(values_of("prefix.size", {0, -1, std::ssize(*parts.prefix) - 1}));
        const auto last = std::ssize(*parts.prefix) - 1;
        groups.push_back(values_of(
            fmt::format("prefix[{}]", last),
            {-1, 0, spec.lists[1].back() + 1, spec.lists[1].back(),
             std::max<std::int64_t>(0, spec.lists[1].back() - spec.lists[0].back()) - 1, kMax, kMin}));
    }
    return groups;
}

/// Validation looks at arguments, not at elements: few of them make room for many cases.
void plain_data(Spec& spec) {
    const Operator& op = *find_operator(spec.schema->op);
    const auto keep_if_legal = [&](auto&& change) {
        Spec to = spec;
        change(to);
        if (!op.illegal(to)) spec = std::move(to);
    };
    spec.recipe = Recipe::zeros;
    spec.overrides.clear();
    std::fill(spec.layouts.begin(), spec.layouts.end(), Layout::dense);
    keep_if_legal([](Spec& to) { to.set("group", std::min<std::int64_t>(to.number("group"), 3)); });
    keep_if_legal([](Spec& to) {
        for (auto& list : to.lists)
            for (auto& length : list) length = std::min<std::int64_t>(length, 12);
    });
}

}  // namespace

void add_flash_validation(std::vector<Property>& list, bool) {
    add_validation_properties(list, plain_data, possible_edits);
}

}  // namespace attncheck::properties
