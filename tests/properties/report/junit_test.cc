// JUnit XML, and reports beside an earlier one.
#include <gmock/gmock.h>

#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <stdexcept>

#include "properties/report/baseline.h"
#include "properties/report/json.h"
#include "properties/report/markup.h"
#include "tests/properties/report/sample_report.h"
#include "tests/properties/report/xml_check.h"

namespace attncheck::properties {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Status = PropertyReport::Status;

// JUnit: well formed, every message escaped, and the counts of its head are those of its body.
TEST(JunitReport, IsWellFormedAndCounts) {
    RunReport report = run_report(Status::falsified);
    report.host = "machine";
    report.date = "2026-11-23T08:00:00Z";
    report.properties.push_back(property_report("history", Status::error, 1));
    report.properties.back().note = "<oops> & \"so\"";
    report.properties.push_back(property_report("locality", Status::declined, 0));
    report.properties.push_back(property_report("packing", Status::inconclusive, 0));
    const std::string xml = to_junit(report);
    EXPECT_EQ(xml_error(xml), "");
    EXPECT_THAT(xml, AllOf(HasSubstr("<testsuites>"), HasSubstr("tests=\"5\""), HasSubstr("failures=\"1\""),
                           HasSubstr("errors=\"1\""), HasSubstr("skipped=\"2\"")));
    EXPECT_THAT(xml, AllOf(HasSubstr("timestamp=\"2026-11-23T08:00:00\" hostname=\"machine\""),
                           HasSubstr("<property name=\"seed\" value=\"42\"/>")));
    EXPECT_THAT(xml, AllOf(HasSubstr("name=\"agreement\""), HasSubstr("crashed: SIGSEGV"),
                           HasSubstr("a &lt; b &amp; &quot;c&quot;"), HasSubstr("seq=[16]")));
    EXPECT_THAT(xml, HasSubstr("message=\"crashed: SIGSEGV: a &lt; b &amp; &quot;c&quot;\">"));  // one line
}

// A library has one operator of twelve: the laws of the others would be hundreds of skipped cases. They are named once.
TEST(JunitReport, LeavesOutOperatorsThatAreNotThere) {
    RunReport report = run_report(Status::held);
    report.properties.push_back(property_report("agreement", Status::not_implemented, 0));
    report.properties.back().op = "attention";
    report.properties.push_back(property_report("causality", Status::not_implemented, 0));
    report.properties.back().op = "attention";
    const std::string xml = to_junit(report);
    EXPECT_EQ(xml_error(xml), "");
    EXPECT_THAT(xml, AllOf(HasSubstr("skipped=\"0\""), HasSubstr("<property name=\"not_implemented\" value=\"attention\"/>"),
                           Not(HasSubstr("causality"))));
    std::erase_if(report.properties, [](const PropertyReport& one) { return one.op != "attention"; });
    const std::string nothing = to_junit(report);  // a file without cases looks as if nothing had run
    EXPECT_EQ(xml_error(nothing), "");
    EXPECT_THAT(nothing, AllOf(HasSubstr("tests=\"1\""), HasSubstr("<skipped message=\"not implemented: attention\"/>")));
}

// Of a case that nobody shrank nothing says that it is the smallest.
TEST(JunitReport, CallsACaseSmallestThatWasShrunk) {
    RunReport report = run_report(Status::falsified);
    EXPECT_THAT(to_junit(report), HasSubstr("&#10;smallest nsa_compress{"));
    report.properties[0].counterexamples[0].certificate = kNotShrunk;
    EXPECT_THAT(to_junit(report), AllOf(HasSubstr("&#10;case     nsa_compress{"), Not(HasSubstr("smallest"))));
}

/// Elements and attributes of a report that no reader refuses: those that both schemas in use have, Apache Ant's
/// (windyroad/JUnit-Schema) and Jenkins' (jenkinsci/xunit-plugin, junit-10.xsd). Reports of all kinds were validated
/// against both with xmllint.
const std::map<std::string, std::set<std::string>>& allowed_by_readers() {
    static const std::map<std::string, std::set<std::string>> elements{
        {"testsuites", {}},
        {"testsuite", {"id", "package", "name", "timestamp", "hostname", "tests", "failures", "errors", "skipped", "time"}},
        {"properties", {}},
        {"property", {"name", "value"}},
        {"testcase", {"classname", "name", "time"}},
        {"skipped", {"message"}},
        {"failure", {"type", "message"}},
        {"error", {"type", "message"}},
        {"system-out", {}},
        {"system-err", {}}};
    return elements;
}

// Readers check reports against a schema: one attribute that it does not know, and nothing is shown.
TEST(JunitReport, HasWhatSchemasAllow) {
    RunReport report = run_report(Status::falsified);
    report.date = "2026-11-23T08:00:00Z";
    report.properties.push_back(property_report("history", Status::error, 1));
    report.properties.push_back(property_report("locality", Status::declined, 0));
    report.properties[1].waived = 7;
    const std::string xml = to_junit(report);
    const std::regex tag("<([a-z-]+)((?: [a-z]+=\"[^\"]*\")*)/?>"), attribute(" ([a-z]+)=\"([^\"]*)\"");
    std::size_t tags = 0;
    for (std::sregex_iterator at(xml.begin(), xml.end(), tag), end; at != end; ++at, ++tags) {
        const auto known = allowed_by_readers().find((*at)[1]);
        ASSERT_NE(known, allowed_by_readers().end()) << at->str();
        const std::string attributes = (*at)[2];
        for (std::sregex_iterator one(attributes.begin(), attributes.end(), attribute); one != end; ++one) {
            EXPECT_TRUE(known->second.contains((*one)[1])) << at->str();
            if ((*one)[1] == "timestamp") {
                EXPECT_TRUE(std::regex_match((*one)[2].str(), std::regex("\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d")));
            }
            if ((*one)[1] == "time") {
                EXPECT_TRUE(std::regex_match((*one)[2].str(), std::regex("\\d+\\.\\d{3}")));
            }
        }
    }
    EXPECT_GT(tags, 12u);
    EXPECT_LT(xml.find("<properties>"), xml.find("<testcase"));
    EXPECT_LT(xml.rfind("<testcase"), xml.rfind("<system-out/>"));
    EXPECT_LT(xml.rfind("<system-out/>"), xml.rfind("<system-err/>"));
}

// A reader takes one failure of a case: each further counterexample is a case, and names of shards differ.
TEST(JunitReport, HasACaseForEachCounterexample) {
    RunReport report = run_report(Status::falsified);
    report.properties[0].counterexamples.push_back(counterexample("timed out"));
    report.shard = 1;
    report.shards = 3;
    const std::string xml = to_junit(report);
    EXPECT_EQ(xml_error(xml), "");
    EXPECT_THAT(xml, AllOf(HasSubstr("name=\"agreement [shard 2/3]\""), HasSubstr("tests=\"3\""), HasSubstr("failures=\"2\""),
                           HasSubstr("name=\"agreement: timed out [shard 2/3]\"")));
}

// What is waived, and what a baseline has too, is skipped with the reason.
TEST(JunitReport, SkipsWhatIsKnown) {
    RunReport report = run_report(Status::falsified);
    report.properties[1].waived = 7;
    report.properties[1].waivers = {"known since spring"};
    EXPECT_THAT(to_junit(report), HasSubstr("<skipped message=\"waived: 7 cases; known since spring\"/>"));
    const std::string json = to_json(report);
    const std::string compared = to_junit(compared_with(json, json).json);
    EXPECT_EQ(xml_error(compared), "");
    EXPECT_THAT(compared, AllOf(HasSubstr("failures=\"0\""), HasSubstr("skipped=\"2\""),
                                HasSubstr("known: the baseline has this failure too: crashed: SIGSEGV")));
}

// Failures are new, fixed, the same, or were not judged; new ones decide about the status.
TEST(Baseline, ComparesFailures) {
    RunReport before = run_report(Status::falsified), now = before;
    before.properties[0].counterexamples = {counterexample("timed out"), counterexample("crashed: SIGSEGV")};
    before.properties.push_back(property_report("locality", Status::falsified, 5));
    before.properties.back().counterexamples = {counterexample("output changed")};
    const ComparedReport same = compared_with(to_json(now), to_json(before));
    EXPECT_EQ(same.exit_status, 0);
    const Json json = Json::parse(same.json);
    EXPECT_EQ(json.at("verdict"), "held");
    EXPECT_EQ(json.at("baseline").at("new").size(), 0u);
    EXPECT_EQ(json.at("baseline").at("same").size(), 1u);
    EXPECT_EQ(json.at("baseline").at("fixed")[0].at("failure"), "timed out");
    EXPECT_EQ(json.at("baseline").at("not_judged")[0].at("property"), "locality");
    EXPECT_THAT(same.text, HasSubstr("  1 fixed\n    nsa_compress.agreement: timed out\n"));
    const ComparedReport worse = compared_with(to_json(before), to_json(now));
    EXPECT_EQ(worse.exit_status, 1);
    EXPECT_EQ(Json::parse(worse.json).at("baseline").at("new").size(), 2u);
    RunReport by_another = now;  // the same output wrong at the same smallest case
    now.properties[0].counterexamples = {counterexample("out is wrong")};
    by_another.properties[0].property = "exact_lattice";
    by_another.properties[0].counterexamples = {counterexample("out breaks the relation")};
    EXPECT_EQ(Json::parse(compared_with(to_json(now), to_json(by_another)).json).at("baseline").at("new").size(), 0u);
    // Another law and another case with the same wrong output: known where both look like the same defect, else new.
    RunReport of_one_law = now, of_another = now;
    Counterexample one = counterexample("out is wrong"), other = counterexample("out deviates");
    other.spec.seed = 77;
    of_another.properties[0].property = "deviation";
    for (const bool look_alike : {true, false}) {
        one.message = "out: mask shifted by one key, or bias not applied, which explains 99 % of the error\nmore";
        other.message = look_alike ? "out: mask shifted by one key, which explains 98 % of the error" : "out: softcap not applied, which explains 97 % of the error";
        of_one_law.properties[0].counterexamples = {one};
        of_another.properties[0].counterexamples = {other};
        const Json against = Json::parse(compared_with(to_json(of_another), to_json(of_one_law)).json).at("baseline");
        EXPECT_EQ(against.at("new").size(), look_alike ? 0u : 1u);
    }
    // The same law and output, of another defect: both have a name, and another smallest case.
    of_another.properties[0].property = of_one_law.properties[0].property;
    for (const bool is_same_case : {true, false}) {
        other.failure = one.failure, other.spec.seed = one.spec.seed + (is_same_case ? 0 : 1);
        of_another.properties[0].counterexamples = {other};
        const ComparedReport compared = compared_with(to_json(of_another), to_json(of_one_law));
        EXPECT_EQ(Json::parse(compared.json).at("baseline").at("new").size(), is_same_case ? 0u : 1u);
    }
    now.properties[1].status = Status::inconclusive;  // nothing new, but not enough cases either
    EXPECT_EQ(compared_with(to_json(now), to_json(now)).exit_status, 3);
    for (const char* text : {"{}", "[]", "no", "{\"schema\":1}"})
        EXPECT_THROW((void)compared_with(to_json(now), text), std::runtime_error) << text;
}

// A run begins with the cases of the baseline. What happens to them says whether a failure of the same class is the same.
TEST(Baseline, GoesByTheCasesThatWereReplayed) {
    RunReport before = run_report(Status::falsified);
    Counterexample old = counterexample("out is wrong"), found = old;
    old.certified = found.certified = true;
    old.tier = found.tier = Tier::bound;
    before.properties[0].counterexamples = {old};
    RunReport now = before;
    const auto counts = [&] {
        now.properties[0].counterexamples = {found};
        const Json against = Json::parse(compared_with(to_json(now), to_json(before)).json).at("baseline");
        return std::array{against.at("new").size(), against.at("same").size(), against.at("fixed").size()};
    };
    using Counts = std::array<std::size_t, 3>;
    found.case_number = 6;
    found.spec.seed = old.spec.seed + 1;
    EXPECT_EQ(counts(), (Counts{0, 1, 0})) << "nothing was replayed: the class decides";
    now.properties[0].replayed = 1;
    EXPECT_EQ(counts(), (Counts{1, 0, 1})) << "the old case holds, another one fails";
    found.case_number = 0;
    EXPECT_EQ(counts(), (Counts{1, 0, 1})) << "it fails in a smaller form, none of which failed before";
    found.spec = old.spec;
    EXPECT_EQ(counts(), (Counts{0, 1, 0}));
    old.certified = false;
    found.spec.seed = old.spec.seed + 1;
    before.properties[0].counterexamples = {old};
    EXPECT_EQ(counts(), (Counts{0, 1, 0})) << "the baseline had no time to shrink it";
    // A large case of random data deviates by any defect: the exact case of the same output says more.
    before.properties[0].counterexamples = {old};
    before.properties.push_back(property_report("deviation", Status::falsified, 50));
    Counterexample statistical = counterexample("out deviates");
    statistical.tier = Tier::deviation;
    before.properties.back().counterexamples = {statistical};
    now = before;
    now.properties.back().replayed = now.properties[0].replayed = 1;
    found.case_number = 6;
    EXPECT_EQ(counts(), (Counts{2, 0, 2}));
    found.case_number = 0;
    found.spec = old.spec;
    EXPECT_EQ(counts(), (Counts{0, 2, 0}));
    // Whether a case fails that depends on timing or on earlier calls says nothing.
    before.properties = {before.properties[0]};
    old.certificate = std::string(kNotAlone);
    before.properties[0].counterexamples = {old};
    now = before;
    now.properties[0].replayed = 1;
    found.case_number = 6;
    EXPECT_EQ(counts(), (Counts{0, 1, 0}));
}

// The same seed and options draw the same cases: what held in the baseline and fails now is new, whatever else is wrong with the output.
TEST(Baseline, WhatHeldBeforeIsNew) {
    RunReport before = run_report(Status::falsified);
    before.options = {{"cases", "50"}};
    before.properties[0].counterexamples = {counterexample("out is wrong")};
    before.properties.push_back(property_report("packing", Status::held, 50));
    RunReport now = before;
    now.properties.back().status = Status::falsified;
    Counterexample found = counterexample("out breaks the relation");
    const auto fresh = [&] {
        now.properties.back().counterexamples = {found};
        return Json::parse(compared_with(to_json(now), to_json(before)).json).at("baseline").at("new").size();
    };
    found.case_number = 50;
    EXPECT_EQ(fresh(), 1u);
    found.case_number = 51;
    EXPECT_EQ(fresh(), 0u) << "which laws meet a defect depends on the time";
    found.case_number = 50;
    now.seed = before.seed + 1;
    EXPECT_EQ(fresh(), 0u);
}

// Neither bytes that are no UTF-8 nor control characters reach XML, which allows none of them.
TEST(JunitReport, HasNoBytesThatAreNoText) {
    RunReport report = run_report();
    report.candidate = "\xff\xfe\x7f\x1b[8m";
    // What is no UTF-8 is U+FFFD, as in the JSON.
    EXPECT_TRUE(to_junit(report).find("name=\"candidate\" value=\"\xEF\xBF\xBD\xEF\xBF\xBD??[8m\"") != std::string::npos);
    EXPECT_TRUE(to_html(report).find("<title>attncheck: \xEF\xBF\xBD\xEF\xBF\xBD??[8m</title>") != std::string::npos);
}

}  // namespace
}  // namespace attncheck::properties
