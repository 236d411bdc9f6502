#include "properties/search/rounds.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "properties/search/law_order.h"

namespace attncheck::properties {
namespace {

constexpr std::int64_t kFewCases = kConclusiveCases + 10;  ///< the plain ones and all sizes among them
constexpr std::int64_t kGrowth = 4;  ///< from round to round: a search that begins anew repeats a third at most
constexpr double kOfKillers = 10;    ///< time of a law with a hundredth of all kills, against others in the first round
/// Cases of a law that tries hundreds of clauses one by one: a rejected call takes a hundredth of a computed one.
constexpr std::int64_t kOfClauses = 2500;
constexpr double kShortest = 0.01;   ///< seconds of a slice
/// Half of all defects fall in the first few cases of the right law: the laws that find most have a glance before any of
/// them has its whole first slice.
constexpr std::int64_t kGlance = 100, kGlanceAtClauses = 150;
constexpr double kGlanceSeconds = 0.5;

}  // namespace

Rounds::Rounds(const std::vector<const Property*>& properties, Limits limits)
    : properties_(properties.size()), order_(properties.size()), limits_(limits) {
    std::int64_t kills = 0;
    for (const MeasuredLaw& law : law_order()) kills += law.kills;
    std::vector<std::size_t> ranks;
    for (std::size_t i = 0; i < properties.size(); ++i) {
        const std::size_t rank = rank_of(properties[i]->name);
        ranks.push_back(rank);
        properties_[i].first_cases = kFewCases;
        if (rank == law_order().size() || 100 * law_order()[rank].kills < kills) continue;
        properties_[i].weight = kOfKillers;
        properties_[i].first_cases = std::max(kFewCases, law_order()[rank].cases);
        if (properties[i]->clauses) properties_[i].first_cases = std::max(kOfClauses, properties_[i].first_cases);
        properties_[i].glance = properties[i]->clauses ? kGlanceAtClauses : kGlance;
        properties_[i].kills = law_order()[rank].kills;
    }
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::ranges::stable_sort(order_, std::less<>(), [&](std::size_t i) { return ranks[i]; });
}

/// The first round has no time for a case of every law: a case of each says little, thirty of the first ones do.
bool Rounds::is_slow() const {
    if (limits_.total_seconds <= 0 || limits_.first_seconds <= 0) return false;
    double seconds = 0, cases = 0, waiting = 0;
    for (const One& one : properties_) {
        if (one.met > 0) seconds += one.seconds, cases += static_cast<double>(one.met);
        if (one.state != State::done) ++waiting;
    }
    return cases > 0 && seconds / cases * waiting > limits_.first_seconds * limits_.at_once;
}

/// Of a slow candidate: the first one in the order of the laws that lacks cases, in a process that has its search or has none.
std::optional<std::size_t> Rounds::next_of_slow(int process) {
    for (const std::size_t i : order_) {
        One& one = properties_[i];
        if (one.state != State::waiting || one.met >= kConclusiveCases || one.keeper.value_or(process) != process) continue;
        one.glance = 0;
        one.is_in_turn = true;
        one.state = State::running;
        return i;
    }
    return std::nullopt;
}

/// Own searches first, then those that nobody keeps; one of a busy process is begun anew only when there is nothing else
/// to do in this round and the next.
std::optional<std::size_t> Rounds::next(int process) {
    if (is_slow())
        if (const auto i = next_of_slow(process)) return i;
    const One* best = nullptr;
    std::pair<int, double> best_cost;
    for (const std::size_t i : order_) {
        One& one = properties_[i];
        if (one.state != State::waiting) continue;
        const bool is_strange = one.keeper && *one.keeper != process;
        // Of those that lack cases the cheap ones come first, so that most of them get there, and those that find most.
        const std::pair cost(2 * one.round + (is_strange ? 3 : 0) - (one.glance > 0 ? 1 : 0),
                             lacks_cases(one)  ? need_of(one) / one.weight
                             : one.glance > 0 ? -static_cast<double>(one.kills)
                                              : 0.0);
        if (best && cost >= best_cost) continue;
        best = &one;
        best_cost = cost;
    }
    if (!best) return std::nullopt;
    const auto i = static_cast<std::size_t>(best - properties_.data());
    properties_[i].state = State::running;
    return i;
}

/// In a run with a time limit, the cases that make it conclusive.
bool Rounds::lacks_cases(const One& one) const { return one.round == 1 && limits_.total_seconds > 0; }

/// 0: to the end of the search.
std::int64_t Rounds::cases_of(const One& one) const {
    if (one.round == 0) return one.glance > 0 ? one.glance : one.first_cases;
    if (limits_.total_seconds <= 0) return 0;
    std::int64_t cases = kConclusiveCases;
    for (int k = 1; k < one.round; ++k) cases *= kGrowth;
    return cases;
}

double Rounds::need_of(const One& one) const {
    if (one.round == 0) return one.weight;
    const double of_a_case = one.met > 0 ? one.seconds / static_cast<double>(one.met) : one.seconds + kShortest;
    return std::max(kShortest, of_a_case * static_cast<double>(cases_of(one) - one.met));
}

Slice Rounds::slice(std::size_t i, int process, double now) {
    One& own = properties_[i];
    own.keeper = process;
    const bool is_first = own.round == 0;
    double limit = limits_.total_seconds;
    if (is_first && limits_.first_seconds > 0)
        limit = limit > 0 ? std::min(limit, limits_.first_seconds) : limits_.first_seconds;
    if (limit <= 0) return {cases_of(own), 0};
    if (std::exchange(own.is_in_turn, false)) {
        own.granted = std::max(kShortest, limits_.start + limits_.total_seconds - now);
        return {kConclusiveCases, own.granted};
    }
    double needed = need_of(own);
    for (const One& other : properties_)
        if (&other != &own && other.state == State::waiting && other.round <= own.round)
            needed += need_of(other);
    const double left = limits_.start + limit - now;
    own.granted = left * std::min(1.0, limits_.at_once * need_of(own) / needed);
    constexpr double kSurely = 1.5;  ///< of what the first cases say of the time of the others
    if (lacks_cases(own)) own.granted = std::max(own.granted, std::min(left, kSurely * need_of(own)));
    if (own.glance > 0) own.granted = std::min(own.granted, kGlanceSeconds);
    own.granted = std::max(own.granted, kShortest);
    return {cases_of(own), own.granted};
}

void Rounds::came_back(std::size_t i, std::int64_t met, double seconds, bool is_over) {
    One& one = properties_[i];
    one.state = is_over ? State::done : State::waiting;
    const bool is_cut = seconds - one.seconds >= one.granted;
    one.met = met;
    one.seconds = seconds;
    if (std::exchange(one.glance, 0) > 0) return;
    if (is_over || (lacks_cases(one) && is_cut && met < cases_of(one))) return;
    ++one.round;
    while (limits_.total_seconds > 0 && cases_of(one) <= met) ++one.round;
}

void Rounds::lost(int process) {
    for (One& one : properties_)
        if (one.keeper == process) one.keeper.reset();
}

bool Rounds::is_first_over() const {
    return std::ranges::none_of(properties_,
                                [](const One& one) { return one.state != State::done && one.round == 0; });
}

}  // namespace attncheck::properties
