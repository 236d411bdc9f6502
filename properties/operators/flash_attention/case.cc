// The operators, and what shrinks their cases by several fields at once.
#include <algorithm>
#include <numeric>
#include <utility>

#include "properties/operators/flash_attention/problem.h"

namespace attncheck::properties {
namespace {

/// One sequence without its first queries, and the elements of the others in their new rows.
void drop_first_queries(Spec& spec, std::int64_t count) {
    spec.lists[0][0] -= count;
    std::map<ElementRef, double> moved;
    for (const auto& [element, value] : spec.overrides) {
        ElementRef to = element;
        const Role role = spec.schema->tensors[static_cast<std::size_t>(element.tensor)].role;
        if (role == Role::query || role == Role::output_grad) to.index[0] -= count;
        if (to.index[0] >= 0) moved.emplace(to, value);
    }
    spec.overrides = std::move(moved);
}

std::vector<Spec> joint_shrinks(const Spec& spec) {
    ChangedCases cases(spec);
    const auto with = [&](auto&& change) { cases.with(change); };
    const auto clear_mask = [](Spec& to) {
        for (const FlashField field :
             {kFaMask, kFaMaskForm, kFaTokens, kFaPre, kFaNext, kFaPrefix, kFaSparse})
            to.numbers[field] = 0;
    };
    with([&](Spec& to) {
        clear_mask(to);
        without_bias(to);
        without_dropout(to);
        to.numbers[kFaRope] = 0;
    });
    with(clear_mask);
    with([&](Spec& to) {
        clear_mask(to);
        to.numbers[kFaRope] = 0;
    });
    if (spec.number("sparse") == 3 && spec.lists[0].size() == 1 && spec.lists[0][0] > spec.lists[1][0] && spec.lists[1][0] > 0)
        with([](Spec& to) {  // those without a key; of as many queries as keys both corners are one
            drop_first_queries(to, to.lists[0][0] - to.lists[1][0]);
            to.numbers[kFaSparse] = 2;
        });
    with(without_bias);
    with(without_dropout);
    if (flash_is_fp8(spec))
        with([](Spec& to) { to.numbers[kFaDtype] = to.numbers[kFaResult] = 0; });
    with([](Spec& to) { to.numbers[kFaTokens] = to.numbers[kFaPre] = to.numbers[kFaNext] = 0; });
    for (const std::int64_t layout : {0, 1, 2})
        if (layout < spec.numbers[kFaLayout])
            with([&](Spec& to) {
                to.numbers[kFaLayout] = layout;
                if (layout != 2)
                    to.numbers[kFaBeyondQ] = to.numbers[kFaBeyondKv] = to.numbers[kFaOrder] = 0;
            });
    for (const std::int64_t dim : {1, 2, 8, 16, 32, 64})  // both widths, and the rope with them
        if (dim < spec.numbers[kFaDim])
            with([&](Spec& to) {
                to.numbers[kFaDim] = dim;
                to.numbers[kFaValueDim] = std::min(to.numbers[kFaValueDim], dim);
                to.numbers[kFaRope] = std::min(to.numbers[kFaRope], dim / 8 * 8);
            });
    with([](Spec& to) { to.numbers[kFaValueDim] = 1; });
    cases.with_shorter_sequences();
    cases.with_one_group();
    with([](Spec& to) {  // heads become queries
        const std::int64_t heads =
            std::exchange(to.numbers[kFaKvHeads], 1) * std::exchange(to.numbers[kFaGroup], 1);
        for (auto& length : to.lists[0]) length *= heads;
    });
    if (spec.lists[0].size() > 1)
        with([](Spec& to) {  // batches become queries of the first one's keys
            to.lists[0] = {
                std::accumulate(to.lists[0].begin(), to.lists[0].end(), std::int64_t{0})};
            to.lists[1].resize(1);
        });
    cases.with_one_channel({"rope"});
    return cases.take();
}

}  // namespace

std::unique_ptr<Operator> make_flash_attention_score(bool gradient) {
    return make_operator({.schema = flash_description(gradient),
                          .properties = flash_properties(gradient),
                          .required = flash_required_classes(gradient),
                          .labels = flash_labels,
                          .draw = sample_flash,
                          .joint_shrinks = joint_shrinks,
                          .large_cases = flash_large_cases,
                          .plain = plain_flash,
                          .attention = flash_attention_operator});
}

}  // namespace attncheck::properties
