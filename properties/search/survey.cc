#include "properties/search/survey.h"

#include <attncheck/candidate.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>

#include "properties/candidate/candidate.h"
#include "properties/case/outputs.h"
#include "properties/search/class_pairs.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

constexpr double kSeconds = 10;    ///< of all calls; then everything is drawn that is not declared away
constexpr int kFirstCalls = 24;    ///< a candidate that takes all of these is not asked further
constexpr int kPlainCalls = 24;    ///< of what people run
constexpr int kAnchorCalls = 200;  ///< until one is accepted
constexpr int kPool = 600;         ///< cases whose values are asked for
constexpr int kGuidedCalls =
    200;  ///< cases inside what was learned, to find what is refused together
constexpr int kTakenInARow = 60;  ///< of them, and the search for more ends
constexpr int kCombinations =
    16;                           ///< found at most: each takes as many calls as the case has parts
constexpr int kPairCalls = 60;    ///< of two values that are refused one at a time
constexpr int kClassCases = 300;  ///< inside, to see which classes there are
constexpr std::size_t kExtents = 9;  ///< sizes that are tried
constexpr Int kElements = 1 << 20;   ///< of all tensors of a case that is made up here

/// Sizes that people have, the most common first.
constexpr Int kPopular[] = {64, 128, 96, 80, 32, 256, 16, 192, 8, 2, 1, 3};

class Learner {
public:
    Learner(const Operator& op, Candidate& candidate, std::uint64_t seed, Profile profile,
            const std::string& features)
        : op_(op),
          candidate_(candidate),
          profile_(profile),
          random_(mix(seed ^ 0x5C09Eull)),
          result_{Scope(op), 0, 0, false, {}},
          scope_(result_.scope) {
        if (!features.empty()) scope_.restrict_to(features);
    }

    Survey learn() {
        try {
            return ask();
        } catch (const OutOfTime&) {
            // What is known of a few calls restricts nothing; what is declared stays declared.
            if (!scope_.is_declared()) result_.scope = scope_.with_its_outputs_only();
            result_.takes_nothing = false;
            describe();
            return std::move(result_);
        }
    }

private:
    struct OutOfTime {};

    Survey ask() {
        if (op_.is_composition()) return std::move(result_);
        const bool is_declared = scope_.is_declared();
        if (!is_declared && takes_all_at_first()) {
            describe();
            return std::move(result_);
        }
        const bool found = find_anchor();
        result_.takes_nothing = !found;
        fill_pool();
        if (is_declared || !found) {
            describe();
            return std::move(result_);
        }
        for (std::size_t a = scope_.aspects().size(); a-- > 0;)
            probe(a);  // lengths and memory first: others need them
        probe_pairs();
        for (int k = 0, combinations = 0, in_a_row = 0;
             k < kGuidedCalls && combinations < kCombinations && in_a_row < kTakenInARow; ++k) {
            const auto spec = scope_.brought_inside(pool_[static_cast<std::size_t>(k)], random_);
            if (!spec) continue;
            const bool taken = takes(*spec);
            in_a_row = taken ? in_a_row + 1 : 0;
            if (!taken && !scope_.suspect(*spec)) find_combination(*spec), ++combinations;
        }
        describe();
        return std::move(result_);
    }

    void fill_pool() {
        while (pool_.size() < kPool)
            pool_.push_back(
                drawn(op_.sample(random_, static_cast<int>(pool_.size() % 100), profile_)));
    }

    /// What is inside: in words, and which classes its cases have.
    void describe() {
        TakenCases& taken = result_.taken;
        if (scope_.is_open() && scope_.withheld() != 0) taken.text = scope_.text() + " (all cases)";
        if (scope_.is_open()) return;
        fill_pool();
        const auto inside =
            std::ranges::count_if(pool_, [&](const Spec& spec) { return scope_.holds(spec); });
        taken.refusals = scope_.refusals_text(pool_);
        taken.text = fmt::format(
            "{} ({} of {} generated cases, {})", scope_.text(), inside, pool_.size(),
            scope_.is_declared() ? "as declared"
                                 : fmt::format("learned from {} declined calls", result_.declined));
        const ClassPairs pairs(op_);
        std::map<std::string, int> counts;
        for (int k = 0; k < kClassCases; ++k) {
            const auto spec = scope_.brought_inside(pool_[static_cast<std::size_t>(k)], random_);
            if (!spec) continue;
            const auto labels = op_.labels(*spec);
            for (const std::string& label : labels) ++counts[label];
            pairs.note(labels, taken.pairs);
        }
        for (const RequiredClass& required : op_.required_classes())
            if (!required.combination && counts[required.label] >= kClassCases / 100)
                taken.classes.push_back(required.label);
    }

    /// Without the outputs that the candidate does not give.
    Spec drawn(Spec spec) const {
        spec.withheld |= scope_.withheld();
        return spec;
    }

    bool takes(const Spec& spec) {
        ++result_.calls;
        Spec empty = spec;  // what is declined does not depend on values
        empty.recipe = Recipe::zeros;
        const CallResult got = candidate_.run(op_.build(empty), {});
        seconds_ += got.seconds;
        const bool declined =
            got.kind == CallResult::Kind::returned && got.status == ATTNCHECK_DECLINED;
        const bool is_slow = got.kind == CallResult::Kind::timed_out || seconds_ > kSeconds;
        if (!declined && (!is_slow || scope_.is_declared())) scope_.accept(spec);
        if (is_slow) throw OutOfTime();
        result_.declined += declined;
        return !declined;
    }

    bool takes_all_at_first() {
        for (int k = 0; k < kFirstCalls; ++k) {
            if (!takes(drawn(op_.sample(random_, 4 * k, profile_)))) {
                first_taken_ = scope_.accepted();
                scope_ = scope_.with_its_outputs_only();
                return false;
            }
        }
        return true;
    }

    /// Plain cases that are taken, the one with the fewest features first; else any.
    bool find_anchor() {
        std::vector<Spec> taken;
        for (int k = 0; k < kAnchorCalls && (k < kPlainCalls || taken.empty()); ++k) {
            Spec spec = drawn(op_.plain(random_, profile_));
            if (k >= kPlainCalls / 2 && taken.empty()) simplify(spec);
            if (scope_.is_declared()) scope_.mend(spec, random_);
            if (!op_.illegal(spec) && (!scope_.is_declared() || scope_.holds(spec)) && takes(spec))
                taken.push_back(spec);
        }
        if (taken.empty()) taken = first_taken_;
        if (taken.empty()) return false;
        std::ranges::stable_sort(taken, std::less<>(), features_of);
        if (!scope_.is_declared()) scope_ = scope_.with_its_outputs_only();
        for (const Spec& spec : taken) scope_.accept(spec);
        return true;
    }

    static std::int64_t features_of(const Spec& spec) {
        std::int64_t count = 0;
        for (std::size_t i = 0; i < spec.numbers.size(); ++i)
            count += spec.numbers[i] !=
                     std::max(spec.schema->numbers[i].fallback, spec.schema->numbers[i].min);
        return count + std::ssize(spec.lists.empty() ? std::vector<Int>{} : spec.lists[0]);
    }

    /// Some aspects at the value of another plain case, or of a popular size.
    void simplify(Spec& spec) {
        const Spec other = op_.plain(random_, profile_);
        for (const Aspect& aspect : scope_.aspects()) {
            if (!random_.chance(30)) continue;
            const Int value = aspect.is_extent
                                  ? kPopular[random_.between(0, std::ssize(kPopular) - 1)]
                                  : aspect.value(other);
            Spec next = spec;
            aspect.set(next, value);
            if (!op_.illegal(next)) spec = next;
        }
    }

    /// Values to try, those of the generator by frequency, popular sizes before them.
    std::vector<Int> values_of(const Aspect& aspect) const {
        std::map<Int, int> counts;
        for (const Spec& spec : pool_) ++counts[aspect.value(spec)];
        std::vector<Int> values;
        if (aspect.is_extent)
            for (const Int value : kPopular)
                if (counts.contains(value) || counts.size() > 12) values.push_back(value);
        std::vector<std::pair<int, Int>> drawn;
        for (const auto& [value, count] : counts)
            if (std::ranges::find(values, value) == values.end()) drawn.emplace_back(-count, value);
        std::ranges::sort(drawn);
        for (const auto& [count, value] : drawn) values.push_back(value);
        std::erase(values, aspect.value(anchor()));
        if (aspect.is_extent) values.resize(std::min(values.size(), kExtents));
        return values;
    }

    const Spec& anchor() const { return scope_.accepted().front(); }

    /// An accepted case with another value of one aspect; what was equal in it stays equal. Where that is no legal
    /// case, a generated one with this value and as little else as can be.
    struct Probe {
        Spec spec;
        bool alone;  ///< nothing else but what must stay equal to it
    };
    std::optional<Probe> with(std::size_t at, Int value, const Spec& base) const {
        const Aspect& aspect = scope_.aspects()[at];
        Spec spec = base;
        aspect.set(spec, value);
        if (aspect.value(spec) == value) {
            keep_relations(spec, at);
            if (aspect.value(spec) != value)
                return std::nullopt;  // equal to another one, which is tried itself
            if (is_legal(spec)) return Probe{spec, true};
        }
        const Spec* drawn = likeliest(at, value);
        if (!drawn) return std::nullopt;
        return Probe{
            reduced(*drawn, base, [&](const Spec& next) { return aspect.value(next) == value; }),
            false};
    }

    /// Of the generated cases with this value, one with the fewest others that are known to be refused.
    const Spec* likeliest(std::size_t at, Int value) const {
        const Spec* best = nullptr;
        std::size_t least = scope_.aspects().size() + 1;
        for (const Spec& drawn : pool_) {
            if (scope_.aspects()[at].value(drawn) != value || !is_legal(drawn)) continue;
            std::size_t refused = 0;
            for (std::size_t a = 0; a < scope_.aspects().size(); ++a)
                refused += a != at && !scope_.takes(a, scope_.aspects()[a].value(drawn));
            if (refused < least) least = refused, best = &drawn;
        }
        return best;
    }

    void keep_relations(Spec& spec, std::size_t changed) const {
        for (std::size_t a = 0; a < scope_.aspects().size(); ++a) {
            const Aspect& relation = scope_.aspects()[a];
            if (a != changed && relation.name.find('=') != std::string::npos &&
                relation.value(anchor()) != 0)
                relation.set(spec, 1);
        }
    }

    /// And small enough to be made in a millisecond or two.
    bool is_legal(const Spec& spec) const {
        Int elements = 0;
        for (const auto& shape : op_.shapes(spec)) {
            Int product = 1;
            for (const Int extent : shape) product *= extent;
            elements += product;
        }
        return elements <= kElements && !op_.illegal(spec);
    }

    /// The case with every part of an accepted one that it can have while `keeps` holds.
    template <class Keeps>
    Spec reduced(const Spec& from, const Spec& base, Keeps keeps) const {
        Spec spec = from;
        for (int pass = 0; pass < 2; ++pass)
            for (std::size_t part = 0; part < parts_of(spec); ++part) {
                Spec next = spec;
                copy_part(base, part, next);
                if (next != spec && is_legal(next) && keeps(next)) spec = std::move(next);
            }
        for (const auto& [left, right] : coupled_parts()) {
            Spec next = spec;
            copy_part(base, left, next);
            copy_part(base, right, next);
            if (next != spec && is_legal(next) && keeps(next)) spec = std::move(next);
        }
        return spec;
    }

    /// Fields that the candidate wants equal: one alone cannot change.
    std::vector<std::pair<std::size_t, std::size_t>> coupled_parts() const {
        std::vector<std::pair<std::size_t, std::size_t>> out;
        const auto& numbers = op_.schema().numbers;
        const auto part_of = [&](std::string_view key) {
            return static_cast<std::size_t>(std::ranges::find(numbers, key, &NumberField::key) -
                                            numbers.begin());
        };
        for (const Aspect& relation : scope_.aspects()) {
            const std::size_t equals = relation.name.find('=');
            if (equals == std::string::npos) continue;
            const std::size_t left = part_of(relation.name.substr(0, equals)),
                              right = part_of(relation.name.substr(equals + 1));
            if (left < numbers.size() && right < numbers.size())
                out.emplace_back(left + 1, right + 1);  // part 0 is the lengths
        }
        return out;
    }

    using Values = std::vector<std::pair<std::size_t, Int>>;

    /// Aspects in which a case is unlike an accepted one.
    Values differences(const Spec& spec, const Spec& base) const {
        Values out;
        for (std::size_t a = 0; a < scope_.aspects().size(); ++a) {
            const Int value = scope_.aspects()[a].value(spec);
            if (value != scope_.aspects()[a].value(base)) out.emplace_back(a, value);
        }
        return out;
    }

    bool has(const Spec& spec, const Values& values) const {
        return std::ranges::all_of(values, [&](const auto& one) {
            return scope_.aspects()[one.first].value(spec) == one.second;
        });
    }

    void probe(std::size_t at) {
        const Aspect& aspect = scope_.aspects()[at];
        int taken = 0, refused = 0, in_a_row = 0;
        for (const Int value : values_of(aspect)) {
            if (scope_.takes_for_sure(at, value)) {
                ++taken;
                continue;
            }
            bool is_taken = false, is_refused = false;
            for (const Spec& base :
                 {anchor(), scope_.accepted().back()}) {  // few features, and other ones
                const std::optional<Probe> probe = with(at, value, base);
                if (!probe) continue;
                is_taken = takes(probe->spec);
                is_refused = !is_taken && (probe->alone || is_to_blame(at, probe->spec, base));
                if (is_taken || is_refused) break;
            }
            taken += is_taken;
            in_a_row = is_taken ? 0 : in_a_row + is_refused;
            if (is_refused) {
                ++refused;
                scope_.refuse(at, value);
            }
            if (aspect.is_extent && (refused == 0 ? taken >= 3 : in_a_row >= 5)) break;
            if (taken == 0 && refused >= 3) break;
        }
        if (refused > 0 && (taken == 0 || aspect.is_extent)) scope_.close(at);
    }

    /// Values of plain cases that are taken together, not one at a time: no mask and the mode of no mask.
    void probe_pairs() {
        std::set<Values> tried;
        for (int k = 0, calls = 0; k < kPlainCalls * 4 && calls < kPairCalls; ++k) {
            const Spec plain = drawn(op_.plain(random_, profile_));
            Values refused;
            for (std::size_t a = 0; a < scope_.aspects().size(); ++a) {
                const Int value = scope_.aspects()[a].value(plain);
                if (!scope_.aspects()[a].is_extent && !scope_.takes(a, value))
                    refused.emplace_back(a, value);
            }
            for (std::size_t i = 0; i < refused.size(); ++i)
                for (std::size_t j = i + 1; j < refused.size(); ++j) {
                    Spec spec = anchor();
                    for (const auto& [a, value] : {refused[i], refused[j]})
                        scope_.aspects()[a].set(spec, value);
                    if (!has(spec, {refused[i], refused[j]}) || !is_legal(spec) ||
                        !tried.insert({refused[i], refused[j]}).second)
                        continue;
                    ++calls;
                    (void)takes(spec);
                }
        }
    }

    /// Whether the declined case is taken with the accepted one's value of the aspect, or with its lengths where the
    /// aspect is one of lengths.
    bool is_to_blame(std::size_t at, const Spec& spec, const Spec& base) {
        const Aspect& aspect = scope_.aspects()[at];
        const auto is_taken = [&](const Spec& other) {
            return aspect.value(other) == aspect.value(base) && is_legal(other) && takes(other);
        };
        Spec other = spec, other_lengths = spec;
        aspect.set(other, aspect.value(base));
        copy_part(base, 0, other_lengths);
        return is_taken(other) || is_taken(other_lengths);
    }

    /// What a declined case has that no accepted one has: as little of it as can be found.
    void find_combination(const Spec& declined) {
        Values values;
        Spec least = declined;
        for (std::size_t k = 0; k < scope_.accepted().size(); ++k) {
            const Spec base = scope_.accepted()[k];
            if (!has(base, values)) continue;
            least = reduced(least, base, [&](const Spec& next) {
                return has(next, values) && scope_.holds(next) && !takes(next);
            });
            for (const auto& one : differences(least, base)) values.push_back(one);
        }
        // A size beside two modes is one of many that are refused with them, unless these were taken with another.
        Values modes = values;
        std::erase_if(modes, [&](const auto& one) { return scope_.aspects()[one.first].is_extent; });
        const auto has_modes = [&](const Spec& spec) { return has(spec, modes); };
        if (modes.size() >= 2 && std::ranges::none_of(scope_.accepted(), has_modes))
            values = std::move(modes);
        // What an accepted case has, too, is not to blame: the cases differ in something that is no aspect.
        const auto has_all = [&](const Spec& spec) { return has(spec, values); };
        if (values.empty() || std::ranges::any_of(scope_.accepted(), has_all)) return;
        if (values.size() == 1)
            scope_.refuse(values[0].first, values[0].second);
        else
            scope_.refuse_together(std::move(values));
    }

    const Operator& op_;
    Candidate& candidate_;
    Profile profile_;
    Random random_;
    Survey result_;
    Scope& scope_;
    std::vector<Spec> first_taken_, pool_;
    double seconds_ = 0;  ///< of all calls
};

}  // namespace

Survey survey(const Operator& op, Candidate& candidate, std::uint64_t seed, Profile profile,
              const std::string& features) {
    return Learner(op, candidate, seed, profile, features).learn();
}

namespace {

/// Calls `take` with the operator and the features of each line.
template <class Take>
void for_each_line(const std::string& declaration, Take take) {
    std::string lines = declaration;
    std::ranges::replace(lines, ';', '\n');
    std::istringstream in(lines);
    for (std::string line; std::getline(in, line);) {
        const std::size_t start = line.find_first_not_of(' '), colon = line.find(": ");
        if (start == std::string::npos) continue;
        if (colon == std::string::npos)
            throw std::invalid_argument(
                fmt::format("'{}' names no operator: expected 'operator: field=values'", line));
        take(line.substr(start, colon - start), line.substr(colon + 1));
    }
}

}  // namespace

std::string features_of(const std::string& declaration, const std::string& op) {
    std::string out;
    for_each_line(declaration, [&](const std::string& name, const std::string& features) {
        if (name == op) out += features;
    });
    return out;
}

std::vector<std::string> operators_of(const std::string& declaration) {
    std::vector<std::string> out;
    for_each_line(declaration,
                  [&](const std::string& name, const std::string&) { out.push_back(name); });
    return out;
}

std::uint64_t withheld_outputs(const std::string& declaration, const Operator& op) {
    Scope scope(op);
    scope.restrict_to(features_of(declaration, op.name()));
    return scope.withheld();
}

std::vector<std::string> missing_outputs(const std::string& declaration,
                                         const std::vector<std::unique_ptr<Operator>>& operators) {
    std::vector<std::string> out;
    for (const auto& op : operators)
        for (const std::string& output :
             withheld_names(op->schema(), withheld_outputs(declaration, *op)))
            out.push_back(fmt::format("{}.{}", op->name(), output));
    return out;
}

}  // namespace attncheck::properties
