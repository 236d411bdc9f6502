// Whoever wrote the reports: everything is checked before it is used.
#include "properties/report/merge.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <map>
#include <ranges>
#include <set>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "properties/case/printable.h"
#include "properties/judge/tier_text.h"
#include "properties/report/cause_text.h"
#include "properties/report/clause_coverage.h"
#include "properties/report/exit_status.h"
#include "properties/report/json_parts.h"
#include "properties/report/merge_checks.h"
#include "properties/report/merge_verdicts.h"
#include "properties/report/summary.h"
#include "properties/report/table.h"

namespace attncheck::properties {
namespace {

/// Of counts that are at least 0.
std::int64_t sum_of(std::int64_t left, std::int64_t right) {
    std::int64_t sum = 0;
    if (__builtin_add_overflow(left, right, &sum)) refuse_merge("counts more than 2^63 - 1 of something");
    return sum;
}

/// Which parts of how many a report has; one without the field is a whole run.
Json shard_of(const Json& report) {
    return report.value("shard", Json{{"parts", {1}}, {"of", 1}});
}

/// Throws when a part is there twice, after it said which options differ: a run that was repeated
/// would count double.
void merge_shard(const Json& report, const std::string& first, Json& merged) {
    for (const auto& [field, word] : {std::pair("version", "version of attncheck"), std::pair("library_sha256", "library")})
        if (report.value(field, "") != merged.value(field, ""))
            refuse_merge(std::string("is of another ") + word + " than " + first);
    const Json options = report.value("options", Json::object()),
               known = merged.value("options", Json::object());
    for (const auto* side : {&options, &known})
        for (const auto& [name, value] : side->items())
            if (options.value(name, Json()) != known.value(name, Json()))
                refuse_merge("was run with another value of " + name + " than " + first);
    const Json shard = shard_of(report);
    if (shard["of"] != merged["shard"]["of"])
        refuse_merge("is of a run with " + shard["of"].dump() + " shards, " + first + " of one with " +
               merged["shard"]["of"].dump());
    std::set<int> parts = merged["shard"]["parts"].get<std::set<int>>();
    for (const Json& part : shard["parts"])
        if (!parts.insert(part.get<int>()).second)
            refuse_merge("has shard " + part.dump() + ", which an earlier report has too: one run twice?");
    merged["shard"]["parts"] = parts;
    if (report.value("sandbox", "") != merged.value("sandbox", ""))
        merged["sandbox"] = "not the same in all shards";
    if (report.contains("notes"))
        for (const Json& note : report["notes"])
            if (!merged.contains("notes") || std::ranges::find(merged["notes"], note) == merged["notes"].end())
                merged["notes"].push_back(note);
    if (!report.contains("hosts")) return;
    std::set<std::string> hosts = merged.value("hosts", std::set<std::string>{});
    hosts.merge(report["hosts"].get<std::set<std::string>>());
    merged["hosts"] = hosts;
}

Json empty_like(const Json& report) {
    Json empty = {{"schema", 1},
            {"candidate", report["candidate"]},
            {"seed", report["seed"]},
            {"duration_s", 0.0},
            {"interrupted", false},
            {"exit_status", 0},
            {"verdict", ""},
            {"shard", {{"parts", Json::array()}, {"of", shard_of(report)["of"]}}},
            {"precision", report.value("precision", Json::object())},
            {"implementations", report.value("implementations", Json())},
            {"properties", Json::array()}};
    for (const char* field : {"version", "library", "python", "library_sha256", "sandbox", "options", "agenda"})
        if (report.contains(field)) empty[field] = report[field];
    return empty;
}

/// The first counterexample of each failure class of both, as one run would have met them.
void merge_counterexamples(const Json& entry, Json& known) {
    std::vector<Json> found;
    for (const Json* side : {&std::as_const(known), &entry}) {
        if (side->contains("counterexample")) found.push_back((*side)["counterexample"]);
        if (side->contains("more_counterexamples"))
            for (const Json& more : (*side)["more_counterexamples"]) found.push_back(more);
    }
    std::ranges::stable_sort(found, {}, [](const Json& one) { return one.value("found_after_cases", 0); });
    known.erase("counterexample");
    known.erase("more_counterexamples");
    std::vector<std::string> classes;
    for (const Json& one : found) {
        const std::string failure = one.value("failure", one.value("message", ""));
        if (std::find(classes.begin(), classes.end(), failure) != classes.end()) continue;
        if (std::ssize(classes) == kMostCounterexamples) break;
        classes.push_back(failure);
        if (classes.size() == 1)
            known["counterexample"] = one;
        else
            known["more_counterexamples"].push_back(one);
    }
}

void merge_property(const Json& entry, Json& known) {
    std::vector<CastEvidence> casts;
    for (const Json* side : {&std::as_const(known), &entry}) add_casts(*side, casts);
    if (!casts.empty()) known["casts"] = casts_json(casts);
    std::vector<BoundEvidence> bounds;
    for (const Json* side : {&std::as_const(known), &entry}) add_bounds(*side, bounds);
    if (!bounds.empty()) known["bounds"] = bounds_json(bounds);
    if (entry.contains("clauses"))
        known["clauses"] = known.contains("clauses")
                               ? clauses_json(joined(clauses_from(known["clauses"]), clauses_from(entry["clauses"])))
                               : entry["clauses"];
    if (entry.contains("drawn"))
        known["drawn"] = known.contains("drawn")
                             ? drawn_json(sum_of(drawn_from(known["drawn"]), drawn_from(entry["drawn"])))
                             : entry["drawn"];
    for (const char* count : {"cases", "declined", "waived", "replayed", "rejected", "bits_differed"}) {
        const std::int64_t sum =
            sum_of(known.value(count, std::int64_t{0}), entry.value(count, std::int64_t{0}));
        if (sum > 0 || known.contains(count)) known[count] = sum;
    }
    if (entry.contains("elements"))
        for (const char* part : {"compared", "unjudged"}) {
            const Json before = known.value("elements", Json::object());
            known["elements"][part] =
                sum_of(before.value(part, std::int64_t{0}), entry["elements"].value(part, std::int64_t{0}));
        }
    for (const auto& [label, count] : entry["labels"].items())
        known["labels"][label] =
            sum_of(known["labels"].value(label, std::int64_t{0}), count.get<std::int64_t>());
    RatioHistogram ratios;
    for (const Json* side : {&std::as_const(known), &entry}) add_ratios(*side, ratios);
    if (known.contains("worst_errors") || !ratios.cases.empty()) known["worst_errors"] = ratios_json(ratios);
    const double left = to_number(known["worst_error_ratio"]),
                 right = to_number(entry["worst_error_ratio"]);
    if (!(right <= left)) known["worst_error_ratio"] = entry["worst_error_ratio"];
    for (const Json& reason : entry.value("waivers", Json::array()))
        if (!known.contains("waivers") || std::ranges::find(known["waivers"], reason) == known["waivers"].end())
            known["waivers"].push_back(reason);
    known["seconds"] = known.value("seconds", 0.0) + entry.value("seconds", 0.0);
    if (status_rank(entry["status"]) > status_rank(known["status"])) {
        known["status"] = entry["status"];
        known.erase("note");
        if (entry.contains("note")) known["note"] = entry["note"];
    }
    merge_counterexamples(entry, known);
}

/// A pair is missing when it is missing in all reports that have the operator.
void merge_pairs(const Json& pairs, std::map<std::string, PairCoverage>& merged) {
    for (const auto& [op, one] : pairs.items()) {
        auto missing = one["missing"].get<std::vector<std::string>>();
        std::sort(missing.begin(), missing.end());
        missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
        const auto [it, is_first] = merged.try_emplace(op);
        PairCoverage& known = it->second;
        if (is_first) known.missing = missing;
        std::vector<std::string> both;
        std::set_intersection(known.missing.begin(), known.missing.end(), missing.begin(),
                              missing.end(), std::back_inserter(both));
        known.op = op;
        known.possible = std::max(known.possible, one["possible"].get<std::int64_t>());
        known.missing = std::move(both);
    }
}

/// Place of a property in the merged list, by operator and name.
using Places = std::map<std::pair<std::string, std::string>, std::size_t>;

/// Adds a checked report to what is merged so far.
void merge_report(const Json& report, Json& merged, Places& places) {
    const double duration = merged["duration_s"].get<double>() + report["duration_s"].get<double>();
    if (!std::isfinite(duration)) refuse_merge("has a duration that is no number of seconds");
    merged["duration_s"] = duration;
    if (report.value("interrupted", false)) merged["interrupted"] = true;
    if (const std::string date = report.value("date", ""); date > merged.value("date", ""))
        merged["date"] = date;
    if (report.contains("takes"))
        for (const auto& [op, taken] : report["takes"].items())
            if (!merged.contains("takes") || !merged["takes"].contains(op)) merged["takes"][op] = taken;
    for (const Json& entry : report["properties"]) {
        Json& known = merged["properties"];
        const auto [at, is_first] = places.try_emplace({entry["op"], entry["property"]}, known.size());
        if (is_first)
            known.push_back(entry);
        else
            merge_property(entry, known[at->second]);
    }
}

/// Laws of the run that no report has, "attention.causality".
std::vector<std::string> laws_left_out(const Json& merged) {
    std::vector<std::string> out = merged.value("agenda", std::vector<std::string>());
    for (const Json& p : merged["properties"])
        std::erase(out, p["op"].get<std::string>() + "." + p["property"].get<std::string>());
    return out;
}

/// What a merge of some shards lacks; empty for all of them. No part of the JSON: the others may be merged later.
std::string note_of_missing(const MergedReport& merged, const std::vector<std::string>& left_out) {
    constexpr std::size_t kMost = 20;
    if (merged.missing_shards.empty()) return {};
    std::string text = fmt::format("no report of shard {} of {}", fmt::join(merged.missing_shards, ", "), merged.shards);
    if (left_out.empty()) return text;
    text += fmt::format("; not run: {}", fmt::join(left_out | std::views::take(kMost), ", "));
    return left_out.size() > kMost ? fmt::format("{} and {} more", text, left_out.size() - kMost) : text;
}

std::string line_of(const std::string& text) { return printable_line(text, kLongestMessage); }

PropertyReport property_of(const Json& merged) {
    PropertyReport out;
    out.op = merged["op"];
    out.property = merged["property"];
    for (int k = 0; name_of(out.status) != merged["status"].get_ref<const std::string&>(); ++k)
        out.status = static_cast<PropertyReport::Status>(k);
    const auto count = [&](const char* name) {
        constexpr std::int64_t kMost = std::int64_t{1} << 40;  // many can be added
        return std::min(merged.value(name, std::int64_t{0}), kMost);
    };
    out.cases = count("cases");
    out.declined = count("declined");
    out.waived = count("waived");
    out.replayed = count("replayed");
    out.differing = count("bits_differed");
    out.worst_ratio = to_number(merged["worst_error_ratio"]);
    out.note = line_of(merged.value("note", ""));
    for (const Json& reason : merged.value("waivers", Json::array())) out.waivers.push_back(line_of(reason));
    add_casts(merged, out.casts);
    add_bounds(merged, out.bounds);
    return out;
}

bool has_wrong_numbers(const std::vector<Failure>& failures) {
    return std::ranges::any_of(failures, [](const Failure& one) { return is_of_numbers(one.tier); });
}

/// As the run would have ended if it had been one.
std::string text_of(Json& merged, const std::string& missing, const std::string& path, int status) {
    RunReport report;
    report.candidate = line_of(merged["candidate"]);
    report.seed = merged["seed"];
    report.duration_s = merged["duration_s"];
    report.interrupted = merged["interrupted"];
    report.sandbox = line_of(merged.value("sandbox", ""));
    report.precision = merged["precision"].is_object() ? merged["precision"].value("declared", "") : "";
    for (const Json& note : merged.value("notes", Json::array())) report.notes.push_back(line_of(note));
    if (!missing.empty()) report.notes.push_back(missing);
    for (const Json& p : merged["properties"]) report.properties.push_back(property_of(p));
    std::ostringstream out;
    out << summary_of(report);
    std::int64_t rejected = 0;
    const std::vector<Failure> failures = failures_of(merged, rejected);
    if (has_wrong_numbers(failures))
        for (PropertyReport& p : report.properties) p.bounds.clear();  // they say nothing of the declaration
    print_end(out, report, print_causes(out, failures, rejected == 0, false, path), status, false);
    return out.str();
}

}  // namespace

MergedReport merge_json(const std::vector<std::pair<std::string, std::string>>& name_and_text, const std::string& path) {
    Json merged;
    std::map<std::string, PairCoverage> pairs;
    Places places;
    for (const auto& [name, text] : name_and_text) {
        try {
            const Json report = parsed_report(text);
            check_report(report);
            if (merged.is_null())
                merged = empty_like(report);
            else if (merged["candidate"] != report["candidate"] || merged["seed"] != report["seed"])
                refuse_merge("is of another candidate or seed than " + name_and_text.front().first);
            merge_shard(report, name_and_text.front().first, merged);
            if (report.value("agenda", Json()) != merged.value("agenda", Json()))
                refuse_merge("is of a run with other properties than " + name_and_text.front().first);
            if (report.value("implementations", Json()) != merged["implementations"])
                refuse_merge("ran on other operators than " + name_and_text.front().first);
            merge_report(report, merged, places);
            if (report.contains("pairs")) merge_pairs(report["pairs"], pairs);
        } catch (const Json::parse_error&) {
            throw std::runtime_error(name + ": is not JSON");
        } catch (const Json::exception& e) {
            throw std::runtime_error(name + ": does not have the documented fields: " +
                                     printable_line(e.what(), kLongestMessage));
        } catch (const std::runtime_error& e) {
            throw std::runtime_error(name + ": " + printable_line(e.what(), kLongestMessage));
        }
    }
    if (merged.is_null()) throw std::runtime_error("merge: no report was given");
    MergedReport out;
    std::int64_t checked = 0;
    bool is_falsified = false, has_error = false, is_inconclusive = false, has_rows = false;
    judge_merged(merged);
    for (const Json& p : merged["properties"]) {
        is_inconclusive = is_inconclusive || p["status"] == "inconclusive";
        is_falsified = is_falsified || p["status"] == "falsified";
        has_error = has_error || p["status"] == "error";
        has_rows = has_rows || p["status"] != "not_implemented";
        for (const char* count : {"cases", "replayed"})  // or none at all
            checked = std::max(checked, p.value(count, std::int64_t{0}));
    }
    const std::vector<std::string> left_out = laws_left_out(merged);
    std::vector<CastEvidence> casts;
    for (const Json& p : merged["properties"]) add_casts(p, casts);
    std::vector<BoundEvidence> bounds;
    for (const Json& p : merged["properties"]) add_bounds(p, bounds);
    if (!merged["precision"].empty()) {
        merged["precision"]["looks_like"] = words_of(casts);
        std::int64_t rejected = 0;
        if (has_wrong_numbers(failures_of(merged, rejected))) bounds.clear();
        if (merged["precision"].contains("wider_than_seen"))
            merged["precision"]["wider_than_seen"] = wider_than_seen(
                merged["precision"].value("declared", std::string()), bounds);
    }
    if (merged["implementations"].is_null()) merged.erase("implementations");
    for (const auto& [op, one] : pairs) merged["pairs"][op] = pairs_json(one.possible, one.missing);
    out.shards = merged["shard"]["of"].get<int>();
    const auto parts = merged["shard"]["parts"].get<std::set<int>>();
    for (int part = 1; part <= out.shards; ++part)
        if (!parts.contains(part)) out.missing_shards.push_back(part);
    // A run with fewer parts than shards leaves some without work.
    const bool is_idle = !has_rows && !out.missing_shards.empty();
    out.exit_status = exit_status_of(is_falsified, merged["interrupted"].get<bool>(), has_error,
                                     (checked == 0 && !is_idle) || is_inconclusive || (has_rows && !left_out.empty()));
    merged["exit_status"] = out.exit_status;
    merged["verdict"] = verdict_of(out.exit_status);
    number_counterexamples(merged);
    out.table = text_of(merged, note_of_missing(out, left_out), path, out.exit_status);
    out.json = merged.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
    return out;
}

}  // namespace attncheck::properties
