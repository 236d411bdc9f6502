#include "tests/properties/search/pair_search.h"

#include <algorithm>

namespace attncheck::properties {
namespace {

constexpr std::size_t kKept = 400;  ///< cases remembered for each class

class PairSearch {
public:
    explicit PairSearch(const Operator& op)
        : op_(op), pairs_(op), having_(pairs_.classes().size()) {}

    PairSet run(const SearchEffort& effort) {
        std::uint64_t number = 0;
        for (const Property& property : op_.properties())
            for (int k = 0; k < effort.draws; ++k)
                if (auto spec = drawn_case(op_, property, number++)) {
                    spec->edits.clear();
                    spec->overrides.clear();
                    if (!op_.illegal(*spec)) note(*spec);
                }
        for (std::size_t high = 1; high < having_.size(); ++high)
            for (std::size_t low = 0; low < high; ++low) look_for(low, high, effort.crossings);
        return found_;
    }

private:
    void note(const Spec& spec) {
        const std::vector<std::string> labels = op_.labels(spec);
        pairs_.note(labels, found_);
        for (std::size_t c = 0; c < having_.size(); ++c)
            if (std::find(labels.begin(), labels.end(), pairs_.classes()[c]) != labels.end()) {
                if (having_[c].size() < kKept)
                    having_[c].push_back(spec);
                else if (random_.chance(20))
                    having_[c][static_cast<std::size_t>(random_.between(0, kKept - 1))] = spec;
            }
    }

    void look_for(std::size_t low, std::size_t high, int crossings) {
        if (having_[low].empty() || having_[high].empty()) return;
        for (int k = 0; k < crossings && !found_.has(pairs_.pair(low, high)); ++k) {
            // Copies: noting a child may replace its parents.
            const Spec left = random_.pick(having_[low]), right = random_.pick(having_[high]);
            const Spec child = crossed(left, right);
            if (!op_.illegal(child)) note(child);
        }
    }

    /// Any value where there are few, otherwise one around the old one.
    std::int64_t changed(std::int64_t value, const NumberField& field) {
        const std::int64_t steps = (field.max - field.min) / field.step;
        if (steps <= 16) return field.min + field.step * random_.between(0, steps);
        const std::int64_t unit = field.step * random_.pick({-5, -1, 1, 5, 40});
        return std::clamp(random_.chance(50) ? value + unit : value * 2, field.min, field.max);
    }

    /// Most of one, the rest of the other, and now and then a field of its own.
    Spec crossed(const Spec& left, const Spec& right) {
        const bool swap = random_.chance(50);
        Spec child = swap ? right : left;
        const Spec& other = swap ? left : right;
        const int share = random_.pick({3, 10, 30, 50});
        for (std::size_t i = 0; i < child.numbers.size(); ++i) {
            if (random_.chance(share)) child.numbers[i] = other.numbers[i];
            if (random_.chance(2))
                child.numbers[i] = changed(child.numbers[i], op_.schema().numbers[i]);
        }
        if (random_.chance(share)) child.lists = other.lists;
        if (random_.chance(10))
            for (auto& list : child.lists)
                for (auto& entry : list)
                    if (random_.chance(30))
                        entry = random_.pick<std::int64_t>(
                            {0, 1, entry + 1, entry / 2, std::min<std::int64_t>(2 * entry, 4096)});
        for (std::size_t i = 0; i < child.layouts.size(); ++i)
            if (random_.chance(share)) child.layouts[i] = other.layouts[i];
        if (random_.chance(share)) child.recipe = other.recipe;
        if (random_.chance(share)) child.seed = other.seed;
        return child;
    }

    const Operator& op_;
    ClassPairs pairs_;
    PairSet found_;
    std::vector<std::vector<Spec>> having_;
    Random random_{1};
};

}  // namespace

std::optional<Spec> drawn_case(const Operator& op, const Property& property, std::uint64_t number) {
    Random random(mix(number));
    for (int tries = 0; tries < 100; ++tries) {
        Spec spec = op.sample(random, static_cast<int>(number % 101));
        if (property.adapt) property.adapt(spec, random);
        if (!op.illegal(spec) && (!property.domain || property.domain(spec))) return spec;
    }
    return std::nullopt;
}

PairSet search_pairs(const Operator& op, const SearchEffort& effort) {
    return PairSearch(op).run(effort);
}

}  // namespace attncheck::properties
