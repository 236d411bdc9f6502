// The operators: shrinking, and the call of a case.
#include "properties/operators/flash_attention/case.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace attncheck::properties {
namespace {

class FlashOperator final : public Operator {
public:
    explicit FlashOperator(bool gradient)
        : gradient_(gradient),
          properties_(flash_properties(gradient)),
          required_(flash_required_classes(gradient)) {}

    const Schema& schema() const override { return flash_description(gradient_); }
    const std::vector<Property>& properties() const override { return properties_; }
    const std::vector<RequiredClass>& required_classes() const override { return required_; }
    std::vector<std::string> labels(const Spec& spec) const override { return flash_labels(spec); }
    Spec draw(Random& random, int size, Profile profile) const override {
        return sample_flash(schema(), random, size, profile);
    }
    Spec draw_plain(Random& random, Profile) const override {
        return plain_flash(schema(), random);
    }

    std::vector<Spec> joint_shrinks(const Spec& spec) const override;


    std::vector<Spec> large_cases(std::int64_t length, std::uint64_t seed) const override {
        return flash_large_cases(schema(), length, seed);
    }

private:
    bool gradient_;
    std::vector<Property> properties_;
    std::vector<RequiredClass> required_;
};

std::vector<Spec> FlashOperator::joint_shrinks(const Spec& spec) const {
    std::vector<Spec> out;
    const auto with = [&](auto&& change) {
        Spec to = spec;
        change(to);
        out.push_back(to);
    };
    const auto without_mask = [](Spec& to) {
        for (const FlashField field :
             {kFaMask, kFaMaskForm, kFaTokens, kFaPre, kFaNext, kFaPrefix, kFaSparse})
            to.numbers[field] = 0;
    };
    const auto without_pse = [](Spec& to) {
        to.numbers[kFaPse] = to.numbers[kFaStart] = 0;
        to.numbers[kFaPseType] = 1;
    };
    const auto without_drop = [](Spec& to) { to.numbers[kFaDrop] = to.numbers[kFaKeep] = 0; };
    with([&](Spec& to) {
        without_mask(to);
        without_pse(to);
        without_drop(to);
        to.numbers[kFaRope] = 0;
    });
    with(without_mask);
    with([&](Spec& to) {
        without_mask(to);
        to.numbers[kFaRope] = 0;
    });
    with(without_pse);
    with(without_drop);
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
    // All batches at once, queries and keys apart and together.
    for (const int which : {1, 2, 3})
        for (const std::int64_t cut : {std::int64_t{1} << 30, std::int64_t{0}, std::int64_t{1}})
            with([&](Spec& to) {
                for (int list = 0; list < 2; ++list)
                    if (which >> list & 1)
                        for (auto& length : to.lists[static_cast<std::size_t>(list)])
                            length = cut == 0   ? length / 2
                                     : cut == 1 ? std::max<std::int64_t>(0, length - 1)
                                                : std::min<std::int64_t>(length, 1);
            });
    with([](Spec& to) {  // kv heads become members of one group
        to.numbers[kFaGroup] *= std::exchange(to.numbers[kFaKvHeads], 1);
    });
    with([](Spec& to) {  // heads become queries
        const std::int64_t heads = std::exchange(to.numbers[kFaKvHeads], 1) *
                                   std::exchange(to.numbers[kFaGroup], 1);
        for (auto& length : to.lists[0]) length *= heads;
    });
    with([](Spec& to) {  // 1/sqrt(1) is no scale: another one shows the same
        to.numbers[kFaDim] = to.numbers[kFaValueDim] = 1;
        to.numbers[kFaRope] = 0;
        to.numbers[kFaScale] = static_cast<std::int64_t>(ScaleKind::eighth);
    });
    return out;
}

}  // namespace

Call build_flash_call(const Spec& spec) {
    return build_of(spec, [](const Spec& of, Call& call) {
        give_values(flash_parts(of), extents_of(of), call);
    });
}

std::unique_ptr<Operator> make_flash_attention_score() {
    return std::make_unique<FlashOperator>(false);
}
std::unique_ptr<Operator> make_flash_attention_score_grad() {
    return std::make_unique<FlashOperator>(true);
}

std::vector<Property> flash_properties(bool gradient) {
    std::vector<Property> list;
    add_flash_agreement(list, gradient);
    add_flash_tiers(list);
    add_flash_validation(list, gradient);
    if (gradient)
        add_flash_gradient_relations(list);
    else
        add_flash_forward_relations(list);
    add_flash_sampled(list);
    // Relations change data by steps that fp8 does not have; what is compared with the reference
    // runs on it too.
    for (Property& property : list) {
        constexpr std::string_view kOnAnyType[] = {"agreement",  "non_finite",         "memory",
                                                   "repeatable", "concurrent",         "history",
                                                   "validation", "validation_combined"};
        if (std::find(std::begin(kOnAnyType), std::end(kOnAnyType), property.name) !=
            std::end(kOnAnyType))
            continue;
        property.domain = [inner = property.domain](const Spec& spec) {
            return !flash_is_fp8(spec) && (!inner || inner(spec));
        };
    }
    return list;
}

}  // namespace attncheck::properties
