// Numbers and causes of counterexamples in JSON, for whole runs and for merged shards alike.
#include "properties/report/causes.h"
#include "properties/report/json_parts.h"

namespace attncheck::properties {
namespace {

Failure failure_of(const Json& property, const Json& found) {
    Failure one;
    one.op = property.value("op", "");
    one.property = property.value("property", "");
    one.failure = found.value("failure", "");
    one.message = found.value("message", "");
    if (const std::string head = one.failure + ": "; one.message.starts_with(head))
        one.message.erase(0, head.size());
    one.case_line = found.value("case", "");
    one.matters = found.value("matters", "");
    one.certificate = found.value("certificate", "");
    one.is_replayed = property.value("replayed", std::int64_t{0}) > 0 && found.value("found_after_cases", std::int64_t{1}) == 0;
    one.case_number = found.value("found_after_cases", std::int64_t{0});
    one.is_certified = found.value("certified", false);
    one.replay = found.value("reproduce", "");
    if (one.message.empty()) one.message = found.value("message_as_found", "");  // of a version that left it out
    try {
        one.tier = tier_named(found.value("tier", "relation"));
    } catch (const std::invalid_argument&) {  // of a version that has other tiers
    }
    return one;
}

}  // namespace

std::vector<Json*> counterexamples_of(Json& property) {
    std::vector<Json*> out;
    if (property.contains("counterexample")) out.push_back(&property["counterexample"]);
    if (property.contains("more_counterexamples"))
        for (Json& more : property["more_counterexamples"]) out.push_back(&more);
    return out;
}

std::vector<Failure> failures_of(Json& report, std::int64_t& rejected) {
    std::vector<Failure> failures;
    rejected = 0;
    for (Json& property : report["properties"]) {
        rejected += property.value("rejected", std::int64_t{0});
        for (const Json* found : counterexamples_of(property))
            failures.push_back(failure_of(property, *found));
    }
    return failures;
}

void number_counterexamples(Json& report) {
    std::int64_t rejected = 0;
    const std::vector<Failure> failures = failures_of(report, rejected);
    std::vector<Json*> places;
    for (Json& property : report["properties"])
        for (Json* found : counterexamples_of(property)) places.push_back(found);
    const std::vector<Cause> causes = causes_of(failures, rejected == 0);
    const std::vector<int> numbers = numbers_of(causes, failures.size());
    for (std::size_t i = 0; i < places.size(); ++i) (*places[i])["number"] = numbers[i];
    report["causes"] = Json::array();
    for (const Cause& cause : causes) {
        Json one{{"counterexamples", Json::array()}, {"checks_no_arguments", cause.checks_nothing}};
        for (const std::size_t i : cause.failures) one["counterexamples"].push_back(numbers[i]);
        if (cause.has_name) one["named"] = numbers[cause.named];
        report["causes"].push_back(std::move(one));
    }
}

}  // namespace attncheck::properties
