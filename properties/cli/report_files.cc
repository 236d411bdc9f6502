#include "properties/cli/report_files.h"

#include <fmt/format.h>

#include <filesystem>
#include <iostream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "properties/candidate/python_candidate.h"
#include "properties/case/number_text.h"
#include "properties/cli/command.h"
#include "properties/cli/emitted_case.h"
#include "properties/cli/emitted_text.h"
#include "properties/report/baseline.h"
#include "properties/report/files.h"
#include "properties/report/markup.h"
#include "properties/report/waiver_text.h"

namespace attncheck::properties {
namespace {

/// The class that the cases of a report were judged by.
ref::RoundingClass declared_in(const Json& report) {
    try {
        return ref::parse_rounding_class(report.value("precision", Json::object()).value("declared", "default"));
    } catch (const std::invalid_argument&) {  // of a report that something else wrote
        return ref::parse_rounding_class("default");
    }
}

/// The most telling counterexample of each cause as a program; cases that have none are left out.
std::map<int, std::string> programs_of(const std::string& json) {
    constexpr std::size_t kMost = 8, kLongest = 100'000;  ///< of causes; characters of a program
    std::map<int, std::string> out;
    Json report = Json::parse(json);
    std::map<int, std::string> lines;
    for (Json& property : report.at("properties"))
        for (const Json* found : counterexamples_of(property))
            lines[found->value("number", 0)] = found->value("case", "");
    for (const Json& cause : report.at("causes")) {
        const int number = cause.at("counterexamples").at(0);
        if (out.size() == kMost) break;
        try {
            const Spec spec = parse(lines[number], schemas());
            const std::string text =
                emitted_python(emitted_case(*find_operator(spec.schema->op), spec, declared_in(report)), false);
            if (text.size() <= kLongest) out[number] = text;
        } catch (const std::exception&) {
            // An edited case, a composition, or one too large for a program.
        }
    }
    return out;
}

/// shields.io reads this from anywhere: https://shields.io/badges/endpoint-badge
std::string badge_of(const std::string& json) {
    const Json report = Json::parse(json);
    const std::string verdict = report.at("verdict");
    std::int64_t cases = 0, waived = 0;
    for (const Json& property : report.at("properties")) {
        cases += property.at("cases").get<std::int64_t>();
        waived += property.at("waived").get<std::int64_t>();
    }
    const std::size_t causes = report.at("causes").size();
    // Those of a baseline, and waived ones: it is known that they are wrong.
    const std::string known = (causes == 0 ? "" : ", " + counted(causes, "known cause")) +
                              (waived == 0 ? "" : fmt::format(", {} waived", waived));
    const std::string message = verdict == "held" ? "held, " + counted(cases, "case") + known
                                : verdict == "falsified"
                                    ? "falsified, " + counted(causes, "cause")
                                    : verdict;
    const Json badge{{"schemaVersion", 1},
                     {"label", "attncheck"},
                     {"message", message},
                     {"color", verdict == "held" ? (known.empty() ? "brightgreen" : "yellowgreen")
                               : verdict == "falsified" ? "red" : "yellow"}};
    return badge.dump() + "\n";
}

/// Files that a run reads and no report may replace. A baseline and a stopped run may be those that the new report takes the place of.
std::vector<std::pair<std::string, std::string>> inputs_of(const Arguments& arguments) {
    std::vector<std::pair<std::string, std::string>> files;
    // --write-waivers keeps what is there.
    if (!arguments.waive.empty() && (arguments.write_waivers.empty() || !is_same_file(arguments.waive, arguments.write_waivers)))
        files.emplace_back("the file of --waive", arguments.waive);
    std::string candidate = arguments.candidate;
    for (const std::string_view prefix : {std::string_view(kPythonPrefix), std::string_view("aclnn:")})
        if (candidate.starts_with(prefix)) candidate.erase(0, prefix.size());
    if (const std::size_t colon = candidate.rfind(".py:"); colon != std::string::npos) candidate.resize(colon + 3);
    std::istringstream libraries(candidate);
    for (std::string one; std::getline(libraries, one, ',');)
        if (std::filesystem::is_regular_file(one)) files.emplace_back("a file of --candidate", one);
    return files;
}

ComparedReport compared(const std::string& json, const std::string& path) {
    try {
        return compared_with(json, read_report(path));
    } catch (const std::runtime_error& e) {
        throw UsageError(fmt::format("--baseline {}: {}", path, e.what()));
    }
}

}  // namespace

void check_report_paths(const Arguments& arguments) {
    const std::string paths[] = {arguments.json, arguments.junit, arguments.html, arguments.badge,
                                 arguments.write_waivers};
    for (std::size_t k = 0; k < std::size(paths); ++k) {
        if (paths[k].empty()) continue;
        if (paths[k] == "-") throw UsageError("a report has the name '-', expected a file: standard output has the text of the run");
        check_writable(paths[k]);
        for (std::size_t other = 0; other < k; ++other)
            if (is_same_file(paths[k], paths[other]) && is_replaceable(paths[k]))
                throw UsageError(fmt::format("two reports have the name {}", paths[k]));
        for (const auto& [what, path] : inputs_of(arguments))
            if (is_same_file(paths[k], path)) throw UsageError(fmt::format("a report has the name {}, which is {}: it would be overwritten", paths[k], what));
    }
    constexpr const char* kNothing = R"({"properties": [], "exit_status": 0})";
    if (!arguments.baseline.empty()) (void)compared(kNothing, arguments.baseline);
}

int finish_report(const Arguments& arguments, const std::string& json, int status) {
    std::string text = json;
    if (!arguments.baseline.empty()) {
        const ComparedReport with = compared(json, arguments.baseline);
        text = with.json;
        status = with.exit_status;
        std::cout << with.text;
    }
    bool written = true;
    const auto write = [&](const std::string& path, auto&& text_of) {
        try {
            if (!path.empty()) write_file(path, text_of());
        } catch (const std::exception& e) {
            std::cerr << "attncheck: " << e.what() << "\n";
            written = false;
        }
    };
    write(arguments.json, [&] { return text; });
    write(arguments.junit, [&] { return to_junit(text); });
    write(arguments.html, [&] { return to_html(text, programs_of(text)); });
    write(arguments.badge, [&] { return badge_of(text); });
    // What is waived is no failure of this run, and may be in the same file.
    write(arguments.write_waivers, [&] { return waivers_of(text, arguments.waive.empty() ? "" : read_report(arguments.waive)); });
    return written || status != kHeld ? status : kUsage;
}

}  // namespace attncheck::properties
