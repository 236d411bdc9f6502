#include "properties/search/survey.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "properties/candidate/candidate.h"
#include "properties/case/printable.h"
#include "properties/search/class_pairs.h"
#include "properties/search/survey_cases.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;

constexpr double kSeconds = 10;    ///< of all calls; then everything is drawn that is not declared away
constexpr int kEnoughCalls = 200;  ///< what was learned of so many is kept when the time is over
constexpr int kDeaths = 3;         ///< one behind another: to start it again may take a second each
constexpr int kFirstCalls = 24;    ///< a candidate that takes all of these is not asked further
constexpr int kPlainCalls = 24;    ///< of what people run
constexpr int kAnchorCalls = 1200; ///< until one is accepted
constexpr Int kShort = 33;         ///< a sequence that is cheap, with a ragged tile
constexpr Int kTile = 128;         ///< and one that is a whole one
constexpr int kPool = 600;         ///< cases whose values are asked for
constexpr int kGuidedCalls =
    400;  ///< cases inside what was learned, to find what is refused together
constexpr int kTakenInARow = 60;  ///< of them, and the search for more ends
constexpr int kCombinations =
    32;                           ///< found at most: each takes as many calls as the case has parts
constexpr int kPairCalls = 60;    ///< of two values that are refused one at a time, and of modes once more
constexpr int kClassCases = 300;  ///< inside, to see which classes there are

class Learner {
public:
    Learner(const Operator& op, Candidate& candidate, std::uint64_t seed, Profile profile,
            const std::string& features)
        : op_(op),
          candidate_(candidate),
          profile_(profile),
          random_(mix(seed ^ 0x5C09Eull)),
          result_{Scope(op), 0, 0, false, {}, {}},
          scope_(result_.scope),
          cases_(op, scope_, pool_) {
        if (!features.empty()) scope_.restrict_to(features);
    }

    Survey learn() {
        try {
            return ask();
        } catch (const OutOfTime&) {
            // What is known of a few calls restricts nothing; what is declared stays declared.
            if (!scope_.is_declared() && result_.calls < kEnoughCalls) result_.scope = scope_.with_its_outputs_only();
            result_.takes_nothing = false;
            describe();
            return std::move(result_);
        }
    }

private:
    using Values = SurveyCases::Values;
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
        std::vector<std::size_t> later;
        for (std::size_t a = scope_.aspects().size(); a-- > 0;)  // lengths and memory first: others need them
            if (!probe(a)) later.push_back(a);
        for (const std::size_t a : later) (void)probe(a);  // a rope needs a type and a mask that were taken since
        probe_pairs();
        probe_again();
        for (int k = 0, combinations = 0, in_a_row = 0;
             k < kGuidedCalls && combinations < kCombinations && in_a_row < kTakenInARow; ++k) {
            const auto spec = scope_.brought_inside(pool_[static_cast<std::size_t>(k)], random_);
            if (!spec) continue;
            const bool taken = takes(*spec);
            in_a_row = taken ? in_a_row + 1 : 0;
            if (!taken && !scope_.suspect(*spec, [&](std::size_t a) { return is_to_blame_inside(a, *spec); })) find_combination(*spec), ++combinations;
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
        const ClassPairs pairs(op_);
        std::map<std::string, std::vector<Spec>> cases;
        for (int k = 0; k < kClassCases; ++k) {
            const auto spec = scope_.brought_inside(pool_[static_cast<std::size_t>(k)], random_);
            if (!spec) continue;
            const auto labels = op_.labels(*spec);
            for (const std::string& label : labels) cases[label].push_back(*spec);
            pairs.note(labels, taken.pairs);
        }
        for (const RequiredClass& required : op_.required_classes()) {
            std::vector<Spec>& of_class = cases[required.label];
            if (!required.combination && std::ssize(of_class) >= kClassCases / 100 && takes_some_of(of_class))
                taken.classes.push_back(required.label);
        }
        const auto inside =
            std::ranges::count_if(pool_, [&](const Spec& spec) { return scope_.holds(spec); });
        taken.refusals = scope_.refusals_text(pool_);
        const std::string what = scope_.text();
        taken.text = fmt::format(
            "{} ({} of {} cases of the whole space, {})", what.empty() ? "cases unlike the declined ones" : what,
            inside, pool_.size(),
            scope_.is_declared() ? "as declared"
                                 : fmt::format("learned from {} declined calls", result_.declined));
    }

    /// What is learned may hold cases of a class that are all declined: then no run can be asked for one, and what they
    /// have in common is refused, too.
    /// One of few that is taken may be all there is: two are asked for. Small ones first: one of 1025 sequences with 80 heads
    /// may take a second to make.
    bool takes_some_of(std::vector<Spec>& cases) {
        constexpr std::ptrdiff_t kAsked = 8, kWanted = 2;
        if (scope_.is_declared()) return true;
        std::ranges::stable_sort(cases, {}, [&](const Spec& spec) { return cases_.elements(spec); });
        try {
            std::ptrdiff_t taken = 0;
            for (std::ptrdiff_t k = 0; k < std::min(kAsked, std::ssize(cases)); ++k) {
                taken += takes(cases[static_cast<std::size_t>(k)]);
                if (taken == std::min(kWanted, std::ssize(cases))) return true;
            }
            if (taken == 0) find_combination(cases.front());
            return false;
        } catch (const OutOfTime&) {
            return true;  // the run will tell
        }
    }

    /// Without the outputs that the candidate does not give.
    Spec drawn(Spec spec) const {
        spec.withheld |= scope_.withheld();
        return spec;
    }

    bool takes(const Spec& spec) {
        Spec empty = spec;  // what is declined does not depend on values
        empty.recipe = Recipe::zeros;
        const auto [answer, is_new] = answers_.try_emplace(print(empty), false);
        if (!is_new) {
            if (answer->second) scope_.accept(spec);
            return answer->second;
        }
        ++result_.calls;
        const CallResult got = candidate_.run(op_.build(empty), {});
        seconds_ += got.seconds;
        const bool declined = got.declined();
        answer->second = !declined;
        deaths_ = got.died() ? deaths_ + 1 : 0;
        const bool is_over = got.kind == CallResult::Kind::timed_out || seconds_ > kSeconds || deaths_ == kDeaths;
        if (!declined && (!is_over || scope_.is_declared())) scope_.accept(spec);
        if (is_over) throw OutOfTime();
        result_.declined += declined;
        if (declined && !got.detail.empty()) note_reason(printable_line(got.detail, kLongestMessage));
        return !declined;
    }

    void note_reason(const std::string& reason) {
        if (++reasons_[reason] >= reasons_[result_.reason]) result_.reason = reason;
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
        bool has_keys = false;  // a case without any says little of others
        for (int k = 0; k < kAnchorCalls && (k < kPlainCalls || !has_keys); ++k) {
            Spec spec = k < kPlainCalls ? drawn(op_.plain(random_, profile_)) : unusual(k);
            if (k >= kPlainCalls / 2 && k < kPlainCalls && taken.empty()) simplify(spec);
            if (scope_.is_declared()) scope_.mend(spec, random_);
            if (op_.illegal(spec) || (scope_.is_declared() && !scope_.holds(spec)) || !takes(spec)) continue;
            taken.push_back(spec);
            has_keys = has_keys || !is_empty(spec);
        }
        if (has_keys) std::erase_if(taken, is_empty);
        if (taken.empty()) taken = first_taken_;
        if (taken.empty()) return false;
        std::ranges::stable_sort(taken, std::less<>(), features_of);
        take_cheap_ones(taken);
        if (!scope_.is_declared()) scope_ = scope_.with_its_outputs_only();
        for (const Spec& spec : taken) scope_.accept(spec);
        return true;
    }

    /// Lengths that are whole tiles, where that is legal.
    void in_tiles(Spec& spec) {
        const Int tile = random_.pick<Int>({64, 128});
        Spec next = spec;
        for (auto& list : next.lists)
            for (Int& length : list) length = (length + tile - 1) / tile * tile;
        if (cases_.is_legal(next)) spec = std::move(next);
    }

    static bool is_empty(const Spec& spec) {
        return std::ranges::any_of(spec.lists, [](const auto& list) {
            return std::ranges::all_of(list, [](Int length) { return length == 0; });
        });
    }

    /// What nobody runs who takes plain cases: sizes that go together, any generated case, one with plain lengths, and one
    /// with plain values of half of its parts. Most of the first two are plain sizes with one other value of a mode: what
    /// is made for sinks and one group of one width.
    Spec unusual(int k) {
        const Spec plain = drawn(op_.plain(random_, profile_));
        if (k % 4 < 2 && random_.chance(75)) return with_one_mode(plain);
        Spec spec = k % 4 == 0 ? plain : drawn(op_.sample(random_, k / 4 % 100, profile_));
        if (k % 4 == 0) {
            simplify(spec);
            if (random_.chance(50)) in_tiles(spec);
            constexpr Int kKeyWidth = 192, kValueWidth = 128;  // of latent attention
            Spec next = spec;
            if (spec.schema->number("value_dim") >= 0 && random_.chance(25)) {
                next.set("dim", kKeyWidth), next.set("value_dim", kValueWidth);
                if (cases_.is_legal(next)) spec = next;
            }
        }
        for (std::size_t part = 0; part < parts_of(spec); ++part) {
            if (k % 4 < 2 || !(part == 0 || (k % 4 == 3 && random_.chance(50)))) continue;
            Spec next = spec;
            copy_part(plain, part, next);
            if (cases_.is_legal(next)) spec = next;
        }
        return spec;
    }

    Spec with_one_mode(Spec spec) {
        constexpr int kTries = 8;  // most cases have the plain value
        if (spec.schema->number("group") >= 0 && random_.chance(60)) {
            spec.set("group", random_.pick<Int>({8, 8, 8, 4, 5, 16}));
            spec.set("kv_heads", 1);
            for (auto& list : spec.lists) {
                if (list.empty()) continue;
                list.resize(1);
                list.front() = std::min(list.front(), kTile);
            }
        }
        std::vector<const Aspect*> modes;
        for (const Aspect& aspect : scope_.aspects())
            if (!aspect.is_extent && spec.schema->number(aspect.name) >= 0) modes.push_back(&aspect);
        const Aspect& mode = *modes[static_cast<std::size_t>(random_.between(0, std::ssize(modes) - 1))];
        Spec next = spec;
        for (int k = 0; k < kTries && mode.value(next) == mode.value(spec); ++k)
            mode.set(next, mode.value(op_.sample(random_, k, profile_)));
        if (cases_.is_legal(next)) spec = std::move(next);
        if (random_.chance(30)) in_tiles(spec);
        return spec;
    }

    /// The first and the last of the taken cases with short sequences in addition, where these are taken as well, and the
    /// first with one head: all further calls begin from them, and a kernel may need 30 ms for a plain one.
    void take_cheap_ones(std::vector<Spec>& taken) {
        if (scope_.is_declared()) return;
        Spec one_head = taken.front();
        for (const char* heads : {"kv_heads", "group"})
            if (one_head.schema->number(heads) >= 0) one_head.set(heads, 1);
        if (one_head != taken.front() && !op_.illegal(one_head) && takes(one_head)) taken.insert(taken.begin(), one_head);
        const auto shortened = [](Spec spec) {
            for (auto& list : spec.lists)
                for (Int& length : list) length = std::min(length, kShort);
            return spec;
        };
        const Spec first = shortened(taken.front()), last = shortened(taken.back());
        if (last != taken.back() && !op_.illegal(last) && takes(last)) taken.push_back(last);
        if (first != taken.front() && !op_.illegal(first) && takes(first)) taken.insert(taken.begin(), first);
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
            if (cases_.is_legal(next)) spec = next;
        }
    }

    /// Asks for the values of an aspect; false: no case that is known to be taken can have another value.
    bool probe(std::size_t at) {
        const Aspect& aspect = scope_.aspects()[at];
        int taken = 0, refused = 0, in_a_row = 0;
        bool is_asked = false, is_all_known = true;
        for (const Int value : cases_.values_of(aspect)) {
            if (scope_.takes_for_sure(at, value)) {
                ++taken;
                continue;
            }
            is_all_known = false;
            bool is_taken = false, is_refused = false;
            for (const Spec& base : bases_for(at, value)) {
                const std::vector<SurveyCases::Probe> probes = cases_.all_with(at, value, base);
                bool all_blamed = !probes.empty();
                for (const SurveyCases::Probe& probe : probes) {
                    is_asked = true;
                    is_taken = takes(probe.spec) || (is_of_lengths(at) && is_taken_in_tiles(at, value, probe.spec, base));
                    if (is_taken) break;
                    all_blamed = all_blamed && (is_refused || probe.alone || is_to_blame(at, probe.spec, base));
                }
                is_refused = !is_taken && (is_refused || all_blamed);
                if (is_taken || (is_refused && aspect.is_extent)) break;
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
        return is_asked || is_all_known;
    }

    /// Whether the declined case is taken with lengths that are multiples of the accepted ones: several sequences, or unequal
    /// ones, may have to be whole tiles.
    bool is_taken_in_tiles(std::size_t at, Int value, const Spec& declined, const Spec& base) {
        for (const Int step : {0, 1}) {
            Spec spec = declined;
            for (std::size_t l = 0; l < spec.lists.size(); ++l) {
                if (base.lists[l].empty() || base.lists[l].front() == 0) return false;
                for (std::size_t b = 0; b < spec.lists[l].size(); ++b)
                    if (spec.lists[l][b] != 0) spec.lists[l][b] = base.lists[l].front() * (1 + step * static_cast<Int>(b % 2));
            }
            if (spec != declined && scope_.aspects()[at].value(spec) == value && cases_.is_legal(spec) && takes(spec)) return true;
        }
        return false;
    }

    /// Accepted cases that are asked with another value: the one with few features and the last one; for a mode, which
    /// may be refused with one of another aspect only, also such as have other modes than these.
    std::vector<Spec> bases_for(std::size_t at, Int value) const {
        constexpr std::size_t kBases = 6;
        std::vector<Spec> bases{cases_.anchor(), scope_.accepted().back()};
        const auto has_value = [&](const Spec& base) { return cases_.with(at, value, base).has_value(); };
        if (std::ranges::none_of(bases, has_value)) {
            const auto one = std::ranges::find_if(scope_.accepted(), has_value);
            if (one != scope_.accepted().end()) bases = {*one};
        }
        if (scope_.aspects()[at].is_extent) return bases;
        const auto is_new = [&](const Spec& spec, bool in_fields) {
            return std::ranges::any_of(scope_.aspects(), [&](const Aspect& aspect) {
                return !aspect.is_extent && &aspect != &scope_.aspects()[at] &&
                       (!in_fields || spec.schema->number(aspect.name) >= 0) &&
                       std::ranges::none_of(bases, [&](const Spec& base) { return aspect.value(base) == aspect.value(spec); });
            });
        };
        // Of fields, in the plain cases, which were taken first; then of lengths and memory, in the newest ones. A mode is
        // refused with no mask more often than with some lengths.
        for (std::size_t k = 0; k < scope_.accepted().size() && bases.size() < kBases; ++k) {
            const Spec& spec = scope_.accepted()[k];
            if (is_new(spec, true) && has_value(spec)) bases.push_back(spec);
        }
        for (std::size_t k = scope_.accepted().size(); k-- > 0 && bases.size() < kBases;) {
            const Spec& spec = scope_.accepted()[k];
            if (is_new(spec, false) && has_value(spec)) bases.push_back(spec);
        }
        return bases;
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
                    Spec spec = cases_.anchor();
                    for (const auto& [a, value] : {refused[i], refused[j]})
                        scope_.aspects()[a].set(spec, value);
                    if (!cases_.has(spec, {refused[i], refused[j]}) || !cases_.is_legal(spec) ||
                        !tried.insert({refused[i], refused[j]}).second)
                        continue;
                    ++calls;
                    (void)takes(spec);
                }
        }
    }

    /// Refused modes once more, on what was taken since: the type of a bias was asked for with one that is declined.
    void probe_again() {
        int calls = 0;
        for (std::size_t a = 0; a < scope_.aspects().size(); ++a) {
            if (scope_.aspects()[a].is_extent) continue;
            for (const Int value : cases_.values_of(scope_.aspects()[a])) {
                if (scope_.takes(a, value)) continue;
                for (const Spec& base : bases_for(a, value)) {
                    const std::optional<SurveyCases::Probe> probe = cases_.with(a, value, base);
                    if (!probe || calls == kPairCalls) continue;
                    ++calls;
                    if (takes(probe->spec)) break;
                }
            }
        }
    }

    /// Whether the declined case is taken with the accepted one's value of the aspect, or with its lengths where the
    /// aspect is one of lengths.
    bool is_to_blame(std::size_t at, const Spec& spec, const Spec& base) {
        const Aspect& aspect = scope_.aspects()[at];
        const auto is_taken = [&](const Spec& other) {
            return aspect.value(other) == aspect.value(base) && cases_.is_legal(other) && takes(other);
        };
        Spec other = spec, other_lengths = spec;
        aspect.set(other, aspect.value(base));
        copy_part(base, 0, other_lengths);
        return is_taken(other) || is_taken(other_lengths);
    }

    /// Whether a case inside that was declined is taken with an accepted value of the aspect, or is none with that value.
    bool is_to_blame_inside(std::size_t at, const Spec& declined) {
        for (const Spec* base : {&cases_.anchor(), &scope_.accepted().back()}) {
            Spec other = declined;
            scope_.aspects()[at].set(other, scope_.aspects()[at].value(*base));
            if (scope_.aspects()[at].value(other) != scope_.aspects()[at].value(declined) && cases_.is_legal(other) &&
                scope_.holds(other))
                return takes(other);
        }
        return true;
    }

    /// What a declined case has that no accepted one has: as little of it as can be found.
    void find_combination(const Spec& declined) {
        constexpr int kRounds = 4;
        Values values, found;
        Spec least = declined;
        const auto is_new = [&](const Values& of) {  // what an accepted case has, too, is not to blame
            return !of.empty() && std::ranges::none_of(scope_.accepted(), [&](const Spec& spec) { return cases_.has(spec, of); });
        };
        for (int round = 0; round < kRounds; ++round) {
            for (std::size_t k = 0; k < scope_.accepted().size(); ++k) {
                const Spec base = scope_.accepted()[k];
                if (!cases_.has(base, values)) continue;
                least = cases_.reduced(least, base, [&](const Spec& next) {
                    return cases_.has(next, values) && scope_.holds(next) && !takes(next);
                });
                for (const auto& one : cases_.differences(least, base)) values.push_back(one);
            }
            if (is_new(values)) found = values;
            if (!drop_some(values, least)) break;
        }
        if (!is_new(values)) values = std::move(found);  // with less there was another reason
        // A size beside two modes is one of many that are refused with them, unless these were taken with another.
        Values modes = values;
        std::erase_if(modes, [&](const auto& one) { return scope_.aspects()[one.first].is_extent; });
        const auto has_modes = [&](const Spec& spec) { return cases_.has(spec, modes); };
        if (modes.size() >= 2 && std::ranges::none_of(scope_.accepted(), has_modes))
            values = std::move(modes);
        if (!is_new(values)) return;  // the cases differ in something that is no aspect
        if (values.size() == 1)
            scope_.refuse(values[0].first, values[0].second);
        else
            scope_.refuse_together(std::move(values));
    }

    /// Takes away values, one or two at a time or all of the lengths, without which the case is declined all the same;
    /// false: there are none.
    bool drop_some(Values& values, Spec& least) {
        bool any = false;
        for (std::size_t k = 0; k < values.size() && values.size() > 1;) {
            bool dropped = drop(values, least, {values[k]});
            for (std::size_t l = k + 1; !dropped && l < values.size() && values.size() > 2; ++l)
                dropped = drop(values, least, {values[k], values[l]});
            if (!dropped) ++k;
            any = any || dropped;
        }
        Values lengths;
        std::ranges::copy_if(values, std::back_inserter(lengths), [&](const auto& one) { return is_of_lengths(one.first); });
        return (lengths.size() > 1 && lengths.size() < values.size() && drop(values, least, lengths)) || any;
    }

    /// Whether the case is declined with values of an accepted case in their place, which are as many other values.
    bool drop(Values& values, Spec& least, const Values& some) {
        constexpr int kBases = 3;
        Values rest = values;
        std::erase_if(rest, [&](const auto& one) { return std::ranges::find(some, one) != some.end(); });
        int tried = 0;
        for (std::size_t k = 0; k < scope_.accepted().size() && tried < kBases; ++k) {
            const Spec base = scope_.accepted()[k];  // a call that is taken adds to them
            Spec next = least;
            for (const auto& [at, value] : some) {
                const Aspect& aspect = scope_.aspects()[at];
                if (is_of_lengths(at))
                    next.lists = base.lists;
                else if (aspect.value(base) != value)
                    aspect.set(next, aspect.value(base));
            }
            const bool differs = std::ranges::all_of(some, [&](const auto& one) {
                return scope_.aspects()[one.first].value(next) != one.second;
            });
            if (!differs || !cases_.has(next, rest) || !cases_.is_legal(next) || !scope_.holds(next)) continue;
            ++tried;
            if (takes(next)) continue;
            least = std::move(next), values = std::move(rest);
            return true;
        }
        return false;
    }

    /// Aspects of the lists of lengths, not of single numbers: "q:empty", "q=kv", "sequences".
    bool is_of_lengths(std::size_t at) const {
        const std::string& name = scope_.aspects()[at].name;
        return name == "sequences" || std::ranges::any_of(op_.schema().lists, [&](const ListField& list) {
                   return name.starts_with(list.key + ":") || name.starts_with(list.key + "=") ||
                          name.starts_with(list.key + "<=");
               });
    }

    const Operator& op_;
    Candidate& candidate_;
    Profile profile_;
    Random random_;
    Survey result_;
    Scope& scope_;
    std::vector<Spec> first_taken_, pool_;
    SurveyCases cases_;
    double seconds_ = 0;  ///< of all calls
    int deaths_ = 0;      ///< calls without a return, one behind another
    std::map<std::string, bool> answers_;  ///< whether a case was taken: none is asked for twice
    std::map<std::string, int> reasons_;  ///< what declined calls said, and how often
};

}  // namespace

Survey survey(const Operator& op, Candidate& candidate, std::uint64_t seed, Profile profile,
              const std::string& features) {
    return Learner(op, candidate, seed, profile, features).learn();
}

}  // namespace attncheck::properties
