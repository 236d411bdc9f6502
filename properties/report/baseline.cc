#include "properties/report/baseline.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <tuple>

#include "properties/case/printable.h"
#include "properties/report/causes.h"
#include "properties/report/exit_status.h"

namespace attncheck::properties {
namespace {

struct KnownFailure {
    std::string op, property, failure;
    std::string smallest;  ///< case line
    int number = 0;        ///< in its report
    std::string text() const { return fmt::format("{}.{}: {}", op, property, failure); }
    Json json() const { return {{"op", op}, {"property", property}, {"failure", failure}}; }
};

std::vector<KnownFailure> failures_in(Json& report) {
    std::vector<KnownFailure> all;
    for (Json& property : report.at("properties"))
        for (const Json* found : counterexamples_of(property))
            all.push_back({property.at("op"), property.at("property"),
                           found->value("failure", found->value("message", "")), found->value("case", ""),
                           found->value("number", 0)});
    return all;
}

/// The same failure of the same law, or the same wrong output at the same smallest case: which laws meet a defect in a given time
/// is chance.
bool has(const std::vector<KnownFailure>& all, const KnownFailure& one) {
    return std::ranges::any_of(all, [&](const KnownFailure& other) {
        return other.op == one.op && ((other.property == one.property && other.failure == one.failure) ||
                                      (!one.smallest.empty() && other.smallest == one.smallest &&
                                       output_of(other.failure) == output_of(one.failure)));
    });
}

/// The numbers of the failures that have a cause in common with the one of that number.
std::vector<int> of_one_cause(const Json& report, int number) {
    for (const Json& cause : report.value("causes", Json::array())) {
        const auto numbers = cause.at("counterexamples").get<std::vector<int>>();
        if (std::ranges::find(numbers, number) != numbers.end()) return numbers;
    }
    return {};
}

/// Or its cause is there: a failure of the same report that has the same cause and the same wrong output is among `others`.
bool has_cause(const std::vector<KnownFailure>& others, const KnownFailure& one, const Json& report,
               const std::vector<KnownFailure>& own) {
    const std::vector<int> numbers = of_one_cause(report, one.number);
    return std::ranges::any_of(own, [&](const KnownFailure& beside) {
        return std::ranges::find(numbers, beside.number) != numbers.end() &&
               output_of(beside.failure) == output_of(one.failure) && has(others, beside);
    });
}

/// Whether the run came to a verdict on the property.
bool is_judged(const Json& report, const KnownFailure& one) {
    return std::ranges::any_of(report.at("properties"), [&](const Json& property) {
        return property.at("op") == one.op && property.at("property") == one.property &&
               (property.at("status") == "held" || property.at("status") == "falsified");
    });
}

int status_without_failures(const Json& report) {
    bool has_error = false, is_inconclusive = false, checked = false;
    for (const Json& property : report.at("properties")) {
        has_error = has_error || property.at("status") == "error";
        is_inconclusive = is_inconclusive || property.at("status") == "inconclusive";
        checked = checked || property.at("cases").get<std::int64_t>() > 0 ||
                  property.value("replayed", std::int64_t{0}) > 0;
    }
    return exit_status_of(false, report.value("interrupted", false), has_error, !checked || is_inconclusive);
}

std::string list_of(const char* head, const std::vector<KnownFailure>& all) {
    std::string out = fmt::format("  {} {}\n", all.size(), head);
    for (const KnownFailure& one : all) out += "    " + one.text() + "\n";
    return out;
}

Json json_of(const std::vector<KnownFailure>& all) {
    Json out = Json::array();
    for (const KnownFailure& one : all) out.push_back(one.json());
    return out;
}

Json parsed_baseline(const std::string& text) {
    try {
        Json report = parsed_report(text);
        if (!report.is_object() || report.value("schema", Json()) != 1)
            throw std::runtime_error("is not an attncheck report of schema 1");
        for (const KnownFailure& one : failures_in(report)) (void)of_one_cause(report, one.number);
        return report;
    } catch (const Json::exception& e) {
        throw std::runtime_error("is not an attncheck report: " + printable_line(e.what(), kLongestMessage));
    }
}

}  // namespace

ComparedReport compared_with(const std::string& json, const std::string& baseline) {
    Json report = Json::parse(json), earlier = parsed_baseline(baseline);
    const std::vector<KnownFailure> now = failures_in(report), before = failures_in(earlier);
    std::vector<KnownFailure> fresh, same, fixed, unknown;
    for (const KnownFailure& one : now)
        (has(before, one) || has_cause(before, one, report, now) ? same : fresh).push_back(one);
    for (const KnownFailure& one : before)
        if (!has(now, one) && !has_cause(now, one, earlier, before))
            (is_judged(report, one) ? fixed : unknown).push_back(one);
    report["baseline"] = {{"new", json_of(fresh)}, {"same", json_of(same)}, {"fixed", json_of(fixed)},
                          {"not_judged", json_of(unknown)}};
    ComparedReport out;
    const bool was_falsified = report.at("exit_status") == kFalsified;
    out.exit_status = !fresh.empty()  ? kFalsified
                      : was_falsified ? status_without_failures(report)
                                      : report.at("exit_status").get<int>();
    report["exit_status"] = out.exit_status;
    report["verdict"] = verdict_of(out.exit_status);
    out.json = report.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
    out.text = "against the baseline:\n" + list_of("new", fresh) + list_of("fixed", fixed) + list_of("the same", same);
    if (!unknown.empty()) out.text += list_of("not judged by this run", unknown);
    return out;
}

bool is_in_baseline(const Json& report, const std::string& op, const std::string& property,
                    const std::string& failure) {
    if (!report.contains("baseline")) return false;
    const Json one = KnownFailure{op, property, failure, {}}.json();
    const Json same = report["baseline"].value("same", Json::array());
    return std::ranges::find(same, one) != same.end();
}

}  // namespace attncheck::properties
