// Runs that do not come to their end: by a signal, by the clock, by SIGKILL, for want of a file.
#include <gmock/gmock.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "tests/properties/cli/command_fixture.h"

namespace attncheck::properties {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::Eq;
using testing::HasSubstr;
using Json = nlohmann::json;

class InterruptionTest : public CommandTest {
protected:
    std::string verify(const std::string& library, const std::string& arguments) const {
        return quoted(COMMAND_PATH) + " verify --op nsa_compress --candidate " +
               quoted(candidate_path(library)) + " --json " + file("out.json") + " " + arguments +
               " 2>&1";
    }
    /// Runs a line and expects that it takes at most so long; a loaded machine gets a second more.
    static Ran run_within(double seconds, const std::string& line) {
        const auto start = std::chrono::steady_clock::now();
        Ran ran = run_line(line);
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
        EXPECT_LT(took.count(), seconds + 1) << line << "\n" << ran.printed;
        return ran;
    }
    Json report() const { return Json::parse(text_of("out.json")); }
};

// A hanging call does not keep a run from ending, with one process or several.
TEST_F(InterruptionTest, SignalsEndAHangingCallWithinASecond) {
    for (const char* signal : {"INT", "TERM", "HUP"})
        for (const char* jobs : {"1", "2"}) {
            const Ran ran = run_within(
                2, "timeout --preserve-status -s " + std::string(signal) + " 1 " +
                       verify("loops_for_ever", "--timeout 60 --jobs " + std::string(jobs)));
            EXPECT_EQ(ran.status, 130) << signal << " " << ran.printed;
            EXPECT_THAT(ran.printed, HasSubstr("interrupted: this is what was found so far"));
            EXPECT_EQ(report().at("interrupted"), true);
            EXPECT_EQ(report().at("exit_status"), 130);
        }
}

// Nor does a constructor that hangs when a worker is started again.
TEST_F(InterruptionTest, SignalsEndAHangingLoadWithinASecond) {
    const std::string line = "MARKER=" + file("marker") + " timeout --preserve-status -s INT 1 ";
    EXPECT_EQ(run_within(2, line + verify("hangs_when_loaded_again", "--sandbox off")).status, 130);
}

// nohup asks for it.
TEST_F(InterruptionTest, IgnoredHangupIsIgnored) {
    const Ran ran = run_line("trap '' HUP; " +
                             verify("slow_but_correct", "--property repeatable --cases 2") +
                             " & sleep 0.5; kill -HUP $!; wait $!");
    EXPECT_THAT(ran.printed, HasSubstr("every property held"));
}

// The limit of a whole run holds although single calls may take longer.
TEST_F(InterruptionTest, TimeLimitHoldsForHangs) {
    const Ran calls = run_within(2.2 + 1, verify("loops_for_ever", "--time 2"));
    EXPECT_THAT(calls.status, AnyOf(Eq(3), Eq(4))) << calls.printed;
    const Ran loads = run_within(
        2.2 + 1, "MARKER=" + file("marker") + " " + verify("hangs_when_loaded_again", "--time 2 --sandbox off"));
    EXPECT_THAT(loads.status, AnyOf(Eq(3), Eq(4))) << loads.printed;
    EXPECT_EQ(report().at("interrupted"), false);
}

// What was found is printed, kept and saved at once: kill -9 takes nothing of it.
TEST_F(InterruptionTest, KilledRunHasReportedWhatItFound) {
    const Ran ran = run_line(
        "timeout -s KILL 5 " + verify("one_element_past_output",
                                      "--property memory --shrink 2 --cases 100000000 --corpus " +
                                          file("corpus")));
    EXPECT_THAT(ran.printed, HasSubstr("FALSIFIED nsa_compress.memory"));
    EXPECT_THAT(text_of("corpus/nsa_compress.txt"), HasSubstr("memory nsa_compress{"));
    const Json json = report();
    EXPECT_EQ(json.at("interrupted"), true);
    EXPECT_EQ(json.at("properties")[0].at("status"), "falsified");
    EXPECT_THAT(json["properties"][0].at("counterexample").at("case").get<std::string>(),
                HasSubstr("nsa_compress{"));
    EXPECT_EQ(entries(), 2) << "no temporary file is left";
}

// Nor does it leave anything that the library forked, in whatever session.
TEST_F(InterruptionTest, KilledRunLeavesNoProcesses) {
    const std::string mark = "RUN_OF_TEST=" + folder.string();
    const Ran ran = run_line("FORK=rests " + mark + " timeout -s KILL 1.5 " +
                             verify("leaves_processes", "--no-validation --timeout 60") +
                             "; sleep 0.5; grep -lzsF " + mark + " /proc/[0-9]*/environ || echo none left");
    EXPECT_THAT(ran.printed, HasSubstr("none left"));
}

// A run without findings is on disk too, as one that was interrupted.
TEST_F(InterruptionTest, KilledRunLeavesAValidReport) {
    run_line("timeout -s KILL 4 " +
             verify("prints", "--no-validation --property repeatable --cases 100000000"));
    EXPECT_EQ(report().at("interrupted"), true);
    EXPECT_GT(report().at("properties")[0].at("cases"), 0);
}

// A corpus that cannot be written to costs neither the table nor the report.
TEST_F(InterruptionTest, CorpusThatCannotBeWrittenIsANote) {
    std::filesystem::create_directories(folder / "corpus");
    std::filesystem::create_symlink("missing/file", folder / "corpus" / "nsa_compress.txt");
    for (const char* jobs : {"1", "2"}) {
        const Ran ran = run_line(verify("one_element_past_output",
                                        "--thorough --property memory --corpus " + file("corpus") +
                                            " --jobs " + jobs));
        EXPECT_EQ(ran.status, 1) << ran.printed;
        EXPECT_THAT(ran.printed, AllOf(HasSubstr("note: cannot write"), HasSubstr("falsified: 1 cause in 1 law\n")));
        EXPECT_THAT(report().at("notes")[0].get<std::string>(), HasSubstr("cannot write"));
    }
    expect_refusal("verify --corpus /dev/null/corpus", {"--corpus", "/dev/null"});
}

}  // namespace
}  // namespace attncheck::properties
