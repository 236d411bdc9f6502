// The operators, and their larger steps of shrinking.
#include "properties/operators/nsa_selected_attention/case.h"

#include <algorithm>
#include <utility>

#include "properties/case/attention_draws.h"
#include "properties/case/values.h"
#include "properties/operators/nsa_selected_attention/problem.h"

namespace attncheck::properties {
namespace {

std::vector<Spec> joint_shrinks(const Spec& spec) {
    ChangedCases cases(spec);
    const std::int64_t block = spec.numbers[kSelBlock], count = spec.numbers[kSelCount];
    const auto with = [&](std::int64_t b, std::int64_t c, auto&& kv_length) {
        cases.with([&](Spec& to) {
            to.numbers[kSelBlock] = b;
            to.numbers[kSelCount] = c;
            for (auto& length : to.lists[1])
                if (length > 0) length = std::max(kv_length(length), b * c);
        });
    };
    // The same number of blocks, and as few as there may be, for every smaller block and count.
    for (std::int64_t c = 1; c <= count; c = c < 4 || c == count ? c + 1 : std::min(2 * c, count))
        for (std::int64_t b = 16; b <= block; b += 16) {
            if (b == block && c == count) continue;
            with(b, c, [&](std::int64_t length) { return length / block * b; });
            with(b, c, [&](std::int64_t) { return b * c; });
            with(b, c, [&](std::int64_t) { return b * (c + 1); });
        }
    for (std::size_t i = 0; i < spec.lists[1].size(); ++i)
        for (const std::int64_t cut : {std::int64_t{1}, (spec.lists[1][i] / block - count) / 2}) {
            const std::int64_t length = spec.lists[1][i] - cut * block;
            if (cut > 0 && length >= block * count)
                cases.with([&](Spec& to) { to.lists[1][i] = length; });
        }
    if (spec.numbers[kSelDim] > 128 && spec.numbers[kSelValueDim] > 128)
        cases.with([](Spec& to) { to.numbers[kSelDim] = to.numbers[kSelValueDim] = 128; });
    if (spec.numbers[kSelMask] != 0)
        cases.with([](Spec& to) { to.numbers[kSelMask] = to.numbers[kSelMaskShape] = 0; });
    for (std::size_t i = 0; i < spec.lists[0].size(); ++i)
        cases.with([&](Spec& to) {  // a sequence without queries or keys
            to.lists[1][i] = 0;
            if (to.numbers[kSelBeyondKv] == 0 && total(to.lists[1]) == 0)
                to.numbers[kSelBeyondKv] = 1;
        });
    // Rows behind the last sequence become part of it, kv heads become members of one group.
    cases.with([](Spec& to) { to.lists[0].back() += std::exchange(to.numbers[kSelBeyondQ], 0); });
    cases.with([&](Spec& to) {
        to.numbers[kSelBeyondKv] = 0;
        to.lists[1].back() = std::max(to.lists[1].back(), block * count);
    });
    cases.with_one_group();
    return cases.take();
}

void carry_lists(const Spec& from, Spec& to, const std::vector<int>& kept) {
    carry_overrides(from, to, kept);
    if (selected_element_rules(to)) {  // a list that names a block which is no more names the first
        const int topk = tensor_with(Role::list, *to.schema);
        std::erase_if(to.overrides, [&](const auto& item) { return item.first.tensor == topk; });
    }
}

}  // namespace

std::unique_ptr<Operator> make_nsa_selected_attention(bool gradient) {
    return make_operator({.schema = selected_description(gradient),
                          .properties = selected_properties(gradient),
                          .required = selected_required_classes(gradient),
                          .labels = selected_labels,
                          .draw = sample_selected,
                          .joint_shrinks = joint_shrinks,
                          .large_cases = selected_large_cases,
                          .carry_overrides = carry_lists,
                          .attention = selected_attention_operator});
}

}  // namespace attncheck::properties
