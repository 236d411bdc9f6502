// From a library with three unlike defects to three minimal case lines, in one run.
#include <gmock/gmock.h>

#include <sstream>

#include "properties/search/run.h"
#include "tests/properties/candidate/running_candidate.h"

namespace attncheck::properties {
namespace {

using testing::HasSubstr;
using testing::Pair;
using testing::UnorderedElementsAre;

// A crash, a hang and a stray write: each is found, told apart, shrunk and printed.
TEST(EndToEnd, ThreeDefectsGiveThreeMinimalCases) {
    const auto candidate = opened("three_defects", 0.3);
    VerifyOptions options;
    options.operators = {"nsa_compress"};
    options.properties = {"agreement"};
    options.engine.cases = 400;
    options.engine.timeout_s = 0.3;
    RunReport report;
    report.candidate = candidate->info().name;
    report.library = "three_defects.so";
    std::ostringstream out;
    verify(*candidate, options, system_clock(), report, out, nullptr);

    ASSERT_EQ(report.properties.size(), 1u);
    std::map<std::string, std::string> found;
    for (const Counterexample& one : report.properties[0].counterexamples) {
        found[one.failure] = print(one.spec);
        EXPECT_THAT(one.certificate, HasSubstr("neighbours hold")) << one.failure;
    }
    EXPECT_THAT(found, UnorderedElementsAre(
                           Pair("crashed: SIGSEGV",
                                "nsa_compress{dtype=fp16 seq=[0] heads=1 dim=16 block=16 "
                                "stride=16 beyond=1 data=zeros seed=0}"),
                           Pair("timed out",
                                "nsa_compress{dtype=fp16 seq=[1] heads=1 dim=16 block=48 stride=16 "
                                "data=zeros seed=0}"),
                           Pair("out of bounds: output",
                                "nsa_compress{dtype=fp16 seq=[1] heads=3 dim=16 block=16 "
                                "stride=16 data=zeros seed=0}")));
    for (const auto& [failure, line] : found) {
        EXPECT_THAT(out.str(), HasSubstr("FALSIFIED nsa_compress.agreement: " + failure));
        EXPECT_THAT(out.str(), HasSubstr("  smallest " + line));
        EXPECT_THAT(out.str(), HasSubstr("attncheck reproduce '" + line + "'"));
    }
    EXPECT_EQ(exit_status(report), 1);
}

}  // namespace
}  // namespace attncheck::properties
