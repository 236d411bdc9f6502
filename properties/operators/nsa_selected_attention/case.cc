// The operators: legality of elements, shrinking, and the values of a call.
#include "properties/operators/nsa_selected_attention/case.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "properties/case/values.h"
#include "properties/operators/nsa_selected_attention/problem.h"

namespace attncheck::properties {
namespace {

class SelectedOperator final : public Operator {
public:
    explicit SelectedOperator(bool gradient)
        : gradient_(gradient),
          properties_(selected_properties(gradient)),
          required_(selected_required_classes(gradient)) {}

    const Schema& schema() const override { return selected_description(gradient_); }
    const std::vector<Property>& properties() const override { return properties_; }
    const std::vector<RequiredClass>& required_classes() const override { return required_; }
    const AttentionOperator* attention() const override { return &selected_attention_operator(); }
    std::vector<ExcludedPairs> excluded_pairs() const override {
        return nsa_selected_attention_excluded_pairs();
    }
    std::vector<std::string> labels(const Spec& spec) const override {
        return selected_labels(spec);
    }
    Spec draw(Random& random, int size, Profile) const override {
        return sample_selected(schema(), random, size);
    }

    std::vector<Spec> joint_shrinks(const Spec& spec) const override;
    void carry_overrides(const Spec& from, Spec& to, const std::vector<int>& kept) const override;

    std::vector<Spec> large_cases(std::int64_t length, std::uint64_t seed) const override {
        return selected_large_cases(schema(), length, seed);
    }

private:
    bool gradient_;
    std::vector<Property> properties_;
    std::vector<RequiredClass> required_;
};

std::vector<Spec> SelectedOperator::joint_shrinks(const Spec& spec) const {
    std::vector<Spec> out;
    const std::int64_t block = spec.numbers[kSelBlock], count = spec.numbers[kSelCount];
    const auto with = [&](std::int64_t b, std::int64_t c, auto&& kv_length) {
        Spec to = spec;
        to.numbers[kSelBlock] = b;
        to.numbers[kSelCount] = c;
        for (auto& length : to.lists[1])
            if (length > 0) length = std::max(kv_length(length), b * c);
        out.push_back(to);
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
            Spec to = spec;
            to.lists[1][i] -= cut * block;
            if (cut > 0 && to.lists[1][i] >= block * count) out.push_back(to);
        }
    if (spec.numbers[kSelDim] > 128 && spec.numbers[kSelValueDim] > 128) {
        Spec to = spec;
        to.numbers[kSelDim] = to.numbers[kSelValueDim] = 128;
        out.push_back(to);
    }
    if (spec.numbers[kSelMask] != 0) {
        Spec to = spec;
        to.numbers[kSelMask] = to.numbers[kSelMaskShape] = 0;
        out.push_back(to);
    }
    for (std::size_t i = 0; i < spec.lists[0].size(); ++i) {  // a sequence without queries or keys
        Spec to = spec;
        to.lists[1][i] = 0;
        if (to.numbers[kSelBeyondKv] == 0 &&
            std::accumulate(to.lists[1].begin(), to.lists[1].end(), std::int64_t{0}) == 0)
            to.numbers[kSelBeyondKv] = 1;
        out.push_back(to);
    }
    const auto with_change = [&](auto&& change) {
        Spec to = spec;
        change(to);
        out.push_back(std::move(to));
    };
    // Rows behind the last sequence become part of it, kv heads become members of one group.
    with_change([](Spec& to) {
        to.lists[0].back() += std::exchange(to.numbers[kSelBeyondQ], 0);
    });
    with_change([&](Spec& to) {
        to.numbers[kSelBeyondKv] = 0;
        to.lists[1].back() = std::max(to.lists[1].back(), block * count);
    });
    with_change([](Spec& to) {
        to.numbers[kSelGroup] *= std::exchange(to.numbers[kSelKvHeads], 1);
    });
    return out;
}

void SelectedOperator::carry_overrides(const Spec& from, Spec& to,
                                       const std::vector<int>& kept) const {
    properties::carry_overrides(from, to, kept);
    if (selected_element_rules(to)) {  // a list that names a block which is no more names the first
        const int topk = tensor_with(Role::list, schema());
        std::erase_if(to.overrides, [&](const auto& item) { return item.first.tensor == topk; });
    }
}

}  // namespace

std::optional<std::string> selected_element_rules(const Spec& spec) {
    if (spec.overrides.empty()) return std::nullopt;
    const int topk = tensor_with(Role::list, *spec.schema),
              mask = tensor_with(Role::mask, *spec.schema);
    std::vector<ref::SelectedQuery> queries;
    for (const auto& [ref, value] : spec.overrides) {
        if (ref.tensor == mask &&
            (spec.numbers[kSelMask] == 0 || !(value >= 0 && value <= 255) ||
             (spec.numbers[kSelMask] == 1 && value > 1)))
            return "set gives atten_mask a value it cannot hold";
        if (ref.tensor != topk) continue;
        if (queries.empty()) queries = ref::selected_queries(selected_shape_parts(spec).shape);
        const ref::SelectedQuery& query = queries[static_cast<std::size_t>(ref.index[0])];
        if (query.sequence >= 0 && query.kv_length > 0 &&
            !(value >= 0 &&
              value < static_cast<double>(query.kv_length / spec.numbers[kSelBlock])))
            return "set gives topk_indices a block outside its sequence";
    }
    return std::nullopt;
}

Call build_selected_call(const Spec& spec) {
    return build_of(spec, [](const Spec& of, Call& call) {
        if (has_extents_of(of, call)) return set_selected_values(selected_parts(of), call);
        fill_with_zeros(call);  // no reference is defined on claimed extents
        const int row_sum = of.schema->tensor("softmax_sum");
        auto& bits = call.tensors[static_cast<std::size_t>(row_sum)].bits;
        std::fill(bits.begin(), bits.end(), ref::encode(ref::Dtype::fp32, 1));
    });
}

std::unique_ptr<Operator> make_nsa_selected_attention() {
    return std::make_unique<SelectedOperator>(false);
}
std::unique_ptr<Operator> make_nsa_selected_attention_grad() {
    return std::make_unique<SelectedOperator>(true);
}

std::vector<Property> selected_properties(bool gradient) {
    std::vector<Property> list;
    add_selected_agreement(list, gradient);
    add_selected_tiers(list);
    add_selected_validation(list, gradient);
    if (gradient)
        add_selected_gradient_relations(list);
    else
        add_selected_forward_relations(list);
    add_selected_sampled(list);
    return list;
}

}  // namespace attncheck::properties
