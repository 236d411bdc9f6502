#include "properties/report/last_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <stdexcept>

#include "properties/case/printable.h"
#include "properties/report/files.h"
#include "properties/report/json_parts.h"
#include "properties/report/results.h"

namespace attncheck::properties {
namespace {

namespace fs = std::filesystem;

const char* variable(const char* name) {
    const char* const value = std::getenv(name);
    return value && *value ? value : nullptr;
}

template <class Use>
void each_counterexample(const Json& property, Use&& use) {
    if (property.contains("counterexample")) use(property["counterexample"]);
    if (property.contains("more_counterexamples"))
        for (const Json& more : property["more_counterexamples"]) use(more);
}

/// A candidate as --candidate names it, FILE, aclnn:FILE,FILE or python:FILE:NAME, with other paths of its files.
template <class PathOf>
std::string with_paths(const std::string& candidate, PathOf&& path_of) {
    std::string out;
    for (std::size_t at = 0; at < candidate.size();) {
        const std::size_t end = std::min(candidate.find_first_of(":,", at), candidate.size());
        out += path_of(candidate.substr(at, end - at));
        if (end < candidate.size()) out += candidate[end];
        at = end + 1;
    }
    return out;
}

std::string from_anywhere(const std::string& candidate) {
    return with_paths(candidate, [](const std::string& part) {
        return fs::is_regular_file(part) ? fs::absolute(part).lexically_normal().string() : part;
    });
}

/// Files that are not where the command is run are looked for from the folder of the report.
std::string found_beside(const std::string& report, const std::string& candidate) {
    return with_paths(candidate, [&](const std::string& part) {
        const fs::path there = fs::absolute(report).parent_path() / part;
        return !part.empty() && !fs::exists(part) && fs::is_regular_file(there) ? there.lexically_normal().string() : part;
    });
}

}  // namespace

std::string last_report_path() {
    if (const char* const cache = variable("XDG_CACHE_HOME"))
        return (fs::path(cache) / "attncheck" / "last.json").string();
    if (const char* const home = variable("HOME"))
        return (fs::path(home) / ".cache" / "attncheck" / "last.json").string();
    return {};
}

bool keep_last_report(const std::string& json) {
    const std::string path = last_report_path();
    if (path.empty()) return false;
    try {
        Json report = Json::parse(json);
        if (report.contains("library")) report["library"] = from_anywhere(report["library"]);
        fs::create_directories(fs::path(path).parent_path());
        write_file(path, report.dump());
        return true;
    } catch (const std::exception&) {
        return false;
    }
}

Replay replay_of(const std::string& path, int number) {
    int most = 0;
    try {
        const Json report = parsed_report(read_report(path));
        Replay replay;
        bool is_there = false;
        for (const Json& property : report.at("properties"))
            each_counterexample(property, [&](const Json& found) {
                const int own = found.value("number", 0);
                most = std::max(most, own);
                if (own != number) return;
                is_there = true;
                replay.case_line = found.at("case");
                replay.property = property.at("property");
                const std::string certificate = found.value("certificate", "");
                if (certificate.starts_with(kNotAlone)) replay.note = certificate;
            });
        if (is_there) {
            const Json options = report.value("options", Json::object());
            const auto option = [&](const char* name) {
                return options.contains(name) ? option_text(name, options[name]) : std::string();
            };
            replay.library = found_beside(path, report.value("library", ""));
            replay.date = report.value("date", "");
            replay.python = report.value("python", "");
            replay.precision = options.value("precision", "");
            replay.profile = options.value("profile", "");
            replay.sandbox = options.value("sandbox", "");
            std::istringstream names(options.value("env", ""));
            replay.variables.assign(std::istream_iterator<std::string>(names), {});
            if (const std::string samples = option("samples"); !samples.empty()) replay.samples = std::stoll(samples);
            if (const std::string timeout = option("timeout"); !timeout.empty()) replay.timeout = std::stod(timeout);
            if (const std::string memory = option("memory"); !memory.empty()) replay.memory = std::stoll(memory);
            return replay;
        }
    } catch (const Json::exception& e) {
        throw std::runtime_error(fmt::format("{} is no report of attncheck: {}", path,
                                             printable_line(e.what(), kLongestMessage)));
    }
    throw std::runtime_error(
        most == 0 ? fmt::format("{} has no counterexample", path)
                  : fmt::format("{} has no counterexample @{}, allowed: @1 to @{}", path, number, most));
}

}  // namespace attncheck::properties
