#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <stdexcept>

#include "properties/case/number_text.h"
#include "properties/case/printable.h"
#include "properties/report/baseline.h"
#include "properties/report/json.h"
#include "properties/report/json_parts.h"
#include "properties/report/markup.h"

namespace attncheck::properties {

std::string xml_escaped(const std::string& text) {
    std::string out;
    for (const char ch : printable(text)) {  // XML has no control characters, and UTF-8 only
        if (ch == '&')
            out += "&amp;";
        else if (ch == '<')
            out += "&lt;";
        else if (ch == '>')
            out += "&gt;";
        else if (ch == '"')
            out += "&quot;";
        else if (ch == '\n')
            out += "&#10;";
        else
            out += ch;
    }
    return out;
}

namespace {

/// The cases of one operator, and how many of them came to what.
class Suite {
public:
    Suite(std::string op, std::string shard, const Json& report)
        : op_(std::move(op)), shard_(std::move(shard)), report_(report) {}

    const std::string& op() const { return op_; }

    void add(Json property) {
        const std::string name = property.value("property", ""), status = property.value("status", "");
        const double seconds = property.value("seconds", 0.0);
        seconds_ += seconds;
        const std::vector<Json*> found = counterexamples_of(property);
        if (status == "falsified" && !found.empty()) {
            for (std::size_t k = 0; k < found.size(); ++k)
                add_failure(name, *found[k], k > 0, k > 0 ? 0 : seconds);
            return;
        }
        if (status == "falsified") {
            ++failures_;
            const std::string text = property.value("note", "");
            add_case(name, seconds, fmt::format("<failure type=\"falsified\" message=\"{}\"/>", xml_escaped(text)));
        } else if (status == "error") {
            ++errors_;
            add_case(name, seconds,
                     fmt::format("<error type=\"error\" message=\"{}\"/>", xml_escaped(property.value("note", ""))));
        } else if (status != "held") {
            const std::string note = property.value("note", "");
            add_skipped(name, seconds, note.empty() ? status : status + ": " + note);
        } else if (property.value("waived", 0) > 0) {
            std::string reasons;
            for (const Json& reason : property.value("waivers", Json::array()))
                reasons += "; " + reason.get<std::string>();
            add_skipped(name, seconds, "waived: " + counted(property["waived"].get<std::int64_t>(), "case") + reasons);
        } else {
            add_case(name, seconds, {});
        }
    }

    std::string text(const std::string& host, const std::string& date, const std::string& properties, int id) const {
        return fmt::format(
            "  <testsuite id=\"{}\" package=\"attncheck\" name=\"{}\" timestamp=\"{}\" hostname=\"{}\" tests=\"{}\" "
            "failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.3f}\">\n    <properties>\n{}    "
            "</properties>\n{}    <system-out/>\n    <system-err/>\n  </testsuite>\n",
            id, xml_escaped(op_), xml_escaped(date), xml_escaped(host), tests_, failures_, errors_, skipped_,
            seconds_, properties, cases_);
    }

    void add_skipped(const std::string& name, double seconds, const std::string& why) {
        ++skipped_;
        add_case(name, seconds, fmt::format("<skipped message=\"{}\"/>", xml_escaped(why)));
    }

private:
    void add_case(const std::string& name, double seconds, const std::string& inner) {
        ++tests_;
        cases_ += fmt::format("    <testcase classname=\"attncheck.{}\" name=\"{}\" time=\"{:.3f}\"", xml_escaped(op_),
                              xml_escaped(name + shard_), seconds);
        cases_ += inner.empty() ? "/>\n" : ">\n      " + inner + "\n    </testcase>\n";
    }

    /// Readers of JUnit show one failure per test case, so each failure gets a test case.
    void add_failure(const std::string& property, const Json& found, bool is_another, double seconds) {
        const std::string failure = found.value("failure", ""), message = found.value("message", "");
        const std::string name = is_another ? property + ": " + failure : property;
        if (is_in_baseline(report_, op_, property, failure))
            return add_skipped(name, seconds, "known: the baseline has this failure too: " + failure);
        ++failures_;
        const std::string line = message.substr(0, message.find('\n'));
        add_case(name, seconds,
                 fmt::format("<failure type=\"{}\" message=\"{}\">{}&#10;&#10;{:<8} {}&#10;found    {}&#10;{}&#10;replay   {}"
                             "</failure>",
                             xml_escaped(failure), xml_escaped(line), xml_escaped(message),
                             is_of_shrunk(found.value("certificate", "")) ? "smallest" : "case",
                             xml_escaped(found.value("case", "")), xml_escaped(found.value("original_case", "")),
                             xml_escaped(found.value("certificate", "")), xml_escaped(found.value("reproduce", ""))));
    }

    std::string op_, shard_;
    const Json& report_;
    std::string cases_;
    int tests_ = 0, failures_ = 0, errors_ = 0, skipped_ = 0;
    double seconds_ = 0;
};

std::string property_line(const std::string& name, const std::string& value) {
    return fmt::format("      <property name=\"{}\" value=\"{}\"/>\n", xml_escaped(name), xml_escaped(value));
}

/// " [shard 1/4]" of a part of a run: names of cases must not be the same in several files.
std::string shard_suffix(const Json& report) {
    const Json shard = report.value("shard", Json());
    if (!shard.is_object() || shard.value("of", 1) == 1) return {};
    const Json parts = shard.value("parts", Json::array());
    return parts.size() == 1 ? fmt::format(" [shard {}/{}]", parts[0].get<int>(), shard["of"].get<int>()) : "";
}

std::string junit_of(const Json& report) {
    std::vector<Suite> suites;
    const std::string shard = shard_suffix(report);
    std::set<std::string> absent;  // as hundreds of skipped cases they would hide those that mean something
    for (const Json& property : report.at("properties")) {
        const std::string op = property.value("op", "");
        if (property.value("status", "") == name_of(PropertyReport::Status::not_implemented)) {
            absent.insert(op);
            continue;
        }
        const auto at = std::ranges::find(suites, op, &Suite::op);
        (at != suites.end() ? *at : suites.emplace_back(op, shard, report)).add(property);
    }
    const std::string not_implemented = fmt::format("{}", fmt::join(absent, ", "));
    if (suites.empty() && !absent.empty())  // readers take a file without cases for a run that did not happen
        suites.emplace_back("attncheck", shard, report).add_skipped("operators", 0, "not implemented: " + not_implemented);
    const std::string candidate = report.value("candidate", "");
    std::string common = property_line("candidate", candidate) + property_line("seed", report.at("seed").dump()) +
                         property_line("version", report.value("version", ""));
    if (!absent.empty()) common += property_line("not_implemented", not_implemented);
    if (report.contains("sandbox")) common += property_line("sandbox", report.value("sandbox", ""));
    const Json hosts = report.value("hosts", Json::array());
    const std::string host = hosts.empty() ? "localhost" : hosts[0].get<std::string>();
    std::string date = report.value("date", "1970-01-01T00:00:00Z");
    if (date.ends_with('Z')) date.pop_back();  // the schema wants a time without a zone
    std::string text;
    int id = 0;
    for (const Suite& suite : suites) {
        std::string properties = common;
        const Json pairs = report.value("pairs", Json::object());
        if (pairs.contains(suite.op()))
            properties += property_line("pairs", pairs_text(pairs[suite.op()].value("reached", std::int64_t{0}),
                                                            pairs[suite.op()].value("possible", std::int64_t{0})));
        text += suite.text(host, date, properties, id++);
    }
    // Without attributes: the schema of Apache Ant allows none, that of Jenkins needs none.
    return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n" + text + "</testsuites>\n";
}

}  // namespace

std::string to_junit(const std::string& json) {
    try {
        return junit_of(parsed_report(json));
    } catch (const Json::exception& e) {
        throw std::runtime_error(std::string("is no report: ") + e.what());
    }
}

std::string to_junit(const RunReport& report) { return to_junit(to_json(report)); }

}  // namespace attncheck::properties
