// Whole runs: their cases, their time, and what they show before they end.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "tests/properties/cli/command_fixture.h"

namespace attncheck::properties {
namespace {

using testing::AnyOf;
using testing::Eq;
using testing::HasSubstr;

class RunTest : public CommandTest {
protected:
    Ran verify(const std::string& arguments, const std::string& mutant = "") const {
        return run_line("XDG_CACHE_HOME=" + quoted(file("cache")) + " ATTNCHECK_MUTANT=" + mutant + " " +
                        quoted(COMMAND_PATH) + " verify --seed 3 " + arguments + " --json " + file("out.json") +
                        " 2>&1");
    }
    /// The properties of the last run, without their times.
    nlohmann::json properties() const {
        nlohmann::json all = nlohmann::json::parse(text_of("out.json")).at("properties");
        for (nlohmann::json& one : all) one.erase("seconds");
        return all;
    }
    /// The failures that it found, with the cases that they were found on.
    std::vector<std::string> found() const {
        std::vector<std::string> all;
        for (const nlohmann::json& one : properties())
            if (one.contains("counterexample"))
                all.push_back(one["property"].get<std::string>() + one["counterexample"]["original_case"].dump());
        return all;
    }
};

// However the slices of a search fall on processes, its cases are the same.
TEST_F(RunTest, CasesDependOnNoNumberOfProcesses) {
    const std::string arguments = "--op attention_merge --no-validation --cases 40 --jobs ";
    EXPECT_EQ(verify(arguments + "1").status, 0);
    const nlohmann::json alone = properties();
    EXPECT_EQ(verify(arguments + "2").status, 0);
    EXPECT_EQ(properties(), alone);
    const std::string failing = "--op nsa_compress --property agreement --property deviation --property adjoint "
                                "--shrink 0 --cases 60 --candidate " + quoted(MUTANTS_PATH) + " --jobs ";
    EXPECT_EQ(verify(failing + "1", "NC-01").status, 1);
    const std::vector<std::string> found_alone = found();
    EXPECT_FALSE(found_alone.empty());
    EXPECT_EQ(verify(failing + "2", "NC-01").status, 1);
    EXPECT_EQ(found(), found_alone);
}

// However many shards a run has, and in whatever order they come: together they are the run.
TEST_F(RunTest, ShardsTogetherAreTheRun) {
    const std::string run = "--op attention_merge --property validation --property agreement --property memory "
                            "--property repeatable --cases 60 --jobs 1";
    EXPECT_EQ(verify(run).status, 0);
    const nlohmann::json whole = properties();
    std::filesystem::rename(file("out.json"), file("whole"));
    for (const int shards : {1, 2, 3, 8}) {
        std::vector<std::string> names;
        for (int shard = 1; shard <= shards; ++shard) {
            EXPECT_EQ(verify(run + fmt::format(" --shard {}/{}", shard, shards)).status, 0) << shard;
            names.push_back(file(fmt::format("{}", shard)));
            std::filesystem::rename(file("out.json"), names.back());
        }
        std::ranges::rotate(names, names.begin() + shards / 2);
        const Ran merged = attncheck(fmt::format("merge {} --json {}", fmt::join(names, " "), file("out.json")));
        EXPECT_EQ(merged.status, 0) << merged.printed;
        EXPECT_EQ(properties(), whole) << shards;
        nlohmann::json report = nlohmann::json::parse(text_of("out.json"));
        EXPECT_EQ(report.at("verdict"), "held");
        EXPECT_EQ(report.value("pairs", nlohmann::json()), nlohmann::json::parse(text_of("whole")).value("pairs", nlohmann::json()));
    }
}

// A shard that dies is run again or resumed: nothing of it counts twice.
TEST_F(RunTest, KilledShardsGoOn) {
    const std::string run = "--op nsa_compress --property agreement --property memory --no-validation --cases 60 "
                            "--shrink 0 --jobs 1 --candidate " + quoted(MUTANTS_PATH);
    EXPECT_EQ(verify(run, "NC-01").status, 1);
    const nlohmann::json whole = properties();
    const std::vector<std::string> found_in_whole = found();
    EXPECT_EQ(verify(run + " --shard 1/2", "NC-01").status, 1);
    std::filesystem::rename(file("out.json"), file("1"));
    // Its report is there from the beginning.
    run_line("(until grep -q interrupted " + file("2") + " 2>/dev/null; do sleep 0.02; done; kill -KILL $$) & XDG_CACHE_HOME=" + quoted(file("cache")) + " ATTNCHECK_MUTANT=NC-01 exec " +
             quoted(COMMAND_PATH) + " verify --seed 3 " + run + " --shard 2/2 --json " + file("2"));
    const Ran missing = attncheck("merge " + file("1"));
    EXPECT_EQ(missing.status, 2);
    EXPECT_THAT(missing.printed, HasSubstr("no report of shard 2 of 2"));
    verify(run + " --shard 2/2 --resume " + file("2"), "NC-01");
    EXPECT_EQ(attncheck("merge " + file("out.json") + " " + file("1") + " --json " + file("merged")).status, 1);
    std::filesystem::rename(file("merged"), file("out.json"));
    EXPECT_EQ(found(), found_in_whole);
    for (std::size_t i = 0; i < whole.size(); ++i) {
        EXPECT_EQ(properties().at(i).at("drawn"), whole.at(i).at("drawn"));
        EXPECT_EQ(properties().at(i).at("labels"), whole.at(i).at("labels"));
    }
}

// A law that comes late in the order has its turn in the first round, however little time a run has.
TEST_F(RunTest, DefectOfALateLawIsShownInTheFirstRound) {
    const Ran ran = verify("--op nsa_compress_grad --time 6 --stop-at-first --shrink 0 --candidate " +
                           quoted(MUTANTS_PATH), "NCG-x09");
    EXPECT_EQ(ran.status, 1) << ran.printed;
    EXPECT_THAT(ran.printed, HasSubstr("found nsa_compress_grad.uncovered: "));
}

// A counterexample is a line when it is found and a text when it is shrunk.
TEST_F(RunTest, CounterexamplesAreShownBeforeTheyAreShrunk) {
    const Ran ran = verify("--op nsa_compress --property memory --thorough --candidate " +
                           quoted(candidate_path("one_element_past_output")));
    EXPECT_EQ(ran.status, 1);
    const auto line = ran.printed.find("found nsa_compress.memory: out of bounds: output (case "),
               text = ran.printed.find("FALSIFIED nsa_compress.memory: out of bounds: output (case ");
    ASSERT_NE(line, std::string::npos) << ran.printed;
    ASSERT_NE(text, std::string::npos) << ran.printed;
    EXPECT_LT(line, text);
    EXPECT_THAT(ran.printed.substr(line, ran.printed.find('\n', line) - line), testing::EndsWith(", shrinking"));
}

// A run ends with its time, whatever is left to do.
TEST_F(RunTest, TimeLimitIsKept) {
    const auto start = std::chrono::steady_clock::now();
    const Ran ran = verify("--op attention_grad --time 1.5 --candidate " + quoted(MUTANTS_PATH), "AT-01");
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    EXPECT_LT(taken.count(), 1.5 * 1.1 + 1);  // a loaded machine gets a second more
    EXPECT_THAT(ran.status, AnyOf(Eq(0), Eq(1), Eq(3))) << ran.printed;
    for (const nlohmann::json& one : properties()) EXPECT_NE(one.at("status"), "error") << one;
}

}  // namespace
}  // namespace attncheck::properties
