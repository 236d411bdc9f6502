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
    std::vector<std::string> looks_like;  ///< hypotheses that explain it
    std::string text() const { return fmt::format("{}.{}: {}", op, property, failure); }
    Json json() const { return {{"op", op}, {"property", property}, {"failure", failure}}; }
};

std::vector<KnownFailure> failures_in(Json& report) {
    std::vector<KnownFailure> all;
    (void)report.at("properties");
    std::int64_t rejected = 0;
    for (const Failure& one : failures_of(report, rejected))
        all.push_back({one.op, one.property, one.failure.empty() ? one.message : one.failure, one.case_line, hypotheses_in(one.message)});
    return all;
}

bool shares_a_diagnosis(const KnownFailure& one, const KnownFailure& other) {
    return std::ranges::find_first_of(one.looks_like, other.looks_like) != one.looks_like.end();
}

/// Another defect behind the same wrong output: both have a diagnosis, of other things, and another smallest case.
bool is_another(const std::vector<KnownFailure>& all, const KnownFailure& one) {
    if (one.looks_like.empty()) return false;
    bool has_diagnosis = false;
    for (const KnownFailure& other : all) {
        if (other.op != one.op || output_of(other.failure) != output_of(one.failure)) continue;
        if (!one.smallest.empty() && other.smallest == one.smallest) return false;
        if (shares_a_diagnosis(one, other)) return false;
        has_diagnosis = has_diagnosis || !other.looks_like.empty();
    }
    return has_diagnosis;
}

/// The same failure of the same law, or the same wrong output at the same smallest case or with a diagnosis in common: which
/// laws meet a defect in a given time is chance.
bool has(const std::vector<KnownFailure>& all, const KnownFailure& one) {
    return std::ranges::any_of(all, [&](const KnownFailure& other) {
        return other.op == one.op && ((other.property == one.property && other.failure == one.failure) ||
                                      (output_of(other.failure) == output_of(one.failure) &&
                                       ((!one.smallest.empty() && other.smallest == one.smallest) ||
                                        shares_a_diagnosis(one, other))));
    });
}

/// Those of `now` that the baseline has. One of a cause of which it has another failure of the same output counts, too.
std::vector<bool> known_of(Json& report, const std::vector<KnownFailure>& now, const std::vector<KnownFailure>& before) {
    std::vector<bool> known;
    for (const KnownFailure& one : now) known.push_back(has(before, one) && !is_another(before, one));
    std::int64_t rejected = 0;
    const std::vector<Failure> failures = failures_of(report, rejected);
    for (const Cause& cause : causes_of(failures, rejected == 0)) {
        const auto shares = [&](std::size_t i, std::size_t other) {
            return known[other] && now[i].op == now[other].op && output_of(now[i].failure) == output_of(now[other].failure);
        };
        std::vector<std::size_t> more;
        for (const std::size_t i : cause.failures)
            if (!known[i] && !is_another(before, now[i]) && std::ranges::any_of(cause.failures, [&](std::size_t other) { return shares(i, other); })) more.push_back(i);
        for (const std::size_t i : more) known[i] = true;
    }
    return known;
}

/// Whether the run came to a verdict on the property that no waiver made.
bool is_judged(const Json& report, const KnownFailure& one) {
    return std::ranges::any_of(report.at("properties"), [&](const Json& property) {
        return property.at("op") == one.op && property.at("property") == one.property && property.value("waived", 0) == 0 &&
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
        (void)failures_in(report);
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
    const std::vector<bool> known = known_of(report, now, before);
    for (std::size_t i = 0; i < now.size(); ++i) (known[i] ? same : fresh).push_back(now[i]);
    for (const KnownFailure& one : before)
        if (!has(now, one)) (is_judged(report, one) ? fixed : unknown).push_back(one);
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
    if (!unknown.empty()) out.text += list_of("not judged by this run, or waived", unknown);
    if (was_falsified && fresh.empty()) out.text += fmt::format("nothing new: exit status {}\n", out.exit_status);
    return out;
}

bool is_in_baseline(const Json& report, const std::string& op, const std::string& property,
                    const std::string& failure) {
    if (!report.contains("baseline")) return false;
    const Json one = KnownFailure{op, property, failure, {}, {}}.json();
    const Json same = report["baseline"].value("same", Json::array());
    return std::ranges::find(same, one) != same.end();
}

}  // namespace attncheck::properties
