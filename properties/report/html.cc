// The report as one page that needs nothing else: the JSON, a script that shows it, and the library
// that draws its plots (properties/report/page/).
#include <fmt/format.h>

#include <stdexcept>
#include <string_view>

#include "properties/report/json.h"
#include "properties/report/json_parts.h"
#include "properties/report/markup.h"
#include "properties/report/page.h"

namespace attncheck::properties {
namespace {

/// JSON inside a script element: nothing in it may end the element.
std::string inside_script(const std::string& json) {
    std::string out;
    out.reserve(json.size());
    for (const char ch : json) {
        if (ch == '<')
            out += "\\u003c";
        else
            out += ch;
    }
    return out;
}

/// Replaces each @NAME@ of `text` once. Names inside the replacements stay.
std::string filled(std::string_view text,
                   const std::vector<std::pair<std::string_view, std::string>>& values) {
    std::string out;
    while (!text.empty()) {
        std::size_t nearest = text.npos;
        const std::pair<std::string_view, std::string>* value = nullptr;
        for (const auto& one : values)
            if (const std::size_t at = text.find(one.first); at < nearest) nearest = at, value = &one;
        out += text.substr(0, nearest);
        if (!value) break;
        out += value->second;
        text.remove_prefix(nearest + value->first.size());
    }
    return out;
}

}  // namespace

std::string to_html(const std::string& json, const std::map<int, std::string>& programs) {
    Json report;
    try {
        report = parsed_report(json);
        Json by_number = Json::object();
        for (const auto& [number, text] : programs) by_number[std::to_string(number)] = text;
        const std::string summary =
            fmt::format("{}: {}", report.at("candidate").get<std::string>(), report.at("verdict").get<std::string>());
        return filled(page_html(),
                      {{"@TITLE@", xml_escaped(report.at("candidate").get<std::string>())},
                       {"@SUMMARY@", xml_escaped(summary)},
                       {"@STYLE@", std::string(page_css())},
                       {"@SCRIPT@", std::string(page_js())},
                       {"@LIBRARY@", std::string(page_library())},
                       {"@REPORT@", inside_script(report.dump(-1, ' ', false, Json::error_handler_t::replace))},
                       {"@PROGRAMS@", inside_script(by_number.dump(-1, ' ', false, Json::error_handler_t::replace))}});
    } catch (const Json::exception& e) {
        throw std::runtime_error(std::string("is no report: ") + e.what());
    }
}

std::string to_html(const RunReport& report) { return to_html(to_json(report), {}); }

}  // namespace attncheck::properties
