// A run that was stopped goes on: the same cases, no property twice, and only where it is the same
// run.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/properties/cli/command_fixture.h"

namespace attncheck::properties {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::json;

class ResumeTest : public CommandTest {
protected:
    static std::string verify(const std::string& library, const std::string& more) {
        return "verify --no-validation --op nsa_compress --jobs 1 --candidate " +
               quoted(candidate_path(library)) + " " + more;
    }
    /// Runs, and sends a signal as soon as a property is finished, or begun.
    void stop(const std::string& signal, const std::string& arguments, const std::string& what = "finished") const {
        run_line(quoted(COMMAND_PATH) + " " + arguments + " --seed 5 --json " +
                 file("stopped.json") + " > /dev/null 2>&1 & run=$!; for k in $(seq 400); do " +
                 "if grep -q '\"" + what + "\": \\[$' " + file("stopped.json") + " 2>/dev/null; then kill -" +
                 signal + " $run; break; fi; sleep 0.05; done; wait $run 2>/dev/null");
    }
    const std::string three_ =
        "--property agreement --property repeatable --property memory --cases 200 ";
    Json report(const std::string& name) const { return Json::parse(text_of(name)); }
};

// Finished properties are taken over as they were, the others are run with the same seed.
TEST_F(ResumeTest, RunsGoOn) {
    stop("KILL", verify("prints", three_));
    const Json stopped = report("stopped.json");
    ASSERT_EQ(stopped.at("interrupted"), true);
    ASSERT_GE(stopped.at("finished").size(), 1u);
    ASSERT_LT(stopped.at("finished").size(), 3u);
    const Ran ran = attncheck(verify("prints", three_ + "--json " + file("whole.json") +
                                                             " --resume " + file("stopped.json")));
    EXPECT_EQ(ran.status, 0) << ran.printed;
    EXPECT_THAT(ran.printed, AllOf(HasSubstr("seed 5"), HasSubstr("taken over from")));
    const Json whole = report("whole.json");
    EXPECT_EQ(whole.at("interrupted"), false);
    EXPECT_FALSE(whole.contains("finished"));
    EXPECT_EQ(whole.at("seed"), 5);
    ASSERT_EQ(whole.at("properties").size(), 3u);
    const Json& before = stopped["finished"][0];
    for (const Json& property : whole["properties"]) {
        EXPECT_EQ(property.at("status"), "held");
        EXPECT_GE(property.at("cases"), 100);
        if (property.at("property") == before.at("property")) {
            EXPECT_EQ(property.at("seconds"), before.at("seconds"));
        }
    }
    // The whole report is one like any other.
    EXPECT_EQ(attncheck("merge " + file("whole.json")).status, 0);
    // A job that is started again has its verdict; of another run it has none.
    const Ran told = attncheck(verify("prints", three_ + "--resume " + file("whole.json") + " --json " + file("copy.json")));
    EXPECT_EQ(told.status, 0) << told.printed;
    EXPECT_THAT(told.printed, AllOf(HasSubstr("operator  "), HasSubstr("every property held"), HasSubstr("which came to its end: held")));
    EXPECT_EQ(text_of("copy.json"), text_of("whole.json"));
    expect_refusal(verify("declines", three_ + "--resume " + file("whole.json")), {"whole.json", "library of SHA-256"});
    // And one command for all its starts.
    const Ran first = attncheck(verify("prints", "--property agreement --cases 3 --resume " + file("new.json") + " --json " + file("new.json")));
    EXPECT_EQ(first.status, 0) << first.printed;
    EXPECT_THAT(first.printed, HasSubstr("is not there yet: the run begins"));
}

// A run that was killed while it shrank shrinks again, and what goes on in the search does not undo it.
TEST_F(ResumeTest, CounterexamplesAreShrunkAgain) {
    const auto run = [&](const std::string& more) { return verify("one_element_past_output", "--property memory --cases 700 --time 20 " + more); };
    stop("KILL", run(""), "begun");
    Json stopped = report("stopped.json");
    ASSERT_EQ(stopped.at("begun").size(), 1u);
    Json& found = stopped["begun"][0]["counterexamples"][0];
    found["spec"] = found.at("original");
    found["certificate"] = "not shrunk to its end";
    write("stopped.json", stopped.dump());
    const Ran ran = attncheck(run("--json " + file("again.json") + " --resume " + file("stopped.json")));
    EXPECT_EQ(ran.status, 1) << ran.printed;
    const Json again = report("again.json").at("properties").at(0);
    EXPECT_GT(again.at("cases"), stopped.at("begun").at(0).at("cases"));
    EXPECT_THAT(again.at("counterexample").at("certificate").get<std::string>(), HasSubstr("neighbours hold"));
}

// A property that was in the middle of its cases goes on there, to the same end.
TEST_F(ResumeTest, CasesAreNotRunAgain) {
    const std::string one = verify("prints", "--property agreement --cases 700 --seed 5 ");
    ASSERT_EQ(attncheck(one + "--json " + file("whole.json")).status, 0);
    stop("KILL", verify("prints", "--property agreement --cases 700"), "begun");
    const Json begun = report("stopped.json").at("begun").at(0);
    EXPECT_GT(begun.at("cases"), 0);
    const Ran ran = attncheck(one + "--json " + file("again.json") + " --resume " + file("stopped.json"));
    EXPECT_EQ(ran.status, 0) << ran.printed;
    EXPECT_THAT(ran.printed, HasSubstr("0 finished properties are taken over from"));
    const Json whole = report("whole.json")["properties"][0], again = report("again.json")["properties"][0];
    for (const char* same : {"cases", "labels", "drawn", "worst_errors", "worst_error_ratio", "status"})
        EXPECT_EQ(again.at(same), whole.at(same)) << same;
}

// Another library, option or seed is another run.
TEST_F(ResumeTest, OtherRunsAreRefused) {
    stop("INT", verify("prints", three_));
    const std::string same = three_ + "--resume " + file("stopped.json");
    expect_refusal(verify("prints", same + " --rule torch"), {"--rule judges agreement"});
    expect_refusal(verify("prints", same + " --env HOME"), {"option env", "''", "'HOME'"});
    expect_refusal(verify("prints", same + " --timeout 5"),
                   {"option timeout", "'10'", "'5'"});
    expect_refusal(verify("prints", same + " --seed 6"), {"seed", "'5'", "'6'"});
    expect_refusal(verify("declines", same), {"library of SHA-256"});
    expect_refusal(verify("prints", same + " --shard 1/2"), {"shard", "'1/1'"});
    write("other.json", "{}");
    expect_refusal(verify("prints", "--resume " + file("other.json")), {"other.json", "schema 1"});
    expect_refusal(verify("prints", "--resume " + file("none.json")), {"cannot read"});
}

// What was found before is part of the verdict, and not looked for again.
TEST_F(ResumeTest, CounterexamplesAreTakenOver) {
    const auto run = [&](const std::string& more) {
        return verify("writes_an_input",
                      "--shrink 1 --property memory --property concurrent --cases 100 " + more);
    };
    stop("KILL", run(""));
    ASSERT_EQ(report("stopped.json").at("interrupted"), true);
    ASSERT_EQ(report("stopped.json").at("finished").size(), 1u);
    const Ran ran = attncheck(
        run("--json " + file("again.json") + " --resume " + file("stopped.json")));
    EXPECT_EQ(ran.status, 1) << ran.printed;
    EXPECT_THAT(ran.printed, Not(HasSubstr("FALSIFIED nsa_compress.memory")));
    const Json memory = report("again.json").at("properties").at(0);
    EXPECT_EQ(memory.at("property"), "memory");
    EXPECT_EQ(memory.at("status"), "falsified");
    EXPECT_EQ(memory.at("counterexample").at("failure"), "memory: weight");
}

}  // namespace
}  // namespace attncheck::properties
