#include "properties/search/case_sequence.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <ranges>
#include <span>
#include <string_view>
#include <utility>

namespace attncheck::properties {
namespace {

std::uint64_t hash_text(std::string_view text) {  // FNV-1a
    std::uint64_t hash = 1469598103934665603ull;
    for (const unsigned char ch : text) hash = (hash ^ ch) * 1099511628211ull;
    return hash;
}

}  // namespace

CaseSequence::CaseSequence(const Operator& op, const Property& property, const EngineOptions& options,
                           ForeseenDeclines& foreseen)
    : op_(op),
      property_(property),
      options_(options),
      foreseen_(foreseen),
      portions_(own_portions(property, options)),
      tally_(property, options) {}

std::optional<Spec> CaseSequence::next() {
    if (!source_ || is_portion_over()) begin_portion();
    if (next_of_round_ == round_.size()) begin_round();
    const auto [seed, size] = round_[next_of_round_++];
    Random random(seed);
    const Spec spec = source_->next(random, size, tally_.is_at_plain_cases());
    if (!source_->is_outside()) return spec;
    is_outside_ = true;
    return std::nullopt;
}

void CaseSequence::add(const Spec& spec, Outcome outcome, const std::string& clause) {
    switch (outcome) {
        case Outcome::inapplicable: return tally_.add_inapplicable();
        case Outcome::declined:
            if (is_inside_scope()) source_->scope()->suspect(spec);
            if (explores()) source_->scope()->refused_again(spec);
            return tally_.add_declined(false);
        case Outcome::others_declined: return tally_.add_declined(true);
        case Outcome::judged:
        case Outcome::hardly_compared: break;
    }
    tally_.add_judged(outcome == Outcome::hardly_compared);
    if (source_->scope()) source_->scope()->accept(spec);
    if (source_->plan()) source_->plan()->note(clause);
    ++judged_;
}

void CaseSequence::describe(PropertyReport& report) const {
    if (const std::optional<ClauseCoverage> reached = clauses()) report.clauses = *reached;
    tally_.fill(report.drawn, is_outside_);
}

std::uint64_t CaseSequence::digest(const Spec& spec) { return mix(hash_text(print(spec))); }

/// Nothing that the portions before taught decides about the cases of this one: another process may have those.
void CaseSequence::begin_portion() {
    clauses_before_ = clauses();
    const Portion& portion = portions_.at(next_portion_++);
    source_.emplace(op_, property_, options_, portion);
    tally_.begin(portion);
    foreseen_.forget();
    failures_.clear();
    judged_before_ = portion.before - judged_;
    rounds_ = 0;
    round_.clear();
    next_of_round_ = 0;
}

/// A round of rapidcheck's own, drawn ahead: a search stops between any two of its cases and goes on later.
void CaseSequence::begin_round() {
    constexpr std::int64_t kRound = 200;
    const std::int64_t unlimited = rounds_ == 0 ? kConclusiveCases + 10  // all sizes in the first cases
                                                : kRound;
    const std::int64_t left = tally_.left(unlimited);
    const Portion& portion = portions_[next_portion_ - 1];
    const std::uint64_t lane = rounds_++ * static_cast<std::uint64_t>(portion.of) +
                               static_cast<std::uint64_t>(portion.number);
    next_of_round_ = 0;
    round_ = draws_of_round(id(), mix(options_.seed ^ hash_text(id())) + lane,
                            static_cast<int>(std::clamp<std::int64_t>(left, 2, kRound)));
    if (options_.small_plain_first && rounds_ == 1 && !property_.clauses) put_small_plain_cases_first();
}

/// A slow kernel has met some of them when the time is over. Of others a larger case of many shows more, and shrinks to the end.
void CaseSequence::put_small_plain_cases_first() {
    const auto elements = [&](const Drawn& drawn) {
        Random random(drawn.seed);
        std::int64_t sum = 0;
        for (const auto& shape : op_.shapes(op_.plain(random, options_.profile)))
            sum += std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
        return sum;
    };
    std::vector<std::pair<std::int64_t, Drawn>> plain;
    for (const Drawn& drawn : std::span(round_).first(std::min(round_.size(), static_cast<std::size_t>(tally_.plain_cases()))))
        plain.emplace_back(elements(drawn), drawn);
    std::ranges::stable_sort(plain, {}, &std::pair<std::int64_t, Drawn>::first);
    std::ranges::copy(plain | std::views::values, round_.begin());
}

/// Judged by what the portion met alone.
bool CaseSequence::is_portion_over() const {
    return tally_.is_enough() || source_->is_outside() || tally_.is_hopeless() ||
           std::ssize(failures_) >= options_.max_counterexamples;
}

/// That the portions so far reached, this one among them.
std::optional<ClauseCoverage> CaseSequence::clauses() const {
    if (!source_ || !source_->plan()) return clauses_before_;
    const ClauseCoverage now = source_->plan()->coverage();
    return clauses_before_ ? joined(*clauses_before_, now) : now;
}

}  // namespace attncheck::properties
