#include "properties/report/waiver_text.h"

#include <fmt/format.h>

#include "properties/report/json_parts.h"

namespace attncheck::properties {

std::string waivers_of(const std::string& json, const std::string& before) {
    Json report = Json::parse(json);
    const std::string date = report.value("date", "").substr(0, 10);
    const std::string head = fmt::format("# Failures of {}, known since {}: OPERATOR PROPERTY LABELS failure=\"CLASS\" REASON\n",
                                         report.value("candidate", ""), date);
    std::string out;
    for (Json& property : report.at("properties"))
        for (const Json* found : counterexamples_of(property))
            out += fmt::format("{} {} * failure=\"{}\" known since {}: {}\n", property.at("op").get<std::string>(),
                               property.at("property").get<std::string>(), found->value("failure", ""), date,
                               found->value("case", ""));
    if (before.empty()) return head + out;
    return before + (before.ends_with('\n') ? "" : "\n") + (out.empty() ? "" : head + out);
}

}  // namespace attncheck::properties
