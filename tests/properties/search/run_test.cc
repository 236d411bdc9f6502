// Whole runs: their cases, their time, and what they show before they end.
#include <gmock/gmock.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "tests/properties/cli/command_fixture.h"

namespace attncheck::properties {
namespace {

using testing::AnyOf;
using testing::Eq;
using testing::HasSubstr;
using Json = nlohmann::json;

class RunTest : public CommandTest {
protected:
    Ran verify(const std::string& arguments, const std::string& mutant = "") const {
        return run_line("XDG_CACHE_HOME=" + quoted(file("cache")) + " ATTNCHECK_MUTANT=" + mutant + " " +
                        quoted(COMMAND_PATH) + " verify --seed 3 " + arguments + " --json " + file("out.json") +
                        " 2>&1");
    }
    /// The properties of the last run, without their times.
    Json properties() const {
        Json all = Json::parse(text_of("out.json")).at("properties");
        for (Json& one : all) one.erase("seconds");
        return all;
    }
    /// The failures that it found, with the cases that they were found on.
    std::vector<std::string> found() const {
        std::vector<std::string> all;
        for (const Json& one : properties())
            if (one.contains("counterexample"))
                all.push_back(one["property"].get<std::string>() + one["counterexample"]["original_case"].dump());
        return all;
    }
};

// However the slices of a search fall on processes, its cases are the same.
TEST_F(RunTest, CasesDependOnNoNumberOfProcesses) {
    const std::string arguments = "--op attention_merge --no-validation --cases 40 --jobs ";
    EXPECT_EQ(verify(arguments + "1").status, 0);
    const Json alone = properties();
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

// Shards may come in any order.
TEST_F(RunTest, OrderOfShardsPlaysNoRole) {
    for (const std::string shard : {"1", "2", "3"}) {
        EXPECT_THAT(verify("--op attention_merge --property agreement --property memory --cases 30 --shard " + shard +
                           "/3").status, AnyOf(Eq(0), Eq(3)));
        std::filesystem::rename(file("out.json"), file(shard));
    }
    const auto merged = [&](const char* first, const char* second, const char* third) {
        EXPECT_EQ(attncheck("merge " + file(first) + " " + file(second) + " " + file(third) + " --json " +
                            file("out.json"))
                      .status,
                  0);
        return properties();
    };
    const Json all = merged("1", "2", "3");
    EXPECT_EQ(merged("3", "1", "2"), all);
    std::int64_t elements = 0;
    for (const char* shard : {"1", "2", "3"})
        elements += Json::parse(text_of(shard))["properties"][0]["elements"]["compared"].get<std::int64_t>();
    EXPECT_EQ(all[0]["elements"]["compared"], elements);
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
    EXPECT_THAT(ran.printed.substr(line, ran.printed.find('\n', line) - line), testing::EndsWith("}, shrinking"));
}

// A run ends with its time, whatever is left to do.
TEST_F(RunTest, TimeLimitIsKept) {
    const auto start = std::chrono::steady_clock::now();
    const Ran ran = verify("--op attention_grad --time 1.5 --candidate " + quoted(MUTANTS_PATH), "AT-01");
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    EXPECT_LT(taken.count(), 1.5 * 1.1 + 1);  // a loaded machine gets a second more
    EXPECT_THAT(ran.status, AnyOf(Eq(0), Eq(1), Eq(3))) << ran.printed;
    for (const Json& one : properties()) EXPECT_NE(one.at("status"), "error") << one;
}

}  // namespace
}  // namespace attncheck::properties
