#include "properties/search/walk.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>
#include <string_view>
#include <utility>

#include "properties/candidate/candidate.h"
#include "properties/judge/cause_in_message.h"
#include "properties/report/causes.h"
#include "properties/search/explain.h"
#include "properties/search/fitting_words.h"

namespace attncheck::properties {
namespace {

constexpr const char *kDiagnosingLaw = "deviation", *kLawOfOneCall = "agreement";
constexpr int kRuns = 3;  ///< of the failing case, each in a fresh process

/// Failure classes that `kill`, a stopped machine, or a system without memory can bring about.
bool may_come_from_outside(const std::string& failure) {
    constexpr std::string_view kSignals[] = {"SIGKILL", "SIGTERM", "SIGINT",
                                             "SIGHUP",  "SIGQUIT", "SIGXCPU"};
    return failure == kTimedOut || std::ranges::any_of(kSignals, [&](std::string_view name) {
               return failure == fmt::format("crashed: {}", name);
           });
}

}  // namespace

Walk::Walk(const Operator& op, const Property& property, const EngineOptions& options,
           const Clock& clock, Candidate& candidate, Evaluate evaluate,
           EvaluateUnder evaluate_under, EvaluateBy evaluate_by, const Spec& spec, const Verdict& verdict)
    : op_(op),
      property_(property),
      options_(options),
      clock_(clock),
      candidate_(candidate),
      evaluate_(std::move(evaluate)),
      evaluate_under_(std::move(evaluate_under)),
      evaluate_by_(std::move(evaluate_by)),
      start_(clock.now()) {
    found_.spec = found_.original = spec;
    found_.failure = verdict.failure;
    found_.message = found_.found_message = verdict.message;
    found_.tier = property.tier_of(verdict);
    go_alone(verdict);
    const bool hangs = verdict.failure == kTimedOut;
    candidate_.limit_time(std::chrono::duration<double>(options_.timeout_s));
    for (int k = 0; k < (hangs ? 1 : kRuns); ++k) {
        candidate_.restart();
        const bool fails = evaluate_(spec).failure == verdict.failure;
        if (!fails && clock_.interrupted()) break;  // it was cut
        failing_runs_ += fails;
        ++runs_;
    }
    if (hangs) {
        // A hang costs the whole limit at every step: what ran so far says how long an honest call
        // takes. That it is one was seen twice with the limit that was asked for.
        failing_runs_ *= kRuns;
        runs_ *= kRuns;
        candidate_.limit_time(std::chrono::duration<double>(std::min(options_.timeout_s, 0.5)));
    }
    tries_ = failing_runs_ == runs_ ? 1 : 5;
    steps_since_ = clock_.now();
}

/// A law of several calls that fails as one of them does alone: that one says it much sooner.
void Walk::go_alone(const Verdict& verdict) {
    const Property* const law = op_.property(kLawOfOneCall);
    if (!law || !needs_company(property_.name) || !found_.spec.edits.empty() || (law->domain && !law->domain(found_.spec))) return;
    candidate_.restart();
    if (evaluate_by_(*law, found_.spec).failure != verdict.failure) return;
    evaluate_ = [this, law](const Spec& other) { return evaluate_by_(*law, other); };
}

bool Walk::is_confirmed() const {
    return failing_runs_ > 0 || !may_come_from_outside(found_.failure);
}

/// A case that is declared not to be taken accuses nobody. One that was found outside, as a case of a
/// corpus may be, is free to go where it likes.
const Scope* Walk::declared() const {
    const Scope* scope =
        options_.survey && options_.survey->scope.is_declared() ? &options_.survey->scope : nullptr;
    return scope && scope->holds(found_.original) ? scope : nullptr;
}

/// Neighbours with the outputs that the candidate gives, inside what it declares.
std::vector<Neighbour> Walk::taken_neighbours(const Spec& spec) const {
    std::vector<Neighbour> list = neighbours(spec, op_, property_.domain);
    const Scope* const declared = this->declared();
    if (options_.withheld != 0 || declared)
        for (Neighbour& one : list)
            one = [make = std::move(one), withheld = options_.withheld,
                   declared]() -> std::optional<Spec> {
                std::optional<Spec> next = make();
                if (next && (next->withheld & withheld) != withheld) return std::nullopt;
                if (next && declared && !declared->holds(*next)) return std::nullopt;
                return next;
            };
    return list;
}

std::vector<Neighbour> Walk::neighbours_of(const Spec& spec, const KnownMinima& known) const {
    std::vector<Neighbour> list = taken_neighbours(spec);
    const auto it = known.find(key());
    if (it == known.end()) return list;
    std::vector<Neighbour> first;
    for (const Spec& minimum : it->second)
        if (complexity(minimum) < complexity(spec) &&
            (!property_.domain || property_.domain(minimum)))
            first.push_back([minimum] { return minimum; });
    list.insert(list.begin(), first.begin(), first.end());
    return list;
}

std::string Walk::step(const Spec& spec) {
    if (is_over() || !fails_alike(spec)) return {};
    found_.spec = spec;
    ++found_.steps_taken;
    return found_.failure;
}

bool Walk::is_over() {
    if (failing_runs_ == 0) return true;
    is_spent_ =
        is_spent_ || clock_.interrupted() || clock_.now() - steps_since_ > options_.shrink_seconds;
    return is_spent_;
}

bool Walk::fails_alike(const Spec& spec) {
    const std::string line = print(spec);
    if (const auto it = tried_.find(line); it != tried_.end()) return it->second == Tried::fails;
    ++found_.neighbours_tried;
    bool fails = false, is_declined = false;
    for (int k = 0; k < tries_ && !fails; ++k) {
        const Verdict verdict = evaluate_(spec);
        fails = verdict.failed() && verdict.failure == found_.failure;
        if (fails) found_.message = verdict.message;
        is_declined = verdict.kind == Verdict::Kind::declined;
    }
    tried_.emplace(line, fails ? Tried::fails : is_declined ? Tried::declined : Tried::holds);
    return fails;
}

Counterexample Walk::finish(KnownMinima& known) {
    if (failing_runs_ == 0) {
        found_.repeatable = false;
        found_.certificate = clock_.interrupted()
                                 ? "the run ended before the case was repeated; not shrunk"
                                 : fmt::format("{} (3 tries): it depends on earlier calls, on uninitialised memory or "
                                               "on timing; not shrunk", kNotAlone);
    } else {
        certify();
        confirm();
        name_defect();
        listen();
        if (!is_known(known)) explain(), find_words();
        known[key()].push_back(found_.spec);
    }
    found_.shrink_seconds = clock_.now() - start_;
    return std::move(found_);
}

void Walk::certify() {
    (void)is_over();
    std::size_t held = 0, declined = 0, all = 0;
    // A case that is still large has tens of thousands of neighbours: listing them would take
    // longer than the search that was stopped.
    if (!is_spent_)
        for (const Neighbour& neighbour : taken_neighbours(found_.spec))
            if (const std::optional<Spec> spec = neighbour()) {
                ++all;
                const auto it = tried_.find(print(*spec));
                held += it != tried_.end() && it->second == Tried::holds;
                declined += it != tried_.end() && it->second == Tried::declined;
            }
    found_.certified = !is_spent_ && held == all;
    const bool all_tried = !is_spent_ && held + declined == all;
    found_.certificate =
        all_tried && declined > 0 ? fmt::format(
                                        "smallest of the cases that the candidate takes: of {} "
                                        "neighbours {} hold, {} were declined",
                                        all, held, declined)
        : found_.certified ? fmt::format(
                                 "no dimension can be decreased, no element simplified: "
                                 "{} of {} neighbours hold",
                                 held, all)
                           : fmt::format("{} after {:.0f} s; smaller cases may exist", kStopped,
                                         clock_.now() - start_);
    if (tries_ > 1)
        found_.certificate += fmt::format("; fails in {} of {} runs only", failing_runs_, runs_);
}

/// The shrunk case once more, alone in a fresh process and with the full time limit.
void Walk::confirm() {
    if (clock_.interrupted()) {
        // What ran out of the short limit of shrinking was not seen to hang.
        if (found_.failure != kTimedOut || found_.spec == found_.original) return;
        found_.spec = found_.original;
        found_.message = found_.found_message;
        found_.certified = false;
        found_.certificate = "the run ended before a shrunk case was repeated with the full time limit; shown as found";
        return;
    }
    candidate_.limit_time(std::chrono::duration<double>(0));
    candidate_.restart();
    const Verdict verdict = evaluate_(found_.spec);
    if (verdict.failure == found_.failure) {
        found_.message = verdict.message;
    } else if (tries_ == 1) {
        found_.spec = found_.original;
        found_.certified = false;
        found_.certificate =
            "the shrunk case holds in a fresh process or with the full time limit; shown as found";
        candidate_.restart();
        const Verdict again = evaluate_(found_.spec);  // which may hold as well
        found_.message = again.failure == found_.failure ? again.message : found_.found_message;
    }
}

/// Another law or class ended at the same case: what matters was said there.
bool Walk::is_known(const KnownMinima& known) const {
    return std::ranges::any_of(known, [&](const auto& of_class) {
        return std::ranges::find(of_class.second, found_.spec) != of_class.second.end();
    });
}

/// On the case as found several causes look different that a smallest case cannot tell apart. A law without a diagnosis
/// asks the one that has them, about the same arguments with normal data.
void Walk::name_defect() {
    if (!options_.explains || found_.tier > Tier::filter || !found_.spec.edits.empty() || tries_ > 1 || clock_.interrupted())
        return;
    std::string cause = cause_in(found_.found_message);
    const Property* const law = op_.property(kDiagnosingLaw);
    const bool has_no_name = found_.failure.ends_with(" is wrong");  // "lse is log2" has one
    if (cause.empty() && found_.tier == Tier::bound && has_no_name && law && law != &property_) {
        Spec spec = found_.original;
        Random random(options_.seed);
        if (law->adapt) law->adapt(spec, random);
        spec.recipe = Recipe::normal;
        spec.overrides.clear();
        const Scope* const scope = declared();
        if (!op_.illegal(spec) && (!law->domain || law->domain(spec)) && (!scope || scope->holds(spec)))
            cause = cause_in(evaluate_by_(*law, spec).message);
        if (!cause.empty()) cause += "; on the case as found, with normal data";
    }
    if (!cause.empty())
        found_.message = with_cause(found_.message, cause);
    else if (property_.name == kDiagnosingLaw)  // what explains the smallest case alone
        found_.message = without_cause(found_.message);
}

/// A library that refuses a legal call, or dies of it, may write why: its first lines go behind the first line of the
/// message. A traceback is in the message as it is.
void Walk::listen() {
    const bool has_reason = found_.tier == Tier::crash || found_.tier == Tier::memory || found_.failure == kRejectedLegal;
    if (!options_.explains || !has_reason || found_.failure == kTimedOut || tries_ > 1 || clock_.interrupted()) return;
    bool fails = false;
    const std::string written = candidate_.written_during([&] { fails = evaluate_(found_.spec).failure == found_.failure; });
    if (!fails || written.find("Traceback (") != written.npos) return;
    constexpr std::size_t kMostLines = 3, kMostLetters = 240;
    std::vector<std::string> lines;
    std::istringstream in(written);
    for (std::string line; lines.size() < kMostLines && std::getline(in, line);)
        if (line.find_first_not_of(" \t") != std::string::npos && std::ranges::find(lines, line) == lines.end())
            lines.push_back(line);
    std::string text = fmt::format("{}", fmt::join(lines, " / "));
    if (text.empty()) return;
    if (text.size() > kMostLetters) text = text.substr(0, kMostLetters) + "...";
    found_.message.insert(std::min(found_.message.find('\n'), found_.message.size()),
                          fmt::format("; it writes: {}", text));
}

/// The case that was found in the other types and with other data.
std::vector<Spec> Walk::siblings() const {
    std::vector<Spec> list;
    const auto add = [&](const Spec& spec) {
        const Scope* const scope = declared();
        if (!op_.illegal(spec) && (!property_.domain || property_.domain(spec)) && (!scope || scope->holds(spec)))
            list.push_back(spec);
    };
    if (const int dtype = op_.schema().number("dtype"); dtype >= 0)
        for (std::int64_t value = 0; value < std::ssize(op_.schema().numbers[static_cast<std::size_t>(dtype)].names); ++value) {
            Spec spec = found_.original;
            if (std::exchange(spec.numbers[static_cast<std::size_t>(dtype)], value) != value) add(spec);
        }
    for (const std::uint64_t seed : {1, 2}) {
        Spec spec = found_.original;
        spec.seed += seed;
        add(spec);
    }
    return list;
}

/// Both the case that was found and the smallest one hold under it, and no sibling fails: few words fit by chance.
void Walk::find_words() {
    const bool is_numeric = found_.tier <= Tier::filter && found_.spec.edits.empty();
    if (!options_.explains || !is_numeric || options_.rule || tries_ > 1 || clock_.interrupted()) return;
    constexpr double kMost = 0.4;  // seconds
    const double start = clock_.now();
    const std::string& name = op_.name();
    const WordsOf of{.softmax = name.find("attention") != name.npos || op_.is_composition(),
                     .gradient = name.ends_with("_grad") || op_.is_composition(),
                     .caps = op_.schema().number("softcap") >= 0 && found_.spec.number("softcap") > 0};
    const std::string words = fitting_words(
        options_.rounding, of,
        [&](const ref::RoundingClass& rounding) {
            const auto holds = [&](const Spec& spec) { return evaluate_under_(spec, rounding).kind == Verdict::Kind::held; };
            return holds(found_.spec) && (found_.spec == found_.original || holds(found_.original)) &&
                   std::ranges::none_of(siblings(), [&](const Spec& spec) { return evaluate_under_(spec, rounding).failed(); });
        },
        [&] { return clock_.interrupted() || clock_.now() - start > kMost; });
    // What holds now without a word as well is unsteady: the words have nothing to do with it.
    if (!words.empty() && evaluate_(found_.spec).failed()) found_.matters += (found_.matters.empty() ? "" : "; ") + words;
}

/// A hang costs the whole limit each time, and a rejected or an unsteady case has too little to say.
void Walk::explain() {
    if (!options_.explains || tries_ > 1 || found_.failure == kTimedOut || is_over() ||
        found_.spec == found_.original || !found_.spec.edits.empty())
        return;
    const double deaths = found_.tier == Tier::crash || found_.tier == Tier::memory ? 5 : 1;  // a new process each time
    const double most = deaths * std::min(0.2, 0.05 + options_.shrink_seconds / 100);         // seconds
    const double start = clock_.now();
    const Scope* const scope = declared();
    const std::string accused = output_of(found_.failure);
    found_.matters = explanation_of(
        found_.spec, found_.original, op_, accused,
        [&](const Spec& spec) {
            return !op_.illegal(spec) && (!property_.domain || property_.domain(spec)) &&
                   (!scope || scope->holds(spec));
        },
        [&](const Spec& spec) {
            const Verdict verdict = evaluate_(spec);
            if (verdict.failed())  // in another way: says nothing about this one
                return verdict.failure == found_.failure ? Varied::fails : Varied::not_tried;
            return verdict.kind == Verdict::Kind::held ? Varied::holds : Varied::not_tried;
        },
        [&] { return clock_.interrupted() || clock_.now() - start > most; });
}

}  // namespace attncheck::properties
