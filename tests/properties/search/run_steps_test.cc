// The steps of a run, without processes: what comes back, and what never does.
#include "properties/search/run_steps.h"

#include <sstream>

#include "tests/properties/search/planted.h"

namespace attncheck::properties {
namespace {

// The process that shrinks a case dies when another one has already told the end of the property: nothing is left to
// take over from it.
TEST(RunSteps, AProcessMayDieWhenNothingIsLeftToShrink) {
    CandidateInfo info;
    info.operators = {"attention_merge"};
    VerifyOptions options;
    options.operators = info.operators;
    options.properties = {"agreement", "memory"};
    FakeClock clock;
    RunReport report;
    std::ostringstream out;
    properties::Run run(info, options, clock, 2, report, out, nullptr);
    const std::size_t searched = run.next(0);
    PropertyReport found = run.unfinished(searched);
    found.status = PropertyReport::Status::falsified;
    Counterexample counterexample;
    counterexample.spec = counterexample.original =
        spec_of("attention_merge{dtype=fp32 parts=2 rows=1 heads=1 dim=1 weights=equal data=normal seed=1}");
    counterexample.failure = "out is wrong";
    counterexample.certificate = kNotShrunk;
    counterexample.being_shrunk = true;
    found.counterexamples = {counterexample};
    run.observe(searched, found);
    const std::size_t shrinking = run.next(1);
    ASSERT_TRUE(run.is_shrinking(shrinking));
    found.counterexamples[0].being_shrunk = false;
    run.finish(searched, found, true);
    run.finish_without_answer(shrinking, "its process ended");
    run.close();
    ASSERT_FALSE(report.properties.empty());
    EXPECT_EQ(report.properties[0].status, PropertyReport::Status::falsified);
}

}  // namespace
}  // namespace attncheck::properties
