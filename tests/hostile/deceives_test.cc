// A library that breaks a rule and hides it is told so, at every level of the sandbox, and ends or holds no run.
#include "tests/hostile/hostile_run.h"

namespace attncheck::properties {
namespace {

using testing::HasSubstr;
using testing::Not;

struct Deceit {
    const char* name;
    const char* said;  ///< of the first failure
    const char* timeout = "--timeout 3";
};

constexpr Deceit kDeceits[] = {
    {"opens_guards_to_write", "in a guard page"},
    {"opens_guards_to_read", "output is not finite"},
    {"hides_faults", "leaves the handler of a fault replaced"},
    {"faults_with_a_handler_of_loading", "out of bounds: output"},
    {"restores_an_input", "an input, while the call ran"},
    {"keeps_a_changed_input", "an input was written"},
    {"answers_after_30_us", ""},
    {"answers_after_300_us", ""},
    {"answers_after_3_ms", ""},
    {"answers_from_a_child", ""},
    {"scribbles_later", ""},
    {"floods_the_suite", "wrote to the suite's connection"},
    {"answers_once_more", "wrote to the suite's connection"},
    {"hangs_up", "closed the suite's connection"},
    {"eats_requests", "left 1 process behind"},
    {"stops_itself", "timed out", "--timeout 0.2"},
    {"ends_quietly", "ended the process with exit code 0"},
    {"leaves_a_daemon", "left 1 process behind"},
    {"leaves_a_daemon_without_a_name", "left 1 process behind"},
    {"is_traced", ""},
    {"leaves_flush_to_zero", "leaves flush-to-zero changed"},
    {"leaves_a_rounding_mode", "leaves rounding mode"},
    {"leaves_a_handler", "leaves the handler of a fault replaced"},
    {"leaves_signals_blocked", "leaves signals blocked"},
    {"leaves_a_timer", "leaves a timer running"},
    {"leaves_a_timer_of_posix", "leaves a timer running"},
    {"leaves_a_lower_limit", "leaves a limit of the process lowered"},
#if defined(__x86_64__)
    {"leaves_another_precision", "leaves rounding mode, precision"},
    {"leaves_registers_in_use", "leaves registers of the x87 in use"},
#endif
    {"leaves_a_folder", "leaves another working directory"},
    {"leaves_a_locale", "leaves another locale"},
    {"leaves_a_variable", "leaves a variable of the environment changed"}};

class EveryLevel : public HostileTest, public testing::WithParamInterface<const char*> {
    bool needs_strict() const override { return std::string(GetParam()) == "strict"; }
};

INSTANTIATE_TEST_SUITE_P(Sandbox, EveryLevel, testing::Values("off", "strict"),
                         [](const auto& one) { return std::string(one.param); });

TEST_P(EveryLevel, TellsABrokenRule) {
    std::vector<Trick> tricks;
    for (const Deceit& deceit : kDeceits) {
        // Its thread has to get a core between two calls.
        const bool waits = std::string(deceit.name) == "scribbles_later";
        tricks.push_back({"deceives", deceit.name, "", "", waits ? "--cases 30" : "--cases 6", deceit.timeout});
    }
    const std::vector<Ran> all = run_all(tricks, GetParam());
    for (std::size_t k = 0; k < all.size(); ++k) {
        const auto& [name, said, timeout] = kDeceits[k];
        EXPECT_EQ(all[k].status, 1) << name << "\n" << all[k].printed;
        EXPECT_THAT(all[k].printed, HasSubstr("FALSIFIED nsa_compress.")) << name;
        EXPECT_THAT(all[k].printed, HasSubstr(said)) << name;
    }
}

// A constructor that answers in place of the worker.
TEST_P(EveryLevel, TellsAnUsurper) {
    for (const Deceit& deceit : {Deceit{"writes_past_the_end", "in a guard page"},
                                 {"claims_success", "output not written"},
                                 {"forges_the_number", "wrote to the suite's connection"},
                                 {"answers_twice", "wrote to the suite's connection"},
                                 {"dribbles", "timed out", "--timeout 0.2"},
                                 {"claims_no_threads", "takes the threads that calls at once need"}}) {
        const Ran ran =
            run({"takes_over", deceit.name, "", "", "--cases 6", deceit.timeout}, GetParam());
        EXPECT_EQ(ran.status, 1) << deceit.name << "\n" << ran.printed;
        EXPECT_THAT(ran.printed, HasSubstr(deceit.said)) << deceit.name;
    }
}

// What it says of its time is no reason to wait or to hurry.
TEST_F(HostileTest, AForgedTimeIsNotBelieved) {
    const Ran ran = run({"takes_over", "forges_the_time"}, "strict");
    EXPECT_EQ(ran.status, 0) << ran.printed;
}

TEST_F(HostileTest, SignalsToTheSuiteStayInTheSandbox) {
    for (const char* name : {"kills_everybody", "stops_the_suite"}) {
        const Ran ran = run({"deceives", name, "1"}, "strict");
        EXPECT_EQ(ran.status, 1) << name << "\n" << ran.printed;
        EXPECT_THAT(ran.printed, HasSubstr("output is wrong")) << name;
    }
}

// Without a sandbox a library can end a process of the suite. That is no verdict that a property holds.
TEST_F(HostileTest, AKilledSuiteSaysSo) {
    const Ran ran = run({"deceives", "kills_everybody"}, "off");
    EXPECT_EQ(ran.status, 4) << ran.printed;
    EXPECT_THAT(ran.printed, HasSubstr("could not be judged"));
}

// docs/sandbox.md lists these: what is right and reaches nothing is not told from the honest.
TEST_P(EveryLevel, LetsThroughWhatTheListSays) {
    for (const char* name : {"hides_faults_and_tidies", "opens_an_input_and_restores_it",
                             "writes_beside_and_restores", "knows_the_suite"})
        EXPECT_EQ(run({"deceives", name}, GetParam()).status, 0) << name;
}

}  // namespace
}  // namespace attncheck::properties
