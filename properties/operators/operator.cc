#include "properties/operators/operator.h"

#include <algorithm>
#include <utility>

#include "properties/case/many_sequences.h"
#include "properties/case/one_buffer.h"
#include "properties/case/large_together.h"
#include "properties/case/unusual_strides.h"

namespace attncheck::properties {
namespace {

class OperatorOfParts final : public Operator {
public:
    explicit OperatorOfParts(OperatorParts parts) : parts_(std::move(parts)) {}

    const Schema& schema() const override { return parts_.schema; }
    const std::vector<Property>& properties() const override { return parts_.properties; }
    const std::vector<RequiredClass>& required_classes() const override { return parts_.required; }
    std::vector<std::string> labels(const Spec& spec) const override { return parts_.labels(spec); }
    std::vector<Spec> joint_shrinks(const Spec& spec) const override {
        return parts_.joint_shrinks ? parts_.joint_shrinks(spec) : Operator::joint_shrinks(spec);
    }
    void carry_overrides(const Spec& from, Spec& to, const std::vector<int>& kept) const override {
        parts_.carry_overrides(from, to, kept);
    }
    std::vector<Spec> large_cases(std::int64_t length, std::uint64_t seed) const override {
        return parts_.large_cases ? parts_.large_cases(schema(), length, seed)
                                  : std::vector<Spec>{};
    }

    std::vector<std::string> entry_points() const override {
        return parts_.entry_points ? parts_.entry_points() : Operator::entry_points();
    }
    const AttentionOperator* attention() const override {
        return parts_.attention ? &parts_.attention() : nullptr;
    }
    std::optional<ExpectedOutputs> expected(const Spec& spec,
                                            const ref::RoundingClass& rounding) const override {
        if (parts_.expected) return parts_.expected(spec, rounding);
        return Operator::expected(spec, rounding);
    }

private:
    Spec draw(Random& random, int size, Profile profile) const override {
        return parts_.draw(schema(), random, size, profile);
    }
    Spec draw_plain(Random& random, Profile profile) const override {
        return parts_.plain ? parts_.plain(schema(), random)
                            : Operator::draw_plain(random, profile);
    }

    OperatorParts parts_;
};

}  // namespace

std::unique_ptr<Operator> make_operator(OperatorParts parts) {
    return std::make_unique<OperatorOfParts>(std::move(parts));
}

Spec Operator::sample(Random& random, int size, Profile profile) const {
    Spec spec = draw(random, size, profile);
    spec.profile = profile;
    draw_many_sequences(spec);
    draw_large_together(spec);
    draw_unusual_strides(spec);
    draw_one_buffer(spec);
    return spec;
}

Spec Operator::plain(Random& random, Profile profile) const {
    Spec spec = draw_plain(random, profile);
    spec.profile = profile;
    std::ranges::fill(spec.layouts, Layout::dense);
    spec.recipe = Recipe::normal;
    return spec;
}

Spec Operator::draw_plain(Random& random, Profile profile) const {
    constexpr int kSize = 30;
    return draw(random, kSize, profile);
}

bool Operator::implemented_by(const CandidateInfo& candidate) const {
    return std::ranges::all_of(
        entry_points(), [&](const std::string& entry) { return candidate.implements(entry); });
}

const Property* Operator::property(std::string_view name) const {
    const auto it = std::ranges::find(properties(), name, &Property::name);
    return it == properties().end() ? nullptr : &*it;
}

}  // namespace attncheck::properties
