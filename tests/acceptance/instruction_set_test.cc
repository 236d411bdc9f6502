// The suite against the built-in implementation with every instruction set that this machine has,
// forced one by one as a user would: in the environment of the command.
#include "impl/instruction_set.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <string>

namespace attncheck {
namespace {

struct Outcome {
    int status;
    std::string output;
};

Outcome verify_with(const std::string& isa, const std::string& options) {
    const std::string command =
        "ATTNCHECK_FORCE_ISA=" + isa + " " ATTNCHECK_PROGRAM " verify " + options + " 2>&1";
    FILE* pipe = popen(command.c_str(), "r");
    if (pipe == nullptr) return {-1, "popen failed"};
    Outcome outcome{};
    char text[4096];
    while (const std::size_t count = std::fread(text, 1, sizeof(text), pipe))
        outcome.output.append(text, count);
    const int status = pclose(pipe);
    outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return outcome;
}

class InstructionSet : public testing::TestWithParam<const char*> {};

TEST_P(InstructionSet, ForcedOneHoldsWhatTheSuiteDemands) {
    if (!impl::find_instruction_set(GetParam())) GTEST_SKIP() << "not on this machine";
    for (const char* property : {"agreement", "exact_lattice", "repeatable"}) {
        const Outcome outcome =
            verify_with(GetParam(), std::string("--cases 24 --seed 1 --property ") + property);
        EXPECT_EQ(outcome.status, 0) << outcome.output;
        // The library says by itself which kernels it runs.
        EXPECT_NE(outcome.output.find(std::string("(") + GetParam() + ")"), std::string::npos)
            << outcome.output;
    }
}

INSTANTIATE_TEST_SUITE_P(All, InstructionSet,
                         testing::Values("scalar", "ssse3", "sse4", "avx2", "avx512", "avx512_bf16",
                                         "neon"),
                         [](const auto& set) { return std::string(set.param); });

TEST(ForcedInstructionSet, UnknownOneIsAnErrorThatNamesTheOthers) {
    const Outcome outcome = verify_with("avx9", "--cases 5 --op nsa_compress --property agreement");
    EXPECT_EQ(outcome.status, 1);
    EXPECT_NE(outcome.output.find("ATTNCHECK_FORCE_ISA is \"avx9\"; this machine has scalar"),
              std::string::npos)
        << outcome.output;
}

}  // namespace
}  // namespace attncheck
