// The suite against the built-in implementation with every instruction set that this machine has,
// forced one by one as a user would: in the environment of the command.
#include "impl/kernels/instruction_set.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/properties/cli/shell.h"

namespace attncheck {
namespace {

using properties::Ran;

Ran verify_with(const std::string& isa, const std::string& options) {
    return properties::run_line("ATTNCHECK_FORCE_ISA=" + isa + " " +
                                properties::quoted(COMMAND_PATH) + " verify " + options + " 2>&1");
}

class InstructionSet : public testing::TestWithParam<const char*> {};

TEST_P(InstructionSet, ForcedOneHoldsWhatTheSuiteDemands) {
    if (!impl::find_instruction_set(GetParam())) GTEST_SKIP() << "not on this machine";
    for (const char* property : {"agreement", "exact_lattice", "repeatable"}) {
        const Ran outcome =
            verify_with(GetParam(), std::string("--cases 24 --seed 1 --property ") + property);
        EXPECT_EQ(outcome.status, 0) << outcome.printed;
        // The library says by itself which kernels it runs.
        EXPECT_NE(outcome.printed.find(std::string("(") + GetParam() + ")"), std::string::npos)
            << outcome.printed;
    }
}

INSTANTIATE_TEST_SUITE_P(All, InstructionSet,
                         testing::Values("scalar", "ssse3", "sse4", "avx2", "avx512", "avx512_bf16",
                                         "amx", "amx_emulated", "neon"),
                         [](const auto& set) { return std::string(set.param); });

TEST(ForcedInstructionSet, UnknownOneIsAnErrorThatNamesTheOthers) {
    const Ran outcome = verify_with("avx9", "--cases 5 --op nsa_compress --property agreement");
    EXPECT_EQ(outcome.status, 1);
    EXPECT_NE(outcome.printed.find("ATTNCHECK_FORCE_ISA is \"avx9\"; this machine has scalar"),
              std::string::npos)
        << outcome.printed;
}

}  // namespace
}  // namespace attncheck
