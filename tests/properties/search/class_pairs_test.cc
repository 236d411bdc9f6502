// Pairs of classes: which are counted, that a generator which never makes one is found out, and
// that they survive processes, reports and merging.
#include "properties/search/class_pairs.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/properties/case/every_operator.h"
#include "tests/properties/search/pair_search.h"
#include "tests/properties/search/planted.h"
#include "properties/report/json.h"
#include "properties/report/markup.h"
#include "properties/report/merge.h"
#include "properties/report/table.h"

namespace attncheck::properties {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

PairCoverage coverage_of(const PropertyReport& report, const Operator& op = forward()) {
    return ClassPairs(op).coverage(report.pairs);
}

/// Holds always; `adapt` steers the generator.
Property steered(std::function<void(Spec&, Random&)> adapt) {
    Property property = planted_where([](const Spec&) { return false; });
    property.adapt = std::move(adapt);
    return property;
}

class PairsOfARun : public EngineTest {
protected:
    PairsOfARun() { options.cases = 4000; }
};

// Nothing met in no case; values of one field never meet.
TEST(ClassPairs, AreOfDifferentDimensions) {
    const PairCoverage nothing = ClassPairs(forward()).coverage({});
    EXPECT_GT(nothing.possible, 400);
    EXPECT_EQ(nothing.reached(), 0);
    EXPECT_THAT(nothing.missing, Contains("reversed + broadcast"));
    EXPECT_THAT(nothing.missing,
                Not(Contains(AllOf(HasSubstr("data:ints"), HasSubstr("data:normal")))));
    EXPECT_THAT(nothing.missing, Not(Contains("fp16 + bf16")));
}

// Only the pairs of that case, whatever the order of its labels.
TEST(ClassPairs, OfOneCaseAreThoseOfItsLabels) {
    const ClassPairs pairs(forward());
    PairSet reached, turned;
    pairs.note({"fp16", "no class at all", "broadcast", "many_blocks"}, reached);
    pairs.note({"many_blocks", "broadcast", "fp16"}, turned);
    EXPECT_EQ(reached, turned);
    const PairCoverage got = pairs.coverage(reached);
    EXPECT_EQ(got.reached(), 3);
    EXPECT_THAT(got.missing, Not(Contains("fp16 + broadcast")));
    EXPECT_THAT(got.missing, Not(Contains("fp16 + many_blocks")));
    EXPECT_THAT(got.missing, Not(Contains("many_blocks + broadcast")));
}

// A generator that never lays a tensor of fp16 out with stride 0 is found out, and nothing else of
// its pairs is blamed on that.
TEST_F(PairsOfARun, NameWhatTheGeneratorNeverMakes) {
    const auto honest = coverage_of(run(steered({})));
    EXPECT_THAT(honest.missing, Not(Contains("fp16 + broadcast")));
    const auto narrow = coverage_of(run(steered([](Spec& spec, Random&) {
        if (spec.number("dtype") == 0)
            std::replace(spec.layouts.begin(), spec.layouts.end(), Layout::broadcast,
                         Layout::dense);
    })));
    EXPECT_THAT(narrow.missing, Contains("fp16 + broadcast"));
    EXPECT_THAT(narrow.missing, Not(Contains("bf16 + broadcast")));
    EXPECT_EQ(narrow.possible, honest.possible);
}

// Cases with edited arguments compute nothing, and what is replayed was not generated.
TEST_F(PairsOfARun, LeaveOutEditedAndReplayedCases) {
    options.cases = 50;
    const auto edited = run(steered([](Spec& spec, Random&) { spec.edits = {"weight.absent"}; }));
    EXPECT_EQ(edited.cases, 50);
    EXPECT_EQ(coverage_of(edited).reached(), 0);
    options.replay = {spec_of(kPlainLine)};
    options.replay_only = true;
    const auto replayed = run(steered({}));
    EXPECT_EQ(replayed.replayed, 1);
    EXPECT_EQ(coverage_of(replayed).reached(), 0);
}

// Between the processes of --jobs.
TEST_F(PairsOfARun, SurviveAsText) {
    options.cases = 20;
    const PropertyReport report = run(steered({}));
    EXPECT_GT(coverage_of(report).reached(), 0);
    EXPECT_EQ(property_from_text(property_to_text(report), schemas()).pairs, report.pairs);
    for (const char* garbage : {"7", "000000000000000g", "00000000000000011"})
        EXPECT_THROW(pair_set_from(garbage), std::invalid_argument) << garbage;
}

RunReport report_with(std::vector<std::string> missing, int shard = 0, int shards = 1) {
    RunReport report;
    report.shard = shard;
    report.shards = shards;
    report.candidate = "c";
    report.seed = 1;
    report.pairs = {{"nsa_compress", 5, std::move(missing)}};
    return report;
}

TEST(MergedPairs, AreMissingWhereNoShardReachedThem) {
    const std::string left = to_json(report_with({"a + b", "a + c"}, 0, 2)),
                      right = to_json(report_with({"a + c", "b + c"}, 1, 2));
    const MergedReport merged = merge_json({{"l.json", left}, {"r.json", right}});
    EXPECT_EQ(nlohmann::json::parse(merged.json).at("pairs"),
              nlohmann::json({{"nsa_compress",
                     {{"reached", 4}, {"possible", 5}, {"missing", nlohmann::json::array({"a + c"})}}}}));
    EXPECT_EQ(merge_json({{"again.json", merged.json}}).json, merged.json);
    const MergedReport alone = merge_json({{"l.json", left}});
    EXPECT_EQ(nlohmann::json::parse(alone.json), nlohmann::json::parse(left));
}

TEST(MergedPairs, AreRefusedWhenTheyAreNotWhatTheyShouldBe) {
    for (const char* damaged :
         {"7", "{\"o\":7}", "{\"o\":{\"possible\":3}}", "{\"o\":{\"possible\":-1,\"missing\":[]}}",
          "{\"o\":{\"possible\":3,\"missing\":[7]}}", "{\"o\":{\"possible\":3,\"missing\":{}}}",
          "{\"o\":{\"possible\":0,\"missing\":[\"a + b\"]}}"}) {
        nlohmann::json report = nlohmann::json::parse(to_json(report_with({})));
        report["pairs"] = nlohmann::json::parse(damaged);
        EXPECT_THROW(merge_json({{"a.json", report.dump()}}), std::runtime_error) << damaged;
    }
}

TEST(PairsInReports, AreALineEach) {
    RunReport report = report_with({"a + <b>"});
    PropertyReport& one = report.properties.emplace_back();  // JUnit has a suite for each operator
    one.op = "nsa_compress";
    one.property = "memory";
    EXPECT_TRUE(to_html(report).find("\"missing\":[\"a + \\u003cb>\"]") != std::string::npos);  // no markup of its own
    EXPECT_THAT(to_junit(report),
                HasSubstr("<property name=\"pairs\" value=\"pairs 4 of 5\"/>"));
    std::ostringstream table;
    print_table(table, report, true);
    EXPECT_THAT(table.str(), HasSubstr("nsa_compress                pairs 4 of 5\n"));
    std::ostringstream without;
    print_table(without, RunReport{}, true);
    EXPECT_THAT(without.str(), Not(HasSubstr("pairs")));
}

// ---- the generators ----

class GeneratedPairs : public OperatorTest {};

INSTANTIATE_TEST_SUITE_P(Operators, GeneratedPairs, testing::ValuesIn(every_operator()),
                         named_after_it);

// As many cases as a default run draws have nearly all possible pairs, and none that is said to be
// impossible.
TEST_P(GeneratedPairs, AreNearlyAllOfThose) {
    constexpr std::uint64_t kCases = 100;
    constexpr double kLeast = 0.96;
    const ClassPairs pairs(op());
    PairSet reached;
    std::uint64_t number = 0;
    for (const Property& property : op().properties())
        for (std::uint64_t k = 0; k < kCases; ++k)
            if (const auto spec = drawn_case(op(), property, number++); spec && spec->edits.empty())
                pairs.note(op().labels(*spec), reached);
    const PairCoverage got = pairs.coverage(reached);
    EXPECT_GE(static_cast<double>(got.reached()), kLeast * static_cast<double>(got.possible))
        << pairs_text(got.reached(), got.possible) << "\n"
        << testing::PrintToString(got.missing);
    std::cout << pairs_text(got.reached(), got.possible) << "\n";
    for (std::size_t a = 0; a < pairs.classes().size(); ++a)
        for (std::size_t b = 0; b < a; ++b)
            EXPECT_FALSE(pairs.excluded(pairs.pair(a, b)) && reached.has(pairs.pair(a, b)))
                << pairs.classes()[b] << " + " << pairs.classes()[a];
}

}  // namespace
}  // namespace attncheck::properties
