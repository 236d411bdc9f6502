// Reports for programs: the documented JSON, merging shards, exit status and files.
#include "properties/operators/catalogue.h"
#include "properties/report/json.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "properties/report/conclusion.h"
#include "properties/report/files.h"
#include "properties/report/merge.h"
#include "properties/report/table.h"
#include "tests/properties/report/sample_report.h"

namespace attncheck::properties {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using Json = nlohmann::json;
using Status = PropertyReport::Status;

MergedReport merged(const std::vector<RunReport>& reports, const std::string& path = {}) {
    std::vector<std::pair<std::string, std::string>> texts;
    for (RunReport report : reports) {
        report.shard = static_cast<int>(texts.size());
        report.shards = static_cast<int>(reports.size());
        texts.emplace_back(fmt::format("shard{}.json", texts.size()), to_json(report));
    }
    return merge_json(texts, path);
}

// Every field of the documentation is there, with its type.
TEST(JsonReport, HasTheDocumentedFields) {
    const Json json = Json::parse(to_json(run_report(Status::falsified)));
    EXPECT_EQ(json.at("schema"), 1);
    EXPECT_EQ(json.at("candidate"), "vendor <kernel> & \"co\"");
    EXPECT_EQ(json.at("seed"), 42);
    EXPECT_EQ(json.at("duration_s"), 1.5);
    ASSERT_EQ(json.at("properties").size(), 2u);
    const Json& property = json["properties"][0];
    EXPECT_EQ(property.at("op"), "nsa_compress");
    EXPECT_EQ(property.at("property"), "agreement");
    EXPECT_EQ(property.at("status"), "falsified");
    EXPECT_EQ(property.at("cases"), 10);
    EXPECT_EQ(property.at("declined"), 3);
    EXPECT_EQ(property.at("labels"), Json({{"fp16", 10}}));
    EXPECT_EQ(property.at("worst_error_ratio"), 0.5);
    const Json& found = property.at("counterexample");
    EXPECT_EQ(found.at("case"), kPlainLine);
    EXPECT_THAT(found.at("original_case").get<std::string>(), HasSubstr("seq=[99]"));
    EXPECT_EQ(found.at("shrinks"), 4);
    EXPECT_THAT(found.at("message").get<std::string>(), HasSubstr("a < b"));
    EXPECT_THAT(found.at("reproduce").get<std::string>(),
                AllOf(StartsWith("attncheck reproduce '" + std::string(kPlainLine) + "'"),
                      HasSubstr("--property agreement"), HasSubstr("'./it'\\''s.so'")));
    EXPECT_FALSE(json["properties"][1].contains("counterexample"));
}

// Each status has its documented word.
TEST(JsonReport, NamesEveryStatus) {
    const std::pair<Status, const char*> names[] = {{Status::held, "held"},
                                                    {Status::falsified, "falsified"},
                                                    {Status::declined, "declined"},
                                                    {Status::not_implemented, "not_implemented"},
                                                    {Status::error, "error"},
                                                    {Status::not_applicable, "not_applicable"}};
    for (const auto& [status, name] : names)
        EXPECT_EQ(Json::parse(to_json(run_report(status)))["properties"][0]["status"], name);
}

// Bytes that are no UTF-8, in a candidate's name for instance, do not spoil the file.
TEST(JsonReport, SurvivesBytesThatAreNoText) {
    RunReport report = run_report();
    report.candidate = "\xff\xfe";
    EXPECT_NO_THROW(Json::parse(to_json(report)));
}

// Shards of one run: counts and times add up, the rest is taken from the worst.
TEST(Merge, AddsCountsAndKeepsTheWorst) {
    RunReport left = run_report(Status::held), right = run_report(Status::falsified);
    right.properties[0].worst_ratio = HUGE_VAL;
    right.properties[0].labels["bf16"] = 2;
    const MergedReport whole = merged({left, right});
    const Json json = Json::parse(whole.json);
    EXPECT_EQ(json.at("duration_s"), 3.0);
    EXPECT_EQ(json.at("candidate"), left.candidate);
    const Json& property = json["properties"][0];
    EXPECT_EQ(property.at("cases"), 20);
    EXPECT_EQ(property.at("declined"), 6);
    EXPECT_EQ(property.at("labels"), Json({{"fp16", 20}, {"bf16", 2}}));
    EXPECT_EQ(property.at("status"), "falsified");
    EXPECT_TRUE(property.at("worst_error_ratio").is_null());  // no finite number
    EXPECT_EQ(property.at("counterexample").at("case"), kPlainLine);
    EXPECT_EQ(whole.exit_status, 1);
    EXPECT_EQ(Json::parse(merged({right, left}).json)["properties"], json["properties"]);
}

// Evidence against other bounds: the worst of all shards, and what is said of the declaration.
TEST(Merge, KeepsTheWorstOfOtherBounds) {
    RunReport left = run_report(), right = run_report();
    left.precision = right.precision = "acc=fp32 p=half ds=half exp=400";
    left.properties[0].bounds = {{"exp", 3, 4}, {"probabilistic", 0.5, 4}, {"rigorous", 0.25, 4}};
    right.properties[0].bounds = {{"exp", 6, 2}, {"probabilistic", 0.4, 2}, {"rigorous", 0.3, 2}};
    EXPECT_EQ(property_from_text(property_to_text(left.properties[0]), schemas()).bounds.size(), 3u);
    const Json json = Json::parse(merged({left, right}).json);
    EXPECT_EQ(json["properties"][0]["bounds"]["exp"], Json({{"worst", 6}, {"cases", 6}}));
    EXPECT_EQ(json["properties"][0]["bounds"]["rigorous"]["worst"], 0.3);
    EXPECT_EQ(json["precision"]["wider_than_seen"],
              "declared exp=400, errors look like exp <= 6 (6 cases)");
}

// The end of a merge names the causes, and leaves out what the library does not have.
TEST(Merge, NamesTheCauses) {
    RunReport left = run_report(), right = run_report(Status::falsified);
    right.properties.push_back(property_report("packing", Status::not_implemented, 0));
    const std::string table = merged({left, right}).table;
    EXPECT_THAT(table, AllOf(HasSubstr("@1 nsa_compress.agreement: crashed: SIGSEGV\n"), HasSubstr(kPlainLine),
                             Not(HasSubstr("packing"))));
}

// "@1" alone is of the last run: a replay line names the merged report, or has the whole case.
TEST(Merge, ReplaysWhatWasMerged) {
    const RunReport left = run_report(), right = run_report(Status::falsified);
    EXPECT_THAT(merged({left, right}, "all.json").table, HasSubstr("  replay      attncheck reproduce @1 --report all.json\n"));
    EXPECT_THAT(merged({left, right}, "it's all.json").table, HasSubstr(" --report 'it'\\''s all.json'\n"));
    EXPECT_THAT(merged({left, right}).table,
                HasSubstr("  replay      attncheck reproduce '" + std::string(kPlainLine) + "' --property agreement"));
}

// Words that a declaration could do without: a kernel with wrong values may need them once they are right.
TEST(JsonReport, AdvisesNoNarrowerClassWhereValuesAreWrong) {
    const std::string text = "declared split=lse, errors stay within the bounds without it (30 cases)";
    RunReport died = run_report(Status::falsified);
    died.precision = "acc=fp32 p=half ds=half split=lse";
    died.properties[1].bounds = {{"split=lse", 0.5, 30}};
    died.properties[0].counterexamples[0].tier = Tier::crash;
    RunReport wrong = died, held = died;
    wrong.properties[0].counterexamples[0].tier = Tier::bound;
    held.properties[0] = run_report().properties[0];
    const auto shown = [](const RunReport& report) {
        std::ostringstream out;
        print_table(out, report, false);
        return out.str();
    };
    EXPECT_EQ(Json::parse(to_json(died))["precision"]["wider_than_seen"], text);
    EXPECT_THAT(shown(died), HasSubstr(text));
    EXPECT_EQ(Json::parse(to_json(wrong))["precision"]["wider_than_seen"], "");
    EXPECT_THAT(shown(wrong), Not(HasSubstr("without it")));
    const MergedReport with_a_death = merged({held, died}), with_wrong_values = merged({held, wrong});
    EXPECT_THAT(with_a_death.table, HasSubstr("errors stay within the bounds without it (60 cases)"));
    EXPECT_EQ(Json::parse(with_wrong_values.json)["precision"]["wider_than_seen"], "");
    EXPECT_THAT(with_wrong_values.table, Not(HasSubstr("without it")));
}

// A case that held when it was run once more has the message that it was found with.
TEST(JsonReport, HasTheMessageAsFound) {
    RunReport report = run_report(Status::falsified);
    Counterexample& found = report.properties[0].counterexamples[0];
    found.message.clear();
    found.found_message = "killed by a signal";
    EXPECT_EQ(Json::parse(to_json(report))["properties"][0]["counterexample"]["message"],
              "crashed: SIGSEGV: killed by a signal");
}

// A merged report is a report again.
TEST(Merge, OfOneReportChangesNothing) {
    const RunReport report = run_report(Status::falsified);
    const MergedReport once = merged({report});
    EXPECT_EQ(merge_json({{"again.json", once.json}}).json, once.json);
    EXPECT_EQ(Json::parse(once.json), Json::parse(to_json(report)));
}

// The first counterexample of each class is kept, whichever shard found it.
TEST(Merge, KeepsOneCounterexamplePerClass) {
    RunReport left = run_report(Status::falsified), right = run_report(Status::falsified);
    right.properties[0].counterexamples = {counterexample("crashed: SIGSEGV"),
                                           counterexample("timed out")};
    right.properties[0].counterexamples[0].steps_taken = 99;
    const Json json = Json::parse(merged({left, right}).json)["properties"][0];
    EXPECT_EQ(json.at("counterexample").at("shrinks"), 4);
    ASSERT_EQ(json.at("more_counterexamples").size(), 1u);
    EXPECT_EQ(json["more_counterexamples"][0].at("failure"), "timed out");
}

// From nothing done to falsified, the weightier status wins.
TEST(Merge, RanksTheStatuses) {
    const Status ascending[] = {Status::not_implemented, Status::not_applicable, Status::declined, Status::held,
                                Status::error, Status::falsified};
    for (std::size_t low = 0; low < std::size(ascending); ++low)
        for (std::size_t high = low; high < std::size(ascending); ++high) {
            const auto whole = merged({run_report(ascending[low]), run_report(ascending[high])});
            const auto turned = merged({run_report(ascending[high]), run_report(ascending[low])});
            for (const MergedReport& one : {whole, turned})
                EXPECT_EQ(Json::parse(one.json)["properties"][0]["status"],
                          name_of(ascending[high]));
        }
}

/// A report with one property, one field of which is replaced by `text`.
std::string with_field(const char* field, const char* text) {
    Json report = Json::parse(to_json(run_report()));
    report["properties"][0][field] = Json::parse(text);
    return report.dump();
}

std::string refusal(const std::vector<std::pair<std::string, std::string>>& texts) {
    try {
        merge_json(texts);
        return "merged";
    } catch (const std::runtime_error& e) {
        return e.what();
    }
}

// What does not belong together is refused, with the file's name.
TEST(Merge, RefusesWhatDoesNotFit) {
    const std::string good = to_json(run_report());
    RunReport other_seed = run_report(), other_candidate = run_report();
    other_seed.seed = 43;
    other_candidate.candidate = "another";
    EXPECT_THAT(refusal({{"a.json", good}, {"b.json", to_json(other_seed)}}),
                AllOf(StartsWith("b.json"), HasSubstr("seed")));
    EXPECT_THAT(refusal({{"a.json", good}, {"b.json", to_json(other_candidate)}}),
                AllOf(StartsWith("b.json"), HasSubstr("candidate")));
    for (const char* garbage :
         {"", "{", "[]", "null", "7", "{\"schema\":2,\"properties\":[]}", "{\"schema\":1}",
          "{\"schema\":1,\"properties\":{}}", "{\"schema\":1,\"properties\":[]}",
          "{\"schema\":1,\"candidate\":\"x\",\"seed\":1,\"duration_s\":1,\"properties\":[7]}",
          "{\"schema\":1,\"candidate\":\"x\",\"seed\":1,\"duration_s\":1,\"properties\":[{}]}"})
        EXPECT_THAT(refusal({{"a.json", garbage}}), StartsWith("a.json")) << garbage;
}

/// Shard `part` of `shards` as JSON text, after a change.
std::string shard_text(int part, int shards, const std::function<void(RunReport&)>& change = {}) {
    RunReport report = run_report();
    report.shard = part - 1;
    report.shards = shards;
    report.version = "1.0";
    report.host = fmt::format("host{}", part);
    report.library_sha256 = "abc";
    report.options = {{"cases", "10"}, {"rule", ""}};
    if (change) change(report);
    return to_json(report);
}

// A shard counts once, in a run with the same options, of the same library and suite.
TEST(Merge, RefusesShardsThatDoNotFit) {
    const std::string first = shard_text(1, 2);
    EXPECT_EQ(refusal({{"a.json", first}, {"b.json", shard_text(2, 2)}}), "merged");
    EXPECT_THAT(refusal({{"a.json", first}, {"b.json", first}}),
                AllOf(StartsWith("b.json"), HasSubstr("has shard 1, which")));
    EXPECT_THAT(refusal({{"a.json", first}, {"b.json", shard_text(2, 3)}}),
                AllOf(StartsWith("b.json"), HasSubstr("a run with 3 shards")));
    const std::pair<std::function<void(RunReport&)>, const char*> changes[] = {
        {[](RunReport& report) { report.options[0].second = "20"; }, "value of cases"},
        {[](RunReport& report) { report.options.pop_back(); }, "value of rule"},
        {[](RunReport& report) { report.library_sha256 = "def"; }, "another library than"},
        {[](RunReport& report) { report.version = "2.0"; }, "version"}};
    for (const auto& [change, named] : changes)
        EXPECT_THAT(refusal({{"a.json", first}, {"b.json", shard_text(2, 2, change)}}),
                    AllOf(StartsWith("b.json"), HasSubstr(named)));
    for (const char* shard : {"7", "{}", R"({"parts":[1],"of":0})", R"({"parts":[3],"of":2})",
                              R"({"parts":[1.5],"of":2})", R"({"parts":1,"of":2})"}) {
        Json report = Json::parse(first);
        report["shard"] = Json::parse(shard);
        EXPECT_THAT(refusal({{"a.json", report.dump()}}), StartsWith("a.json")) << shard;
    }
}

// What is missing is said; parts of a merge may be merged first.
TEST(Merge, NamesMissingShards) {
    const MergedReport some =
        merge_json({{"c", shard_text(3, 4)}, {"a", shard_text(1, 4)}});
    EXPECT_THAT(some.missing_shards, testing::ElementsAre(2, 4));
    EXPECT_EQ(some.shards, 4);
    const MergedReport whole = merge_json(
        {{"some", some.json}, {"b", shard_text(2, 4)}, {"d", shard_text(4, 4)}});
    EXPECT_THAT(whole.missing_shards, testing::IsEmpty());
    const Json json = Json::parse(whole.json);
    EXPECT_EQ(json.at("hosts"), Json({"host1", "host2", "host3", "host4"}));
    EXPECT_EQ(json.at("options").at("cases"), 10);
    EXPECT_EQ(json.at("library_sha256"), "abc");
    EXPECT_THAT(refusal({{"whole", whole.json}, {"b", shard_text(2, 4)}}), HasSubstr("shard 2"));
}

// A clause that one shard had no call for may have decided one of another: the verdict is over the
// union, in whatever order the reports come.
TEST(Merge, JudgesTheClausesOfAllShards) {
    const auto shard_with = [](int part, const std::vector<std::string>& missing,
                               const std::vector<std::string>& outside) {
        return shard_text(part, 3, [&](RunReport& report) {
            PropertyReport validation = property_report("validation", Status::held, 60);
            validation.declined = 0;
            validation.clauses = {4 - static_cast<std::int64_t>(outside.size()), missing, outside, true};
            PropertyReport clauses = property_report("required_clauses", Status::declined, 0);
            clauses.declined = 0;
            clauses.note = "not judged";
            report.properties = {validation, clauses};
        });
    };
    std::vector<std::pair<std::string, std::string>> shards{{"a", shard_with(1, {"x"}, {"z", "w"})},
                                                            {"b", shard_with(2, {"y"}, {"x", "w"})},
                                                            {"c", shard_with(3, {}, {"x", "w"})}};
    do {
        const MergedReport whole = merge_json(shards);
        const Json json = Json::parse(whole.json);
        EXPECT_EQ(whole.exit_status, 4) << "x is decided by no shard";
        EXPECT_EQ(json["properties"][1]["status"], "error");
        EXPECT_EQ(json["properties"][1]["note"], "1 of 3 clauses of the contract decided no call: x");
        EXPECT_EQ(json["properties"][0]["clauses"],
                  Json({{"reached", 2}, {"possible", 3}, {"missing", {"x"}}, {"outside", {"w"}}, {"through", true}}));
    } while (std::next_permutation(shards.begin(), shards.end()));
    shards[2].second = shard_with(3, {}, {"z", "w"});  // decided x
    do {
        const MergedReport whole = merge_json(shards);
        EXPECT_EQ(whole.exit_status, 0);
        EXPECT_EQ(Json::parse(whole.json)["properties"][1]["status"], "held");
        EXPECT_EQ(Json::parse(whole.json)["properties"][1].value("note", ""), "");
        const MergedReport some = merge_json({shards[0], shards[1]});
        EXPECT_EQ(Json::parse(some.json)["properties"][1]["status"], "declined");
        const MergedReport later = merge_json({{"some", some.json}, shards[2]});
        EXPECT_EQ(Json::parse(later.json)["properties"][1]["status"], "held");
    } while (std::next_permutation(shards.begin(), shards.end()));
    Json other = Json::parse(shards[0].second);
    other["properties"][0]["clauses"]["possible"] = 9;
    shards[0].second = other.dump();
    EXPECT_THAT(refusal(shards), HasSubstr("clauses of an operator"));
    other["properties"][0]["clauses"]["possible"] = -1;
    EXPECT_THAT(refusal({{"a", other.dump()}}), HasSubstr("clauses missing of -1"));
}

// A merge is as good as its worst shard.
TEST(Merge, HasTheExitStatusOfAllShards) {
    const auto status_of = [](const std::function<void(RunReport&)>& change) {
        const MergedReport whole =
            merge_json({{"a", shard_text(1, 2)}, {"b", shard_text(2, 2, change)}});
        EXPECT_EQ(Json::parse(whole.json).at("exit_status"), whole.exit_status);
        return whole.exit_status;
    };
    EXPECT_EQ(status_of({}), 0);
    EXPECT_EQ(status_of([](RunReport& report) { report.interrupted = true; }), 130);
    EXPECT_EQ(status_of([](RunReport& report) { report.properties[0].status = Status::error; }), 4);
}

// Found by fuzzing: fields of a wrong type ended the program, counts that do not fit overflowed.
TEST(Merge, RefusesFieldsThatAreNotWhatTheyShouldBe) {
    const std::pair<const char*, const char*> damaged[] = {{"op", "null"},
                                                           {"property", "7"},
                                                           {"status", "null"},
                                                           {"status", "\"fine\""},
                                                           {"cases", "-1"},
                                                           {"cases", "1.5"},
                                                           {"cases", "9223372036854775808"},
                                                           {"declined", "\"no\""},
                                                           {"labels", "[]"},
                                                           {"labels", "{\"ragged\":-1}"},
                                                           {"note", "[]"},
                                                           {"counterexample", "[7]"},
                                                           {"counterexample", "{\"case\":7}"},
                                                           {"counterexample", "{\"tier\":7}"},
                                                           {"worst_errors", "7"},
                                                           {"worst_errors", "[{\"from\":\"1\",\"cases\":1}]"},
                                                           {"rejected", "-1"},
                                                           {"more_counterexamples", "{}"}};
    for (const auto& [field, text] : damaged)
        EXPECT_THAT(refusal({{"a.json", with_field(field, text)}}), StartsWith("a.json"))
            << field << " " << text;
    const std::string most = with_field("cases", "9223372036854775807");
    Json left = Json::parse(most), right = left;
    left["shard"]["of"] = right["shard"]["of"] = 2;
    right["shard"]["parts"] = {2};
    EXPECT_THAT(refusal({{"a.json", left.dump()}, {"b.json", right.dump()}}),
                AllOf(StartsWith("b.json"), HasSubstr("counts more than")));
    EXPECT_EQ(refusal({{"a.json", most}}), "merged");
}

// A file that no run wrote is refused in a line, not by a crash or a message of its size.
TEST(Merge, RefusesDeepAndLongTexts) {
    Json report = Json::parse(to_json(run_report()));
    std::string deep = report.dump();
    deep.insert(1, "\"x\":" + std::string(100'000, '[') + std::string(100'000, ']') + ",");
    EXPECT_THAT(refusal({{"a.json", deep}}), AllOf(StartsWith("a.json"), HasSubstr("nests")));
    Json wide = report;
    for (int k = 0; k < 10'000; ++k) wide["properties"][0]["labels"]["label" + std::to_string(k)] = 1;
    EXPECT_THAT(refusal({{"a.json", wide.dump()}}), HasSubstr("more than 2000 fields"));
    EXPECT_THAT(refusal({{"a.json", std::string(65 << 20, ' ')}}), HasSubstr("bytes, allowed"));
    report["properties"][0]["cases"] = std::string(1'000'000, '9');
    EXPECT_LT(refusal({{"a.json", report.dump()}}).size(), 500u);
}

// Found by fuzzing: a seed beyond 64 bits was converted although it does not fit. Others that are
// no seeds had passed as some whole number.
TEST(Merge, RefusesSeedsThatAreNone) {
    for (const char* seed : {"-1", "1.5", "18446744073709551615.75", "18446744073709551616",
                             "604800072942409884607", "\"7\"", "null"}) {
        Json report = Json::parse(to_json(run_report()));
        report["seed"] = Json::parse(seed);
        EXPECT_THAT(refusal({{"a.json", report.dump()}}),
                    AllOf(StartsWith("a.json"), HasSubstr("seed"),
                          HasSubstr("whole numbers from 0 to 2^64 - 1")))
            << seed;
    }
    Json report = Json::parse(to_json(run_report()));
    report["seed"] = UINT64_MAX;
    EXPECT_EQ(refusal({{"a.json", report.dump()}}), "merged");
}

// 1 beats 130 beats 4 beats 3 beats 0; a run that checks nothing is no success, and a failure of the
// suite is no verdict on the library.
TEST(ExitStatus, IsTheDocumentedOne) {
    EXPECT_EQ(exit_status(run_report(Status::held)), 0);
    EXPECT_EQ(exit_status(run_report(Status::declined)), 0);
    EXPECT_EQ(exit_status(run_report(Status::falsified)), 1);
    EXPECT_EQ(exit_status(run_report(Status::error)), 4);
    RunReport both = run_report(Status::error);
    both.properties[1].status = Status::falsified;
    EXPECT_EQ(exit_status(both), 1);
    both.interrupted = true;
    EXPECT_EQ(exit_status(both), 1);
    both.properties[1].status = Status::held;
    EXPECT_EQ(exit_status(both), 130);
    RunReport nothing;
    EXPECT_EQ(exit_status(nothing), 3);
    nothing.properties = {property_report("agreement", Status::declined, 0),
                          property_report("memory", Status::not_implemented, 0)};
    EXPECT_EQ(exit_status(nothing), 3);
}

// 30 s for 10 cases of the 30 that are needed: 60 s are lacking.
TEST(SufficientTime, IsSaidWhereOnlyTimeIsLacking) {
    RunReport report = run_report(Status::inconclusive);
    report.duration_s = 60;
    for (PropertyReport& one : report.properties) one.seconds = 30, one.drawn.needed = 30;
    report.properties[1].cases = 40;
    report.properties.push_back(property_report("memory", Status::not_implemented, 0));
    EXPECT_EQ(sufficient_time(report), 120);
    std::ostringstream out;
    print_table(out, report, false);
    EXPECT_THAT(out.str(), HasSubstr("1 of 2 properties met too few cases; --time 120 is about enough\n"));
    RunReport several = report;
    several.properties[1].op = "nsa_compress_grad";
    std::ostringstream of_several;
    print_table(of_several, several, false);
    EXPECT_THAT(of_several.str(), HasSubstr("--time 120 is about enough, --op checks less\n"));

    // A law that never ran takes what a case takes in the mean: 60 s / 50, 30 times.
    several.properties.push_back(property_report("deviation", Status::inconclusive, 0));
    several.properties.back().drawn.needed = 30, several.properties.back().declined = 0;
    EXPECT_EQ(sufficient_time(several), 180);

    report.properties[0].declined = 25;
    EXPECT_EQ(sufficient_time(report), 120);
    report.properties[0].declined = 41;
    EXPECT_EQ(sufficient_time(report), 0) << "hardly one is taken";
    report.properties[0].declined = 0;
    report.properties[0].cases = 30;
    EXPECT_EQ(sufficient_time(report), 0) << "inconclusive for another reason";
}

class FilesTest : public testing::Test {
protected:
    FilesTest() { std::filesystem::create_directories(folder); }
    ~FilesTest() override { std::filesystem::remove_all(folder); }
    std::ptrdiff_t entries() const {
        return std::distance(std::filesystem::directory_iterator(folder), {});
    }
    const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) /
                                         ("attncheck_report_" + std::to_string(getpid()));
};

// A file is there as a whole, replaces its predecessor, and has no companions.
TEST_F(FilesTest, AreWrittenAsAWhole) {
    const std::string path = folder / "report.json";
    check_writable(path);
    EXPECT_EQ(entries(), 0);
    write_file(path, "longer text");
    write_file(path, "text");
    std::ifstream in(path);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), "text");
    EXPECT_EQ(entries(), 1);
}

// A place that cannot be written to is named, and left as it was.
TEST_F(FilesTest, ThatCannotBeWrittenLeaveNothingBehind) {
    std::filesystem::create_directories(folder / "directory" / "inside");
    for (const char* name : {"missing/report.json", "directory"}) {
        const std::string path = folder / name;
        try {
            write_file(path, "text");
            ADD_FAILURE() << path << " was written";
        } catch (const std::runtime_error& e) {
            EXPECT_THAT(e.what(), StartsWith("cannot write " + path + ": "));
        }
        EXPECT_EQ(entries(), 1);
        EXPECT_THROW(check_writable(path), std::runtime_error) << path;
        EXPECT_EQ(entries(), 1);
    }
}

// Cases without an element, of a kernel that takes empty sequences alone, say nothing; other tolerances count no elements.
TEST(Conclusion, AgreementThatComparesNothingIsNoVerdict) {
    const auto concluded = [](const char* property, std::int64_t compared, bool counts_elements) {
        PropertyReport report;
        report.property = property;
        report.cases = 40;
        report.elements.compared = compared;
        conclude(report, 30, 0.5, counts_elements);
        return report.status;
    };
    EXPECT_EQ(concluded("agreement", 0, true), PropertyReport::Status::inconclusive);
    EXPECT_EQ(concluded("agreement", 1, true), PropertyReport::Status::held);
    EXPECT_EQ(concluded("agreement", 0, false), PropertyReport::Status::held);
    EXPECT_EQ(concluded("memory", 0, true), PropertyReport::Status::held);
}

}  // namespace
}  // namespace attncheck::properties
