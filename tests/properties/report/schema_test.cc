// Reports fit the schema file that users get.
#include <gmock/gmock.h>

#include <cmath>
#include <fstream>

#include "properties/report/json.h"
#include "properties/report/merge.h"
#include "tests/properties/case/case_line.h"
#include "tests/properties/report/schema_check.h"

namespace attncheck::properties {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

const SchemaCheck& schema() {
    static const SchemaCheck check([] {
        std::ifstream in(SCHEMA_PATH);
        return Json::parse(in);
    }());
    return check;
}

/// A report with everything that one can have.
RunReport full_report() {
    RunReport report;
    report.candidate = "kernel";
    report.library = "./libkernel.so";
    report.python_option = "python3";
    report.library_sha256 = "00";
    report.version = "0.1.0";
    report.host = "host";
    report.date = "2026-11-23T08:00:00Z";
    report.options = {{"profile", "ascend910b"}};
    report.interrupted = true;
    report.sources = {{"nsa_module", "nsa_compress", "kernel"}};
    report.pairs = {{"nsa_compress", 3, {"a + b"}}};
    report.taken["nsa_compress"] = {"dim=64", "dim 60 %", {}, {}};
    report.notes = {"a note"};
    PropertyReport one;
    one.op = "nsa_compress";
    one.property = "agreement";
    one.status = PropertyReport::Status::falsified;
    one.cases = 3;
    one.labels = {{"fp16", 3}};
    one.worst_ratio = HUGE_VAL;
    for (const double ratio : {0.0, 0.3, HUGE_VAL, std::nan("")}) one.ratios.add(ratio);
    one.rejected = one.differing = one.waived = 1;
    one.elements = {10, 1};
    one.casts = {{"p", 1, HUGE_VAL}};
    one.bounds = {{"rigorous", HUGE_VAL, 2}};
    one.note = "note";
    one.coverage = {"rows"};
    one.clauses = {2, {"a clause"}, {"another"}, true};
    one.waivers = {"reason"};
    for (const auto& [failure, tier] : {std::pair("output is wrong", Tier::bound), std::pair("crashed: SIGSEGV", Tier::crash)}) {
        Counterexample found;
        found.spec = found.original = spec_of(kPlainLine);
        found.failure = failure;
        found.tier = tier;
        one.counterexamples.push_back(found);
    }
    report.properties = {one};
    for (const auto status : {PropertyReport::Status::held, PropertyReport::Status::declined,
                              PropertyReport::Status::not_implemented, PropertyReport::Status::error,
                              PropertyReport::Status::inconclusive, PropertyReport::Status::not_applicable}) {
        PropertyReport other;
        other.op = "nsa_compress_grad";
        other.property = name_of(status);
        other.status = status;
        report.properties.push_back(other);
    }
    return report;
}

// Every field is in the schema, with its type; merged reports are reports.
TEST(Schema, FitsReports) {
    RunReport report = full_report();
    EXPECT_EQ(schema().error(Json::parse(to_json(report))), "");
    report.shards = 2;
    std::vector<std::pair<std::string, std::string>> shards;
    for (report.shard = 0; report.shard < 2; ++report.shard)
        shards.emplace_back("shard", to_json(report));
    const Json merged = Json::parse(merge_json(shards).json);
    EXPECT_EQ(schema().error(merged), "");
    EXPECT_EQ(merged.at("date"), report.date);
    EXPECT_EQ(merged["properties"][0]["worst_errors"][1], Json({{"from", RatioHistogram::lower_edge(-7)}, {"cases", 2}}));
    EXPECT_EQ(merged["properties"][0]["counterexample"]["number"], 2);
    EXPECT_EQ(merged["causes"][0]["counterexamples"], Json({1}));
}

// A report may say what stood around the candidate; shards that differ in it say so.
TEST(Schema, FitsReportsThatNameASandbox) {
    std::vector<std::pair<std::string, std::string>> shards;
    for (int shard = 0; shard < 2; ++shard) {
        RunReport one = full_report();
        one.shard = shard;
        one.shards = 2;
        Json json = Json::parse(to_json(one));
        json["sandbox"] = shard == 0 ? "walls" : "none";
        EXPECT_EQ(schema().error(json), "");
        shards.emplace_back("shard", json.dump());
    }
    EXPECT_EQ(Json::parse(merge_json({shards[0]}).json).at("sandbox"), "walls");
    EXPECT_EQ(Json::parse(merge_json(shards).json).at("sandbox"), "not the same in all shards");
}

// The check sees what does not fit.
TEST(Schema, RefusesWhatDoesNotFit) {
    const Json good = Json::parse(to_json(full_report()));
    const auto error_with = [&](const char* pointer, const Json& value) {
        Json bad = good;
        bad[Json::json_pointer(pointer)] = value;
        return schema().error(bad);
    };
    EXPECT_THAT(error_with("/seed", "1"), HasSubstr("report/seed: \"1\" is not of type"));
    EXPECT_THAT(error_with("/properties/0/worst_error_ratio", "inf"), HasSubstr("worst_error_ratio"));
    EXPECT_THAT(error_with("/properties/0/cases", -1), HasSubstr("too small"));
    EXPECT_THAT(error_with("/verdict", "good"), HasSubstr("is none of"));
    EXPECT_THAT(error_with("/properties/0/counterexample/other", 1), HasSubstr("unknown field other"));
    Json lacking = good;
    lacking.erase("date");
    EXPECT_EQ(schema().error(lacking), "");
    lacking.erase("verdict");
    EXPECT_THAT(schema().error(lacking), HasSubstr("lacks \"verdict\""));
}

}  // namespace
}  // namespace attncheck::properties
