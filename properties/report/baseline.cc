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
    bool is_replayed = false, is_certified = false;
    bool is_of_bound = false;  ///< whether it fails is not a matter of many samples
    bool is_steady = true;     ///< nor of timing or of earlier calls
    bool is_mended = false;    ///< of a baseline: the run has judged its case, which holds
    bool was_run = false;      ///< and so it has, or it fails
    std::int64_t case_number = 0;  ///< in the sequence of its law; 0: not known
    std::string text() const { return fmt::format("{}.{}: {}", op, property, failure); }
    Json json() const { return {{"op", op}, {"property", property}, {"failure", failure}}; }
};

/// Hypotheses that explain it, and what a matched filter saw: "scale inside the softmax".
std::vector<std::string> diagnoses_of(const Failure& one) {
    std::vector<std::string> all = hypotheses_in(one.message);
    const std::size_t colon = one.failure.find(": ");
    if (one.tier == Tier::filter && colon != std::string::npos) all.push_back(one.failure.substr(colon + 2));
    return all;
}

std::vector<KnownFailure> failures_in(Json& report) {
    std::vector<KnownFailure> all;
    (void)report.at("properties");
    std::int64_t rejected = 0;
    for (const Failure& one : failures_of(report, rejected))
        all.push_back({one.op, one.property, one.failure.empty() ? one.message : one.failure, one.case_line, diagnoses_of(one), one.is_replayed, one.is_certified,
                       one.tier == Tier::bound || one.tier == Tier::relation, !is_of_other_calls(one) && !one.certificate.starts_with(kNotAlone), false, false,
                       one.case_number});
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

/// The case of the baseline as it was, or still its smallest form. One of which a smaller case fails now, although all of them
/// held before, has got another defect.
bool still_fails(const KnownFailure& one, const KnownFailure& before) {
    return one.is_replayed && (one.smallest == before.smallest || !before.is_certified || !one.is_of_bound);
}

/// The same failure of the same law, or the same wrong output at the same smallest case or with a diagnosis in common: which
/// laws meet a defect in a given time is chance. What is wrong in other ways may have the same class, so that a law that has run the
/// case of the baseline goes by it.
bool is_same(const KnownFailure& one, const KnownFailure& before) {
    if (one.op != before.op || before.is_mended) return false;
    if (one.property == before.property && one.failure == before.failure && (!before.was_run || still_fails(one, before))) return true;
    return output_of(before.failure) == output_of(one.failure) &&
           ((!one.smallest.empty() && before.smallest == one.smallest) || shares_a_diagnosis(one, before));
}

bool has(const std::vector<KnownFailure>& before, const KnownFailure& one) {
    return std::ranges::any_of(before, [&](const KnownFailure& other) { return is_same(one, other); });
}

/// What became of the cases of the baseline that the run began with.
void note_replays(const Json& report, const std::vector<KnownFailure>& now, std::vector<KnownFailure>& before) {
    for (KnownFailure& one : before) {
        one.was_run = one.is_steady && std::ranges::any_of(report.at("properties"), [&](const Json& property) {
            return property.at("op") == one.op && property.at("property") == one.property && property.value("replayed", std::int64_t{0}) > 0;
        });
        one.is_mended = one.was_run && std::ranges::none_of(now, [&](const KnownFailure& other) {
            return other.is_replayed && other.op == one.op && other.property == one.property && other.failure == one.failure;
        });
    }
    // A large case of random data deviates by whatever is wrong. It says nothing where the exact cases of that output hold.
    for (KnownFailure& one : before) {
        if (one.is_of_bound || !one.was_run) continue;
        const auto is_exact_one = [&](const KnownFailure& other) {
            return other.is_of_bound && other.was_run && other.op == one.op && output_of(other.failure) == output_of(one.failure);
        };
        one.is_mended = one.is_mended || (std::ranges::any_of(before, is_exact_one) &&
                                          std::ranges::all_of(before, [&](const KnownFailure& other) { return !is_exact_one(other) || other.is_mended; }));
    }
}

/// Whether the law has the case of the baseline for this class of failure, which holds.
bool has_mended(const std::vector<KnownFailure>& before, const KnownFailure& one) {
    return std::ranges::any_of(before, [&](const KnownFailure& other) {
        return other.is_mended && other.op == one.op && other.property == one.property && other.failure == one.failure;
    });
}

/// Whether the run of the baseline has judged this very case, which held: the same seed and options draw the same cases.
bool held_before(const Json& report, const Json& baseline, const KnownFailure& one) {
    for (const char* key : {"/seed", "/options", "/precision/declared"}) {
        const Json::json_pointer at(key);
        if (!report.contains(at) || !baseline.contains(at) || report.at(at) != baseline.at(at)) return false;
    }
    return one.case_number > 0 && std::ranges::any_of(baseline.at("properties"), [&](const Json& property) {
        return property.at("op") == one.op && property.at("property") == one.property && property.at("status") == "held" && property.value("waived", 0) == 0 &&
               property.at("cases").get<std::int64_t>() >= one.case_number;
    });
}

/// Those of `now` that the baseline has. One of a cause of which it has another failure of the same output counts, too.
std::vector<bool> known_of(Json& report, const Json& baseline, const std::vector<KnownFailure>& now, const std::vector<KnownFailure>& before) {
    std::vector<bool> known, is_new;
    for (const KnownFailure& one : now) {
        is_new.push_back(is_another(before, one) || has_mended(before, one) || held_before(report, baseline, one));
        known.push_back(has(before, one) && !is_new.back());
    }
    std::int64_t rejected = 0;
    const std::vector<Failure> failures = failures_of(report, rejected);
    for (const Cause& cause : causes_of(failures, rejected == 0)) {
        const auto shares = [&](std::size_t i, std::size_t other) {
            return known[other] && now[i].op == now[other].op && output_of(now[i].failure) == output_of(now[other].failure);
        };
        std::vector<std::size_t> more;
        for (const std::size_t i : cause.failures)
            if (!known[i] && !is_new[i] && std::ranges::any_of(cause.failures, [&](std::size_t other) { return shares(i, other); })) more.push_back(i);
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

std::vector<CaseOfBaseline> cases_of_baseline(const std::string& baseline) {
    Json report = parsed_baseline(baseline);
    std::vector<CaseOfBaseline> cases;
    for (const KnownFailure& one : failures_in(report))
        if (!one.smallest.empty()) cases.push_back({one.op, one.property, one.smallest});
    return cases;
}

ComparedReport compared_with(const std::string& json, const std::string& baseline) {
    Json report = Json::parse(json), earlier = parsed_baseline(baseline);
    const std::vector<KnownFailure> now = failures_in(report);
    std::vector<KnownFailure> before = failures_in(earlier);
    note_replays(report, now, before);
    std::vector<KnownFailure> fresh, same, fixed, unknown;
    const std::vector<bool> known = known_of(report, earlier, now, before);
    for (std::size_t i = 0; i < now.size(); ++i) (known[i] ? same : fresh).push_back(now[i]);
    for (const KnownFailure& one : before)
        if (std::ranges::none_of(now, [&](const KnownFailure& other) { return is_same(other, one); })) (is_judged(report, one) ? fixed : unknown).push_back(one);
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
    const Json one = KnownFailure{.op = op, .property = property, .failure = failure, .smallest = {}, .looks_like = {}}.json();
    const Json same = report["baseline"].value("same", Json::array());
    return std::ranges::find(same, one) != same.end();
}

}  // namespace attncheck::properties
