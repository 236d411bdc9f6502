#include "properties/report/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>

#include "properties/report/clause_coverage.h"
#include "properties/report/exit_status.h"
#include "properties/report/files.h"
#include "properties/report/json_parts.h"
#include "properties/report/resume.h"

namespace attncheck::properties {

Json number_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(); }

namespace {

/// Options that take a number, and the text of those that were not given.
const std::map<std::string, std::string> kNumericOptions = {
    {"cases", "-1"}, {"seconds", "0"}, {"large", "0"}, {"timeout", ""}, {"memory", ""}, {"samples", ""}};

}  // namespace

Json option_json(const std::string& name, const std::string& text) {
    const auto numeric = kNumericOptions.find(name);
    if (numeric == kNumericOptions.end()) return text;
    if (text == numeric->second) return {};
    const Json number = Json::parse(text, nullptr, false);
    return number.is_number() ? number : Json(text);
}

std::string option_text(const std::string& name, const Json& value) {
    const auto numeric = kNumericOptions.find(name);
    if (value.is_null() && numeric != kNumericOptions.end()) return numeric->second;
    if (value.is_number_integer()) return std::to_string(value.get<std::int64_t>());
    return value.is_number() ? fmt::format("{:g}", value.get<double>()) : value.get<std::string>();
}

double to_number(const Json& value) {
    if (value.is_number()) return value.get<double>();
    return value.is_null() || value == "inf" ? HUGE_VAL : std::nan("");  // "inf": of an older report
}

Json ratios_json(const RatioHistogram& ratios) {
    Json out = Json::array();
    for (const auto& [bin, cases] : ratios.cases)
        out.push_back({{"from", RatioHistogram::lower_edge(bin)}, {"cases", cases}});
    return out;
}

void add_ratios(const Json& property, RatioHistogram& all) {
    if (!property.contains("worst_errors")) return;
    // The middle of a bin: an edge may be rounded down by a digit.
    const double half_a_bin = std::exp2(0.5 / RatioHistogram::kPerDoubling);
    for (const Json& one : property["worst_errors"])
        all.cases[RatioHistogram::bin_of(one.at("from").get<double>() * half_a_bin)] +=
            one.at("cases").get<std::int64_t>();
}

Json casts_json(const std::vector<CastEvidence>& casts) {
    Json out = Json::object();
    for (const CastEvidence& cast : casts) out[cast.word] = {number_or_null(cast.found), number_or_null(cast.expected)};
    return out;
}

/// Adds the evidence of a report's property to that of all.
void add_casts(const Json& property, std::vector<CastEvidence>& all) {
    if (!property.contains("casts")) return;
    for (const auto& [word, sums] : property["casts"].items())
        add_evidence(all, {word, to_number(sums.at(0)), to_number(sums.at(1))});
}

Json parsed_report(const std::string& text) {
    constexpr std::size_t kMostBytes = kLargestReport, kDeepest = 64, kMostFields = 2000;
    if (text.size() > kMostBytes)
        throw std::runtime_error("has " + std::to_string(text.size()) + " bytes, allowed: " +
               std::to_string(kMostBytes));
    std::vector<std::size_t> fields(kDeepest + 2);  // of the objects that are open, by depth
    const auto check = [&](int depth, Json::parse_event_t event, Json&) {
        const auto level = static_cast<std::size_t>(depth);
        if (level > kDeepest) throw std::runtime_error("nests deeper than a report does");
        if (event == Json::parse_event_t::object_start) fields[level + 1] = 0;
        if (event == Json::parse_event_t::key && ++fields[level] > kMostFields)
            throw std::runtime_error("has an object of more than " + std::to_string(kMostFields) + " fields");
        return true;
    };
    try {
        return Json::parse(text, check);
    } catch (const Json::parse_error&) {  // its text speaks of the program, not of the file
        throw std::runtime_error("is not JSON");
    }
}

Json bounds_json(const std::vector<BoundEvidence>& bounds) {
    Json out = Json::object();
    for (const BoundEvidence& one : bounds)
        out[one.name] = {{"worst", number_or_null(one.worst)}, {"cases", one.cases}};
    return out;
}

void add_bounds(const Json& property, std::vector<BoundEvidence>& all) {
    if (!property.contains("bounds")) return;
    for (const auto& [name, one] : property["bounds"].items())
        add_evidence(all, {name, to_number(one.at("worst")), one.at("cases")});
}

Json drawn_json(const DrawnCases& drawn) {
    return {{"cases", drawn.cases},
            {"edited", drawn.edited},
            {"inapplicable", drawn.inapplicable},
            {"hardly_compared", drawn.hardly_compared},
            {"needed", drawn.needed},
            {"outside", drawn.is_outside},
            {"mostly_declined", drawn.is_mostly_declined},
            {"digest", fmt::format("{:016x}", drawn.digest)}};
}

DrawnCases drawn_from(const Json& json) {
    const auto count = [&](const char* name) {
        const std::int64_t value = json.at(name);
        constexpr std::int64_t kMost = std::int64_t{1} << 48;  // two of them can be added
        if (value < 0 || value > kMost) throw std::runtime_error(fmt::format("draws {} cases", value));
        return value;
    };
    DrawnCases drawn;
    drawn.cases = count("cases");
    drawn.edited = count("edited");
    drawn.inapplicable = count("inapplicable");
    drawn.hardly_compared = count("hardly_compared");
    drawn.needed = count("needed");
    drawn.is_outside = json.at("outside");
    drawn.is_mostly_declined = json.at("mostly_declined");
    const PairSet digest = pair_set_from(json.at("digest").get<std::string>());
    drawn.digest = digest.words.empty() ? 0 : digest.words.front();
    return drawn;
}

DrawnCases sum_of(const DrawnCases& left, const DrawnCases& right) {
    DrawnCases sum;
    sum.cases = left.cases + right.cases;
    sum.edited = left.edited + right.edited;
    sum.inapplicable = left.inapplicable + right.inapplicable;
    sum.hardly_compared = left.hardly_compared + right.hardly_compared;
    sum.needed = std::max(left.needed, right.needed);
    sum.is_outside = left.is_outside || right.is_outside;
    sum.is_mostly_declined = left.is_mostly_declined || right.is_mostly_declined;
    sum.digest = left.digest + right.digest;
    return sum;
}

Json pairs_json(std::int64_t possible, const std::vector<std::string>& missing) {
    return {
        {"reached", possible - std::ssize(missing)}, {"possible", possible}, {"missing", missing}};
}

std::string property_to_text(const PropertyReport& report) {
    Json text{{"op", report.op},
              {"property", report.property},
              {"status", static_cast<int>(report.status)},
              {"cases", report.cases},
              {"declined", report.declined},
              {"waived", report.waived},
              {"replayed", report.replayed},
              {"labels", report.labels},
              {"pairs", to_text(report.pairs)},
              {"worst_ratio", number_or_null(report.worst_ratio)},
              {"ratios", report.ratios.cases},
              {"rejected", report.rejected},
              {"waivers", report.waivers},
              {"differing", report.differing},
              {"elements", {report.elements.compared, report.elements.unjudged}},
              {"casts", casts_json(report.casts)},
              {"bounds", bounds_json(report.bounds)},
              {"note", report.note},
              {"coverage", report.coverage},
              {"seconds", report.seconds},
              {"interrupted", report.interrupted},
              {"taken", {report.taken.text, report.taken.refusals, to_text(report.taken.pairs)}},
              {"taken_classes", report.taken.classes},
              {"clauses", clauses_json(report.clauses)},
              {"drawn", drawn_json(report.drawn)},
              {"journal",
               {{"cases", report.journal.text},
                {"failures", report.journal.failures},
                {"replayed", report.journal.replayed}}},
              {"counterexamples", Json::array()}};
    for (const Counterexample& found : report.counterexamples)
        text["counterexamples"].push_back({{"spec", print(found.spec)},
                                           {"original", print(found.original)},
                                           {"failure", found.failure},
                                           {"message", found.message},
                                           {"found_message", found.found_message},
                                           {"tier", static_cast<int>(found.tier)},
                                           {"neighbours_tried", found.neighbours_tried},
                                           {"steps_taken", found.steps_taken},
                                           {"certificate", found.certificate},
                                           {"certified", found.certified},
                                           {"shrink_seconds", found.shrink_seconds},
                                           {"repeatable", found.repeatable},
                                           {"case_number", found.case_number},
                                           {"matters", found.matters},
                                           {"being_shrunk", found.being_shrunk}});
    return text.dump(-1, ' ', false, Json::error_handler_t::replace);
}

PropertyReport property_from_text(const std::string& text,
                                  const std::vector<const Schema*>& known) {
    const Json json = Json::parse(text);
    PropertyReport report;
    report.op = json.at("op");
    report.property = json.at("property");
    const Json& taken = json.at("taken");
    report.taken = {taken.at(0), taken.at(1), json.at("taken_classes"),
                    pair_set_from(taken.at(2).get<std::string>())};
    report.clauses = clauses_from(json.at("clauses"));
    report.drawn = drawn_from(json.at("drawn"));
    const Json& journal = json.at("journal");
    report.journal = {journal.at("cases"), journal.at("failures").get<std::vector<std::string>>(),
                      journal.at("replayed")};
    report.status = static_cast<PropertyReport::Status>(json.at("status").get<int>());
    report.cases = json.at("cases");
    report.declined = json.at("declined");
    report.waived = json.at("waived");
    report.replayed = json.at("replayed");
    report.labels = json.at("labels").get<std::map<std::string, std::int64_t>>();
    report.pairs = pair_set_from(json.at("pairs").get<std::string>());
    report.worst_ratio = to_number(json.at("worst_ratio"));
    report.ratios.cases = json.at("ratios").get<std::map<int, std::int64_t>>();
    report.rejected = json.at("rejected");
    report.waivers = json.at("waivers").get<std::vector<std::string>>();
    report.note = json.at("note");
    report.coverage = json.at("coverage").get<std::vector<std::string>>();
    report.differing = json.at("differing");
    report.elements = {json.at("elements").at(0), json.at("elements").at(1)};
    add_casts(json, report.casts);
    add_bounds(json, report.bounds);
    report.seconds = json.at("seconds");
    report.interrupted = json.at("interrupted");
    for (const Json& one : json.at("counterexamples")) {
        Counterexample found;
        found.spec = parse(one.at("spec").get<std::string>(), known);
        found.original = parse(one.at("original").get<std::string>(), known);
        found.failure = one.at("failure");
        found.message = one.at("message");
        found.found_message = one.at("found_message");
        found.tier = static_cast<Tier>(one.at("tier").get<int>());
        found.neighbours_tried = one.at("neighbours_tried");
        found.steps_taken = one.at("steps_taken");
        found.certificate = one.at("certificate");
        found.certified = one.at("certified");
        found.shrink_seconds = one.at("shrink_seconds");
        found.repeatable = one.at("repeatable");
        found.case_number = one.at("case_number");
        found.matters = one.at("matters");
        found.being_shrunk = one.at("being_shrunk");
        report.counterexamples.push_back(std::move(found));
    }
    return report;
}

namespace {

Json to_json_value(const RunReport& report, const PropertyReport& property,
                   const Counterexample& found) {
    return {{"case", print(found.spec)},
            {"original_case", print(found.original)},
            {"shrinks", found.steps_taken},
            {"message", found.failure + ": " + message_of(found)},
            {"reproduce", reproduce_command(report, property, found)},
            {"failure", found.failure},
            {"tier", name_of(found.tier)},
            {"message_as_found", found.found_message},
            {"certificate", found.certificate},
            {"certified", found.certified},
            {"matters", found.matters},
            {"found_after_cases", found.case_number},
            {"repeatable", found.repeatable},
            {"shrink_seconds", found.shrink_seconds}};
}

}  // namespace

std::string to_json(const RunReport& report) {
    Json properties = Json::array();
    for (const auto& p : report.properties) {
        Json entry{{"op", p.op},
                   {"property", p.property},
                   {"status", name_of(p.status)},
                   {"cases", p.cases},
                   {"declined", p.declined},
                   {"labels", Json::object()},
                   {"worst_error_ratio", number_or_null(p.worst_ratio)},
                   {"worst_errors", ratios_json(p.ratios)},
                   {"waived", p.waived},
                   {"replayed", p.replayed},
                   {"seconds", p.seconds}};
        for (const auto& [label, count] : p.labels) entry["labels"][label] = count;
        if (p.rejected > 0) entry["rejected"] = p.rejected;
        if (p.differing > 0) entry["bits_differed"] = p.differing;
        if (p.elements.compared > 0)
            entry["elements"] = {{"compared", p.elements.compared},
                                 {"unjudged", p.elements.unjudged}};
        if (!p.casts.empty()) entry["casts"] = casts_json(p.casts);
        if (!p.bounds.empty()) entry["bounds"] = bounds_json(p.bounds);
        if (p.drawn.cases > 0) entry["drawn"] = drawn_json(p.drawn);
        if (!p.quotas.percent.empty())
            entry["required"] = {{"percent", p.quotas.percent}, {"limited", p.quotas.is_limited}};
        if (!p.note.empty()) entry["note"] = p.note;
        if (!p.coverage.empty()) entry["coverage"] = p.coverage;
        if (p.clauses.possible > 0) entry["clauses"] = clauses_json(p.clauses);
        if (!p.waivers.empty()) entry["waivers"] = p.waivers;
        if (!p.counterexamples.empty())
            entry["counterexample"] = to_json_value(report, p, p.counterexamples.front());
        for (std::size_t k = 1; k < p.counterexamples.size(); ++k)
            entry["more_counterexamples"].push_back(to_json_value(report, p, p.counterexamples[k]));
        properties.push_back(std::move(entry));
    }
    Json whole{
        {"schema", 1},
        {"candidate", report.candidate},
        {"seed", report.seed},
        {"duration_s", report.duration_s},
        {"interrupted", report.interrupted},
        {"exit_status", exit_status(report)},
        {"verdict", verdict_of(exit_status(report))},
        {"shard", {{"parts", {report.shard + 1}}, {"of", report.shards}}},
        {"precision",
         {{"declared", report.precision},
          {"looks_like", observed_precision(report)},
          {"wider_than_seen", wider_than_seen(report)}}},
        {"properties", properties}};
    if (report.interrupted) {  // for the run that goes on
        whole["finished"] = Json::array();
        whole["begun"] = Json::array();
        for (const auto& p : report.properties)
            if (is_finished(p))
                whole["finished"].push_back(Json::parse(property_to_text(p)));
            else if (is_begun(p))
                whole["begun"].push_back(Json::parse(property_to_text(p)));
    }
    if (!report.version.empty()) whole["version"] = report.version;
    if (!report.date.empty()) whole["date"] = report.date;
    if (!report.library.empty()) whole["library"] = report.library;
    if (!report.python_option.empty()) whole["python"] = report.python_option;
    if (!report.host.empty()) whole["hosts"] = {report.host};
    if (!report.sandbox.empty()) whole["sandbox"] = report.sandbox;
    if (!report.library_sha256.empty()) whole["library_sha256"] = report.library_sha256;
    for (const auto& [name, value] : report.options) whole["options"][name] = option_json(name, value);
    if (!report.notes.empty()) whole["notes"] = report.notes;
    if (!report.agenda.empty()) whole["agenda"] = report.agenda;
    for (const auto& [op, taken] : report.taken)
        whole["takes"][op] = {{"cases", taken.text}, {"outside", taken.refusals}};
    for (const PairCoverage& one : report.pairs)
        whole["pairs"][one.op] = pairs_json(one.possible, one.missing);
    for (const auto& source : report.sources)
        whole["implementations"][source.composition][source.op] = source.implementation;
    number_counterexamples(whole);
    return whole.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace attncheck::properties
