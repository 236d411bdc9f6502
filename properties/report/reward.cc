#include "properties/report/reward.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "properties/case/printable.h"
#include "properties/report/exit_status.h"

namespace attncheck::properties {
namespace {

using Status = PropertyReport::Status;

/// Of one law, how much of it the library earned.
double share_of(const PropertyReport& law, std::int64_t cases) {
    const auto of = static_cast<double>(std::max<std::int64_t>(cases, 1));
    switch (law.status) {
        case Status::held:
            return 1;
        case Status::falsified: {
            if (law.counterexamples.empty()) return 0;
            const int before = std::max(0, law.counterexamples.front().case_number - 1);
            constexpr double kMost = 0.99;  // never as much as one that holds
            return std::min(kMost, static_cast<double>(before) / of);
        }
        case Status::inconclusive:
            return std::min(1.0, static_cast<double>(law.cases) / static_cast<double>(kConclusiveCases));
        default:
            return 0;
    }
}

double reward_of(const std::vector<const PropertyReport*>& laws, std::int64_t cases) {
    constexpr double kOfAgreement = 0.5;
    const auto others = static_cast<double>(std::max<std::size_t>(laws.size(), 2) - 1);
    double reward = 0;
    for (const PropertyReport* law : laws) {
        const double weight =
            law->property == "agreement" ? kOfAgreement : (1 - kOfAgreement) / others;
        reward += weight * share_of(*law, cases);
        if (law->status == Status::falsified) break;
    }
    return laws.size() == 1 ? reward / kOfAgreement : reward;
}

/// The failure, with its reason where a call gave no outputs to compare: "wrong output out: out has type float64,
/// expected float32", "raised KeyError: 'q'". Messages of other failures have expected values.
std::string reason_of(const Counterexample& found) {
    if (found.tier != Tier::crash) return found.failure;
    const std::string line = printable_line(message_of(found), kLongestMessage);
    if (line.empty() || line == found.failure) return found.failure;
    return line.starts_with(found.failure) ? line : fmt::format("{} ({})", found.failure, line);
}

std::string feedback_on(const PropertyReport& law) {
    const Counterexample& found = law.counterexamples.front();
    return fmt::format(
        "{}.{}: {}, first in case {}; wrong for {}; {}", law.op, law.property, reason_of(found),
        found.case_number, print(found.spec),
        found.certified ? "right for every smaller case next to it" : found.certificate);
}

}  // namespace

Grade grade_of(const RunReport& report, std::int64_t cases) {
    Grade grade;
    std::map<std::string, std::vector<const PropertyReport*>> laws;
    for (const PropertyReport& p : report.properties)
        if (p.status != Status::not_implemented && p.status != Status::not_applicable)
            laws[p.op].push_back(&p);
    for (const auto& [op, own] : laws)
        grade.reward += reward_of(own, cases) / static_cast<double>(laws.size());
    const auto first = [&](Status status) -> const PropertyReport* {
        const auto at = std::ranges::find(report.properties, status, &PropertyReport::status);
        return at == report.properties.end() ? nullptr : &*at;
    };
    grade.reward = std::min(grade.reward, 1.0);  // sums of parts round
    switch (exit_status(report)) {
        case kFalsified:
            grade.verdict = "falsified";
            grade.law = first(Status::falsified);
            grade.feedback = feedback_on(*grade.law);
            return grade;
        case kHeld:
            grade.verdict = "held";
            grade.feedback = "every law of the ladder held";
            break;
        case kNotJudged:
            grade.verdict = "not_judged";
            grade.law = first(Status::error);
            grade.feedback = grade.law ? grade.law->note : "";
            break;
        default:
            constexpr double kMostUndecided = 0.95;  // 1 is for what held
            grade.reward = std::min(grade.reward, kMostUndecided);
            grade.verdict = "inconclusive";
            grade.law = first(Status::inconclusive);
            grade.feedback = grade.law ? fmt::format("{}.{}: {}", grade.law->op, grade.law->property,
                                                     grade.law->note)
                             : first(Status::declined)
                                 ? "every case was declined; --features says which ones a library may decline"
                                 : "nothing was checked: no operator is implemented";
    }
    if (!report.taken.empty()) {
        const auto& [op, taken] = *report.taken.begin();
        constexpr double kOfPartial = 0.5;
        grade.reward *= kOfPartial;
        if (grade.verdict == "held") grade.verdict = "partial";
        grade.feedback += fmt::format("; {} takes only {}", op, taken.text);
    }
    return grade;
}

}  // namespace attncheck::properties
