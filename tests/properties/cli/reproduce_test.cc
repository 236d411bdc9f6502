// `attncheck reproduce @N`: the numbers of a case, and its tensors as files.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <filesystem>

#include "tests/properties/cli/command_fixture.h"

namespace attncheck::properties {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class ReproduceTest : public CommandTest {
protected:
    /// A run that finds a defect, with a cache of its own.
    Ran run(const std::string& arguments) const {
        return run_line("XDG_CACHE_HOME=" + quoted(file("cache")) + " " + quoted(COMMAND_PATH) + " " + arguments +
                        " 2>&1");
    }
    Ran find_something() const {
        return run("verify --stop-at-first --property memory --op nsa_compress --seed 1 --json " +
                   quoted(file("out.json")) + " --candidate " +
                   quoted(candidate_path("one_element_past_output")));
    }
};

// The report of the last run that found something is at hand; --report names another one.
TEST_F(ReproduceTest, TakesTheNumberOfACounterexample) {
    EXPECT_THAT(run("reproduce @1").printed, HasSubstr("no run has found anything yet"));
    EXPECT_THAT(find_something().printed, HasSubstr("attncheck reproduce @1\n"));
    // Where no report of the last run can be kept, the number leads nowhere.
    const Ran homeless = run_line("XDG_CACHE_HOME=/dev/null " + quoted(COMMAND_PATH) + " verify --stop-at-first --property memory --op nsa_compress --seed 1 --candidate " +
                                  quoted(candidate_path("one_element_past_output")) + " 2>&1");
    EXPECT_THAT(homeless.printed, AllOf(Not(HasSubstr("reproduce @1")), HasSubstr("replay      attncheck reproduce 'nsa_compress{")));
    for (const std::string& report : {std::string(), " --report " + quoted(file("out.json"))}) {
        const Ran again = run("reproduce @1" + report);
        EXPECT_EQ(again.status, 1) << again.printed;
        EXPECT_THAT(again.printed, AllOf(HasSubstr("memory"), HasSubstr("FALSIFIED: out of bounds: output")));
    }
    const auto refused = [&](const std::string& arguments, const std::string& why) {
        const Ran ran = run("reproduce " + arguments);
        EXPECT_EQ(ran.status, 2);
        EXPECT_THAT(ran.printed, HasSubstr(why));
    };
    refused("@7", "has no counterexample @7, allowed: @1 to @1");
    refused("@x", "'@x' is no counterexample, expected @ and a number from 1");
    refused("@1 --report " + quoted(file("missing")), "cannot read");
    write("other.json", "{\"a\": 1}");
    refused("@1 --report " + quoted(file("other.json")), "is no report of attncheck");
    refused("'nsa_compress{}' --report " + quoted(file("out.json")), "expected @N");
}

// A case that says nothing of the numbers is not shown as one without errors.
TEST_F(ReproduceTest, SaysWhereNoElementIsCompared) {
    const Ran empty = run("reproduce 'attention{dtype=fp16 q=[0] kv=[5] layout=bshd kv_heads=1 group=1 dim=8 value_dim=8 "
                          "data=normal seed=1}' --property agreement");
    EXPECT_EQ(empty.status, 0);
    EXPECT_THAT(empty.printed, AllOf(HasSubstr("agreement            held: no element to compare"), Not(HasSubstr("worst error"))));
    const auto given_away = [&](int queries) {
        return run(fmt::format("reproduce 'attention{{dtype=bf16 q=[{}] kv=[20] layout=bshd kv_heads=1 group=1 dim=8 value_dim=8 "
                               "window_right=0 data=specials seed=3}}' --property agreement --precision hidden=times_zero",
                               queries))
            .printed;
    };
    EXPECT_THAT(given_away(2), HasSubstr("held: any result is accepted, the bounds of all 18 elements are as wide as the type"));
    EXPECT_THAT(given_away(20), HasSubstr(" of its bound; the bound is as wide as the type for 143 of 180 elements"));
}

// A case that was found without walls, or with more of them, is replayed so.
TEST_F(ReproduceTest, TakesTheSandboxOfTheRun) {
    EXPECT_EQ(run("verify --stop-at-first --property memory --op nsa_compress --seed 1 --sandbox off --candidate " +
                  quoted(candidate_path("one_element_past_output")))
                  .status,
              1);
    EXPECT_THAT(run("reproduce @1").printed, HasSubstr("sandbox   off\n"));
    EXPECT_THAT(run("reproduce @1 --sandbox on").printed, Not(HasSubstr("sandbox   off\n")));
}

// And with the limits of the run: a call that took too long does not hold with more time.
TEST_F(ReproduceTest, TakesTheLimitsOfTheRun) {
    EXPECT_EQ(run("verify --stop-at-first --property memory --op nsa_compress --seed 1 --timeout 3 --memory 900 --candidate " +
                  quoted(candidate_path("one_element_past_output")) + " --json " + quoted(file("limits.json")))
                  .status,
              1);
    EXPECT_THAT(run("reproduce @1").printed, AllOf(HasSubstr("timeout   3 s for one call\n"), HasSubstr("memory    900 MiB for the library\n")));
    EXPECT_THAT(run("reproduce @1 --timeout 4").printed, AllOf(HasSubstr("timeout   4 s"), HasSubstr("memory    900 MiB")));
    EXPECT_THAT(text_of("limits.json"), HasSubstr(" --timeout 3 --memory 900\""));
}

// A report names its library as the run did, from the folder where both are.
TEST_F(ReproduceTest, FindsTheLibraryBesideTheReport) {
    std::filesystem::copy_file(candidate_path("one_element_past_output"), file("k.so"));
    EXPECT_EQ(run_line("cd " + quoted(file("")) + " && " + quoted(COMMAND_PATH) + " verify --stop-at-first --property memory " +
                       "--op nsa_compress --seed 1 --candidate ./k.so --json r.json 2>&1")
                  .status,
              1);
    EXPECT_EQ(run_line("cd / && " + quoted(COMMAND_PATH) + " reproduce @1 --report " + quoted(file("r.json")) + " 2>&1").status, 1);
}

// The kernel gets the variables of --env that it had, and what it prints is shown.
TEST_F(ReproduceTest, TakesTheVariablesOfTheRun) {
    EXPECT_EQ(run("verify --stop-at-first --property memory --op nsa_compress --seed 1 --cases 40 --env DEFECT_TO_SHOW --candidate " +
                  quoted(candidate_path("prints_variable")))
                  .status,
              0);
    ASSERT_EQ(setenv("DEFECT_TO_SHOW", "now", 1), 0);
    const Ran found = run("verify --stop-at-first --property memory --op nsa_compress --seed 1 --env DEFECT_TO_SHOW --candidate " +
                          quoted(candidate_path("prints_variable")));
    EXPECT_EQ(found.status, 1) << found.printed;
    const Ran again = run("reproduce @1");
    EXPECT_EQ(again.status, 1) << again.printed;
    EXPECT_THAT(again.printed, AllOf(HasSubstr("@1        of the run that ended at 2"), HasSubstr("DEFECT_TO_SHOW is now\n")));
    ASSERT_EQ(unsetenv("DEFECT_TO_SHOW"), 0);
    EXPECT_THAT(run("reproduce @1").printed,
                HasSubstr("note      the variable DEFECT_TO_SHOW of --env is not set: the library runs without it\n"));
}

// Variables that are not set are one line.
TEST_F(ReproduceTest, NamesAllUnsetVariablesAtOnce) {
    const Ran ran = run(
        "reproduce 'attention{dtype=fp32 q=[2] kv=[1] layout=bshd kv_heads=1 group=1 dim=1 value_dim=1 data=zeros seed=0}' "
        "--property agreement --env NOT_SET_A --env NOT_SET_B --env NOT_SET_A");
    EXPECT_THAT(ran.printed,
                HasSubstr("note      the variables NOT_SET_A, NOT_SET_B of --env are not set: the library runs without them\n"));
}

// A program has the bounds of the class that the case is judged by: that of the command, or the library's own.
TEST_F(ReproduceTest, EmitsTheBoundsOfTheClass) {
    const std::string line = "reproduce 'attention{dtype=fp32 q=[2] kv=[3] layout=bshd kv_heads=1 group=1 dim=8 value_dim=4 scale=rsqrt data=normal seed=1}' --emit ";
    for (const char* language : {"numpy", "torch", "c"}) {
        EXPECT_THAT(run(line + language).printed, HasSubstr("bounds of the rounding class 'acc=fp32 p=half ds=half'"));
        EXPECT_THAT(run(line + language + " --precision in=tf32").printed,
                    HasSubstr("bounds of the rounding class 'acc=fp32 p=half ds=half in=tf32'"));
        EXPECT_THAT(run(line + language + " --candidate " + quoted(MUTANTS_PATH)).printed,
                    HasSubstr("bounds of the rounding class 'acc=fp32 p=half ds=half order=fixed'"));
    }
    EXPECT_THAT(run(line + "c --precision in=tf33").printed, HasSubstr("--precision 'in=tf33': "));
    const Ran missing = run(line + "c --candidate " + quoted(file("missing.so")));
    EXPECT_EQ(missing.status, 2);
    EXPECT_THAT(missing.printed, HasSubstr("with --precision a program needs no library"));
}

// Values of small tensors are printed, absent arguments are one line.
TEST_F(ReproduceTest, PrintsTheNumbersOfASmallCase) {
    const Ran ran = run(
        "reproduce 'attention{dtype=fp32 q=[2] kv=[1] layout=bshd kv_heads=1 group=1 dim=1 value_dim=1 "
        "data=zeros seed=0 set=[value[0,0,0]=2]}' --property agreement");
    EXPECT_EQ(ran.status, 0) << ran.printed;
    EXPECT_THAT(ran.printed,
                AllOf(HasSubstr("  value        fp32 [1,1,1,1] strides [1,1,1,1]\n               2\n"),
                      HasSubstr("out [1,2,1,1]\n    expected   2 2\n    got        2 2\n"),
                      HasSubstr("  absent       bias, mask, sink"), Not(HasSubstr("[0] strides"))));
}

// Large tensors are not printed, nor is a place for them.
TEST_F(ReproduceTest, PrintsNothingOfALargeCase) {
    const Ran ran = run(
        "reproduce 'nsa_compress{dtype=fp16 seq=[16] heads=8 dim=16 block=16 stride=16 data=ones seed=0}' "
        "--property agreement");
    EXPECT_EQ(ran.status, 0) << ran.printed;
    EXPECT_THAT(ran.printed, AllOf(Not(HasSubstr("expected ")), Not(HasSubstr("\n\n\n"))));
}

// A folder of .npy files: inputs, what came out, what was expected and its bound.
TEST_F(ReproduceTest, DumpsTensors) {
    const Ran ran = run(
        "reproduce 'attention{dtype=bf16 q=[2] kv=[1] layout=bshd kv_heads=1 group=1 dim=1 value_dim=1 "
        "data=ones seed=0}' --property agreement --dump " + quoted(file("tensors")));
    EXPECT_EQ(ran.status, 0) << ran.printed;
    for (const char* name : {"query.npy", "key.npy", "value.npy", "out.npy", "out.expected.npy", "out.bound.npy"}) {
        const std::string text = text_of(std::string("tensors/") + name);
        EXPECT_TRUE(text.starts_with("\x93NUMPY\x01")) << name;
        EXPECT_THAT(text, HasSubstr("'fortran_order': False")) << name;
    }
    const std::string out = text_of("tensors/out.npy");
    EXPECT_THAT(out, HasSubstr("'descr': '<f4', 'fortran_order': False, 'shape': (1,2,1,1), }"));
    EXPECT_EQ(out.size() % 64, 2 * sizeof(float));
    EXPECT_THAT(text_of("tensors/case.txt"), HasSubstr("attention{dtype=bf16"));
    const Ran refused = run("reproduce 'nsa_compress{dtype=fp16 seq=[16] heads=1 dim=16 block=16 stride=16 "
                            "data=ones seed=0}' --property agreement --dump /dev/null/no");
    EXPECT_EQ(refused.status, 2);
    EXPECT_THAT(refused.printed, HasSubstr("cannot make the folder /dev/null/no"));
}

}  // namespace
}  // namespace attncheck::properties
