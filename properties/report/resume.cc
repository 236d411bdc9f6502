#include "properties/report/resume.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <stdexcept>

#include "properties/case/printable.h"
#include "properties/report/json.h"
#include "properties/report/json_parts.h"

namespace attncheck::properties {
namespace {


std::string shard_text(const Json& shard) {
    return fmt::format("{}/{}", shard.at("parts").at(0).get<int>(), shard.at("of").get<int>());
}

void check_equal(const std::string& what, const std::string& before, const std::string& now) {
    if (before != now)
        throw std::runtime_error(fmt::format("was run with {} '{}', this run has '{}'", what,
                                             printable_line(before, kLongestMessage),
                                             printable_line(now, kLongestMessage)));
}

}  // namespace

bool is_finished(const PropertyReport& property) {
    using Status = PropertyReport::Status;
    return !property.interrupted &&
           (property.status == Status::held || property.status == Status::falsified ||
            property.status == Status::declined);
}

bool is_begun(const PropertyReport& property) {
    using Status = PropertyReport::Status;
    return property.interrupted && !property.journal.text.empty() && property.status != Status::error &&
           property.status != Status::not_applicable;
}

InterruptedRun interrupted_run_from(const std::string& text,
                                    const std::vector<const Schema*>& known) {
    InterruptedRun run;
    try {
        const Json report = parsed_report(text);
        if (!report.is_object() || report.value("schema", Json()) != 1)
            throw std::runtime_error("is not an attncheck report of schema 1");
        run.is_over = !report.at("interrupted").get<bool>();
        run.exit_status = report.at("exit_status");
        run.version = report.at("version");
        run.library_sha256 = report.at("library_sha256");
        run.seed = report.at("seed");
        run.shard = shard_text(report.at("shard"));
        run.duration_s = report.at("duration_s");
        for (const auto& [name, value] : report.at("options").items())
            run.options.emplace_back(name, option_text(name, value));
        if (run.is_over) return run;
        for (const Json& one : report.at("finished"))
            run.finished.push_back(property_from_text(one.dump(), known));
        for (const Json& one : report.value("begun", Json::array()))
            run.begun.push_back(property_from_text(one.dump(), known));
    } catch (const Json::parse_error&) {
        throw std::runtime_error("is not JSON");
    } catch (const Json::exception&) {  // its text speaks of the program, not of the file
        throw std::runtime_error("is no report that a run can go on with: a part of it is missing or was changed");
    } catch (const std::invalid_argument& e) {  // a case line
        throw std::runtime_error(printable_line(e.what(), kLongestMessage));
    }
    return run;
}

void check_same_run(const InterruptedRun& before, const RunReport& now) {
    check_equal("version", before.version, now.version);
    check_equal("a library of SHA-256", before.library_sha256, now.library_sha256);
    check_equal("the seed", std::to_string(before.seed), std::to_string(now.seed));
    check_equal("shard", before.shard, fmt::format("{}/{}", now.shard + 1, now.shards));
    const std::map<std::string, std::string> options(now.options.begin(), now.options.end());
    check_equal("as many options as", std::to_string(before.options.size()),
                std::to_string(options.size()));
    for (const auto& [name, value] : before.options) {
        const auto same = options.find(name);
        const auto shown = [](const std::string& of) { return of == "-1" ? std::string("none") : of; };
        check_equal("the option " + name, shown(value), same == options.end() ? "none" : shown(same->second));
    }
}

}  // namespace attncheck::properties
