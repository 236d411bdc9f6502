#include "properties/report/merge_checks.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <stdexcept>

#include "properties/report/clause_coverage.h"

namespace attncheck::properties {
namespace {

/// Worst last: what a merged property is when its shards differ.
constexpr const char* kStatuses[] = {"not_implemented", "not_applicable", "declined", "held",
                                     "inconclusive",    "error",          "falsified"};

/// Throws, also Json::exception, unless `value` is a whole number from 0 to 2^63 - 1.
void check_count(const Json& value) {
    if (!value.is_number_integer() || value < 0 || value > INT64_MAX)
        refuse_merge("counts " + value.dump() + ", allowed: whole numbers from 0 to 2^63 - 1");
}

void check_casts(const Json& casts) {
    if (!casts.is_object()) refuse_merge("has casts that are no object");
    for (const auto& [word, sums] : casts.items())
        if (!sums.is_array() || sums.size() != 2 || !(sums[0].is_number() || sums[0].is_null()) ||
            !(sums[1].is_number() || sums[1].is_null()))
            refuse_merge("has a cast that is not [found, expected]");
}

void check_bounds(const Json& bounds) {
    if (!bounds.is_object()) refuse_merge("has bounds that are no object");
    for (const auto& [name, one] : bounds.items()) {
        (void)one.at("worst");
        check_count(one.at("cases"));
    }
}

void check_counterexample(const Json& found) {
    if (!found.is_object()) refuse_merge("has a counterexample that is no object");
    for (const char* text : {"case", "failure", "message", "message_as_found", "tier", "matters", "certificate", "reproduce"})
        (void)found.value(text, std::string());
}

/// Throws, also Json::exception, unless everything that merging looks at is there and of its type.
void check_property(const Json& entry) {
    for (const char* text : {"op", "property", "status"})
        (void)entry.at(text).get_ref<const std::string&>();
    if (status_rank(entry["status"]) == std::ssize(kStatuses))
        refuse_merge("has a property of status " + entry["status"].dump());
    check_count(entry.at("cases"));
    for (const char* count : {"declined", "waived", "replayed", "rejected", "bits_differed"})
        if (entry.contains(count)) check_count(entry[count]);
    if (!entry.at("labels").is_object()) refuse_merge("has labels that are no object");
    for (const auto& [label, count] : entry["labels"].items()) check_count(count);
    (void)entry.at("worst_error_ratio");
    if (entry.contains("casts")) check_casts(entry["casts"]);
    if (entry.contains("bounds")) check_bounds(entry["bounds"]);
    if (entry.contains("clauses")) (void)clauses_from(entry["clauses"]);
    if (entry.contains("worst_errors"))
        for (const Json& bin : entry["worst_errors"].get_ref<const Json::array_t&>()) {
            (void)bin.at("from").get<double>();
            check_count(bin.at("cases"));
        }
    (void)entry.value("note", std::string());
    (void)entry.value("waivers", std::vector<std::string>());
    if (entry.contains("elements"))
        for (const char* part : {"compared", "unjudged"}) check_count(entry["elements"].at(part));
    if (entry.contains("counterexample")) check_counterexample(entry["counterexample"]);
    if (!entry.contains("more_counterexamples")) return;
    if (!entry["more_counterexamples"].is_array()) refuse_merge("has more_counterexamples that are none");
    for (const Json& more : entry["more_counterexamples"]) check_counterexample(more);
}

void check_pairs(const Json& pairs) {
    if (!pairs.is_object()) refuse_merge("has pairs that are no object");
    for (const auto& [op, one] : pairs.items()) {
        check_count(one.at("possible"));
        const auto& missing = one.at("missing").get_ref<const Json::array_t&>();
        for (const Json& pair : missing) (void)pair.get_ref<const std::string&>();
        if (std::ssize(missing) > one["possible"].get<std::int64_t>())
            refuse_merge("misses more pairs of " + op + " than are possible");
    }
}

void check_shard(const Json& report) {
    if (!report.contains("shard")) return;
    const Json& shard = report["shard"];
    const Json& count = shard.at("of");
    constexpr int kMost = 10'000;  // of verify --shard
    if (!count.is_number_integer() || count < 1 || count > kMost)
        refuse_merge("is of a run with " + count.dump() + " shards, allowed: 1 to 10000");
    for (const Json& part : shard.at("parts").get_ref<const Json::array_t&>())
        if (!part.is_number_integer() || part < 1 || part > count)
            refuse_merge("has shard " + part.dump() + " of " + count.dump());
}

}  // namespace

void refuse_merge(const std::string& why) { throw std::runtime_error(why); }

std::ptrdiff_t status_rank(const std::string& status) {
    return std::find(std::begin(kStatuses), std::end(kStatuses), status) - std::begin(kStatuses);
}

void check_report(const Json& report) {
    if (!report.is_object() || report.value("schema", Json()) != 1 ||
        !report.contains("properties") || !report["properties"].is_array())
        refuse_merge("is not an attncheck report of schema 1");
    (void)report.at("candidate").get_ref<const std::string&>();
    if (const Json& seed = report.at("seed"); !seed.is_number_unsigned())
        refuse_merge("has the seed " + seed.dump() + ", allowed: whole numbers from 0 to 2^64 - 1");
    if (!(report.at("duration_s").get<double>() >= 0)) refuse_merge("has a duration below 0");
    (void)report.value("interrupted", false);
    if (!report.value("precision", Json::object()).is_object())
        refuse_merge("has a precision that is no object");
    for (const Json& entry : report["properties"]) check_property(entry);
    if (report.contains("pairs")) check_pairs(report["pairs"]);
    for (const char* text : {"version", "library", "python", "library_sha256", "date", "sandbox"}) (void)report.value(text, std::string());
    for (const char* list : {"hosts", "notes", "agenda"})
        if (report.contains(list))
            for (const Json& text : report[list].get_ref<const Json::array_t&>())
                (void)text.get_ref<const std::string&>();
    if (!report.value("options", Json::object()).is_object()) refuse_merge("has options that are none");
    check_shard(report);
}

}  // namespace attncheck::properties
