#include "properties/report/causes.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <sstream>
#include <string_view>
#include <tuple>

namespace attncheck::properties {
namespace {

/// The order in which failures are worth reading.
enum Rank { crash, memory, named, exact, bound, deviation, relation, validation };

Rank rank_of(const Failure& one) {
    if (one.is_edited()) return validation;
    switch (one.tier) {
        case Tier::crash:
            return crash;
        case Tier::memory:
            return memory;
        case Tier::filter:
            return named;
        case Tier::bound:
            return one.property.starts_with("exact_") || one.message.find("bound 0:") != std::string::npos
                       ? exact
                       : bound;
        case Tier::deviation:
            return one.is_named() ? named : deviation;
        case Tier::relation:
            return relation;
        case Tier::validation:
            return validation;
    }
    return relation;
}

}  // namespace

bool needs_company(std::string_view property) {
    constexpr std::string_view kLaws[] = {"history", "after_rejection", "concurrent", "unusual_arguments"};
    return std::ranges::find(kLaws, property) != std::end(kLaws);
}

namespace {

/// What failed in the run and not alone in a fresh process.
bool is_unsteady(const Failure& one) { return one.certificate.starts_with(kNotAlone); }

}  // namespace

bool is_of_other_calls(const Failure& one) {
    return needs_company(one.property) && (one.message.starts_with("after a call") ||
                                  one.failure.find("when called") != std::string::npos ||
                                  one.message.find(" calls at once") != std::string::npos);
}

bool is_wrong_alone(const Failure& one) {
    return needs_company(one.property) && one.property != "unusual_arguments" && !is_of_other_calls(one) && !is_unsteady(one);
}

namespace {

/// The smallest case without its data: shapes and features alone.
std::string frame_of(const std::string& case_line) {
    std::istringstream words(case_line);
    std::string out;
    for (std::string word; words >> word;) {
        if (word.starts_with("data=") || word.starts_with("seed=") || word.starts_with("set=")) continue;
        while (word.ends_with('}')) word.pop_back();
        out += word + " ";
    }
    return out;
}

class Groups {
public:
    explicit Groups(std::size_t size) : parent_(size) {
        std::iota(parent_.begin(), parent_.end(), std::size_t{0});
    }
    std::size_t of(std::size_t i) const {
        while (parent_[i] != i) i = parent_[i];
        return i;
    }
    /// The earlier one stays the name of both.
    void join(std::size_t a, std::size_t b) {
        a = of(a), b = of(b);
        parent_[std::max(a, b)] = std::min(a, b);
    }

private:
    std::vector<std::size_t> parent_;
};

/// The output that a class or, where the class names none, the message has: "... out differs ...".
std::string accused_output(const Failure& one) {
    const std::string output = output_of(one.failure);
    if (output != one.failure) return output;
    const std::size_t end = one.message.find(" differs ");
    if (end == std::string::npos) return output;
    const std::size_t blank = one.message.rfind(' ', end - 1);
    const std::size_t begin = blank == std::string::npos ? 0 : blank + 1;
    return one.message.substr(begin, end - begin);
}

/// What failures of one cause have in common; a failure may have several.
std::vector<std::string> marks_of(const Failure& one, bool rejects_nothing) {
    if (one.is_edited() && rejects_nothing) return {"arguments"};
    if (one.is_edited()) return {one.op + " arguments " + one.failure};
    if (one.tier == Tier::crash || one.tier == Tier::memory) return {one.op + " died " + one.failure};
    std::vector<std::string> marks{one.op + " output " + accused_output(one), one.op + " frame " + frame_of(one.case_line)};
    for (const std::string& hypothesis : hypotheses_in(one.message)) marks.push_back(one.op + " as if " + hypothesis);
    if (is_unsteady(one) || is_of_other_calls(one)) marks.push_back(one.op + " other calls");
    return marks;
}

/// A hypothesis that many failures share says more than one that a small case cannot tell from others.
void choose_name(Cause& cause, std::size_t first, const std::vector<Failure>& failures) {
    cause.named = first;
    std::map<std::string, int> votes;
    for (const std::size_t i : cause.failures)
        for (const std::string& one : hypotheses_in(failures[i].message)) ++votes[one];
    int most = 0;
    std::size_t fewest = 0;
    for (const std::size_t i : cause.failures) {
        if (!failures[i].is_named()) continue;
        const std::vector<std::string> all = hypotheses_in(failures[i].message);
        int best = 0;
        for (const std::string& one : all) best = std::max(best, votes[one]);
        if (all.empty() || best < most || (best == most && all.size() >= fewest)) continue;
        most = best, fewest = all.size(), cause.named = i;
    }
    for (const std::string& one : hypotheses_in(failures[cause.named].message))
        if (votes[one] == most) cause.likely.push_back(one);
}

}  // namespace

std::vector<std::string> hypotheses_in(const std::string& message) {
    constexpr std::string_view kEnd = ", which explains", kOr = ", or ";
    const std::string line = message.substr(0, message.find('\n'));
    const std::size_t end = line.find(kEnd), colon = line.find(": ");
    if (end == std::string::npos || colon == std::string::npos || colon + 2 > end) return {};
    std::string text = line.substr(colon + 2, end - colon - 2);
    if (text.find('%') != std::string::npos) return {};  // a size
    std::vector<std::string> all;
    for (std::size_t at = text.find(kOr); at != std::string::npos; at = text.find(kOr)) {
        all.push_back(text.substr(0, at));
        text.erase(0, at + kOr.size());
    }
    all.push_back(text);
    return all;
}

std::string output_of(const std::string& failure) {
    std::size_t end = failure.size();
    for (const char* verb : {" is wrong", " changed", " breaks the relation", " deviates", " is less precise", ": ", " lost",
                             " not written", " is not ", " is log2", " of an un", " of a row without"})
        end = std::min(end, failure.find(verb));
    return failure.substr(0, end);
}

bool Failure::is_edited() const { return case_line.find(" break=[") != std::string::npos; }

bool Failure::is_named() const {
    return tier == Tier::filter || message.find("which explains") != std::string::npos;
}

std::vector<Cause> causes_of(const std::vector<Failure>& failures, bool rejects_nothing) {
    Groups groups(failures.size());
    std::map<std::string, std::size_t> first;
    for (std::size_t i = 0; i < failures.size(); ++i)
        for (const std::string& mark : marks_of(failures[i], rejects_nothing)) {
            const auto [at, is_new] = first.try_emplace(mark, i);
            if (!is_new) groups.join(at->second, i);
        }
    std::map<std::size_t, Cause> by_group;
    for (std::size_t i = 0; i < failures.size(); ++i) by_group[groups.of(i)].failures.push_back(i);
    // A named diagnosis is statistical: its case is larger than that of a wrong value.
    const auto key = [&](std::size_t i) {
        const Failure& one = failures[i];
        const Rank rank = rank_of(one);
        const bool is_statistical = one.tier == Tier::filter || one.tier == Tier::deviation;
        // Of one that the run had no time to shrink, the case is as large as it was found.
        const bool is_as_found = !is_of_shrunk(one.certificate) || is_unsteady(one);
        return std::tuple(is_as_found, is_statistical ? deviation : rank, needs_company(one.property),
                          one.case_line.size(), i);
    };
    std::vector<Cause> causes;
    std::vector<std::pair<Rank, std::size_t>> order;
    for (auto& [group, cause] : by_group) {
        std::ranges::sort(cause.failures, std::less<>(), key);
        const auto with_name = std::ranges::find_if(
            cause.failures, [&](std::size_t i) { return failures[i].is_named(); });
        cause.has_name = with_name != cause.failures.end();
        if (cause.has_name) choose_name(cause, *with_name, failures);
        cause.checks_nothing =
            rejects_nothing && failures[cause.failures.front()].is_edited() && cause.failures.size() > 1;
        Rank best = rank_of(failures[cause.failures.front()]);
        for (const std::size_t i : cause.failures) best = std::min(best, rank_of(failures[i]));
        order.emplace_back(best, causes.size());
        causes.push_back(std::move(cause));
    }
    std::ranges::stable_sort(order);
    std::vector<Cause> ranked;
    for (const auto& [rank, place] : order) ranked.push_back(std::move(causes[place]));
    return ranked;
}

std::vector<Failure> failures_of(const RunReport& report) {
    std::vector<Failure> all;
    for (const PropertyReport& p : report.properties)
        for (const Counterexample& found : p.counterexamples)
            all.push_back({p.op, p.property, found.failure, message_of(found), print(found.spec), found.tier,
                           found.matters, found.certificate, {}, {}, {}, report.is_kept ? "" : reproduce_command(report, p, found)});
    return all;
}

bool rejects_nothing(const RunReport& report) {
    std::int64_t rejected = 0;
    for (const PropertyReport& p : report.properties) rejected += p.rejected;
    return rejected == 0;
}

std::vector<int> numbers_of(const std::vector<Cause>& causes, std::size_t failures) {
    std::vector<int> numbers(failures, 0);
    int next = 0;
    for (const Cause& cause : causes) numbers[cause.failures.front()] = ++next;
    for (const Cause& cause : causes)
        for (const std::size_t i : cause.failures)
            if (numbers[i] == 0) numbers[i] = ++next;
    return numbers;
}

}  // namespace attncheck::properties
