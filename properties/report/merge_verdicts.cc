#include "properties/report/merge_verdicts.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "properties/report/class_coverage.h"
#include "properties/report/clause_coverage.h"
#include "properties/report/conclusion.h"

namespace attncheck::properties {
namespace {

int missing_parts_of(const Json& merged) {
    const Json& shard = merged["shard"];
    return shard["of"].get<int>() - static_cast<int>(shard["parts"].size());
}

/// Share of elements without a bound, as the declared precision allows it.
double most_unjudged_of(const Json& merged) {
    try {
        return most_unjudged(ref::parse_rounding_class(merged["precision"].value("declared", std::string())));
    } catch (const std::invalid_argument&) {  // of a report that something else wrote
        return most_unjudged({});
    }
}

/// What the counts of an entry are, as far as a verdict depends on them.
PropertyReport counts_of(const Json& entry, const Json& merged) {
    PropertyReport one;
    one.op = entry["op"];
    one.property = entry["property"];
    one.cases = entry["cases"];
    one.replayed = entry.value("replayed", std::int64_t{0});
    one.declined = entry.value("declined", std::int64_t{0});
    one.labels = entry["labels"].get<std::map<std::string, std::int64_t>>();
    if (entry.contains("drawn")) one.drawn = drawn_from(entry["drawn"]);
    if (entry.contains("elements"))
        one.elements = {entry["elements"].at("compared"), entry["elements"].at("unjudged")};
    const Json takes = merged.value("takes", Json::object());
    if (takes.contains(one.op)) one.taken.refusals = takes[one.op].value("outside", "");
    return one;
}

void set_verdict(Json& entry, const PropertyReport& verdict) {
    entry["status"] = name_of(verdict.status);
    entry.erase("note");
    if (!verdict.note.empty()) entry["note"] = verdict.note;
}

/// Too few cases of a shard may be enough of all, and what each shard declines may be none of its cases.
void judge_counts(Json& merged) {
    const double most = most_unjudged_of(merged);
    const bool counts_elements = merged.value("options", Json::object()).value("rule", "").empty();
    for (Json& entry : merged["properties"]) {
        const std::string status = entry["status"];
        if (status == "falsified" || status == "error") continue;
        PropertyReport one = counts_of(entry, merged);
        if (one.drawn.needed == 0) {
            if (status != "inconclusive" || one.cases < kConclusiveCases) continue;
            entry["status"] = "held";  // together
            entry.erase("note");
            continue;
        }
        conclude(one, one.drawn.needed, most, counts_elements);
        if (one.status != PropertyReport::Status::held || status != "held") set_verdict(entry, one);
    }
}

/// A class that no shard met often enough may be one that all met.
void judge_classes(Json& merged) {
    std::vector<PropertyReport> all;
    for (const Json& entry : merged["properties"]) all.push_back(counts_of(entry, merged));
    for (Json& entry : merged["properties"]) {
        if (!entry.contains("required")) continue;
        const Json& required = entry["required"];
        set_verdict(entry, verdict_on_classes(entry["op"],
                                              {required.at("percent").get<std::map<std::string, double>>(),
                                               required.at("limited").get<bool>()},
                                              all, missing_parts_of(merged)));
    }
}

/// In the order of the whole run, whatever the order of the reports.
void sort_by_agenda(Json& merged) {
    if (!merged.contains("agenda")) return;
    std::map<std::string, std::size_t> places, ends;
    for (const Json& one : merged["agenda"]) {
        const std::string name = one;
        places.emplace(name, places.size());
        ends[name.substr(0, name.find('.'))] = places.size();
    }
    const auto place_of = [&](const Json& entry) {
        const std::string op = entry["op"], property = entry["property"];
        const auto at = places.find(op + "." + property);
        // What is judged over an operator as a whole stands behind its properties.
        return std::tuple(at != places.end() ? at->second : ends[op] - 1, at == places.end(), property);
    };
    std::ranges::stable_sort(merged["properties"].get_ref<Json::array_t&>(), {}, place_of);
    if (missing_parts_of(merged) == 0) merged.erase("agenda");
}

/// A clause that one shard left out may have decided a call of another: "required_clauses" is judged
/// over all of them, when they are all there.
void judge_clauses(Json& merged) {
    for (Json& entry : merged["properties"]) {
        if (entry["property"] != "required_clauses") continue;
        const auto validation = std::ranges::find_if(merged["properties"], [&](const Json& p) {
            return p["op"] == entry["op"] && p.contains("clauses");
        });
        if (validation == merged["properties"].end()) continue;
        const ClauseVerdict verdict =
            verdict_on(clauses_from((*validation)["clauses"]),
                       validation->value("declined", std::int64_t{0}), missing_parts_of(merged));
        PropertyReport one;
        one.status = verdict.status;
        one.note = verdict.note;
        set_verdict(entry, one);
    }
}

}  // namespace

void judge_merged(Json& merged) {
    judge_counts(merged);
    judge_classes(merged);
    judge_clauses(merged);
    sort_by_agenda(merged);
}

}  // namespace attncheck::properties
