// The suite through the vendor's two-phase functions: our library of them holds, libraries that are
// wrong are found out, and libraries that cannot be used are refused in one line.
#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/properties/cli/shell.h"

namespace attncheck::properties {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::vector<std::string> kOperators{"nsa_compress",           "nsa_compress_grad",
                                          "nsa_selected_attention", "nsa_selected_attention_grad",
                                          "flash_attention_score",  "flash_attention_score_grad"};

std::string candidate(const std::string& libraries) {
    return " --candidate " + quoted("aclnn:" + libraries);
}

/// NsaCompress with a defect, our library for all the rest.
Ran with_defect(const std::string& defect, const std::string& arguments) {
    return run_line("ATTNCHECK_TEST_DEFECT=" + defect + " " + quoted(COMMAND_PATH) + " " +
                    arguments + candidate(std::string(DEFECTS_LIBRARY) + "," + ACL_LIBRARY) +
                    " 2>&1");
}

constexpr const char* kCase =
    "'nsa_compress{dtype=fp16 seq=[48] heads=1 dim=16 block=32 stride=16 data=normal seed=1}'";

class EveryOperator : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Operators, EveryOperator, testing::ValuesIn(kOperators),
                         [](const auto& instance) {
                             std::string name = instance.param;
                             std::erase(name, '_');
                             return name;
                         });

// Values, memory and statuses are right behind two phases, a device and a stream.
TEST_P(EveryOperator, HoldsBehindTheTwoPhases) {
    const Ran ran = attncheck("verify --seed 1 --cases 15 --op " + GetParam() +
                              " --property agreement --property memory --property validation"
                              " --property validation_combined --property concurrent" +
                              candidate(""));
    EXPECT_EQ(ran.status, 0) << ran.printed;
    EXPECT_THAT(ran.printed,
                AllOf(HasSubstr("every property held"), HasSubstr("libattncheck_acl.so")));
}

// Without a list of libraries our own is meant; given by its path it is the same.
TEST(AclnnAdapter, ListsWhatTheLibrariesImplement) {
    for (const std::string libraries : {"", ACL_LIBRARY}) {
        const Ran ran = attncheck("list" + candidate(libraries));
        EXPECT_EQ(ran.status, 0);
        for (const std::string& op : kOperators)
            EXPECT_THAT(ran.printed, HasSubstr(op + "  (implemented)"));
    }
}

// Operators whose functions no library has are not implemented; nothing else is wrong with it.
TEST(AclnnAdapter, MissingOperatorsAreNotImplemented) {
    const Ran listed = attncheck("list" + candidate(RUNTIME_LIBRARY));
    EXPECT_EQ(listed.status, 0) << listed.printed;
    EXPECT_THAT(listed.printed, Not(HasSubstr("(implemented)")));
    EXPECT_EQ(attncheck("verify --cases 1" + candidate(RUNTIME_LIBRARY)).status, 3);
}

/// One line on standard error, status 2.
void expect_refusal(const std::string& command, const std::vector<std::string>& mentions) {
    const Ran ran = run_line(command + " 2>&1 >/dev/null");
    EXPECT_EQ(ran.status, 2) << ran.printed;
    EXPECT_EQ(std::count(ran.printed.begin(), ran.printed.end(), '\n'), 1) << ran.printed;
    for (const std::string& part : mentions) EXPECT_THAT(ran.printed, HasSubstr(part));
}

// The message names what was looked for.
TEST(AclnnAdapter, UnusableLibrariesAreRefusedByName) {
    const std::string verify = quoted(COMMAND_PATH) + " verify";
    expect_refusal(verify + candidate("./nowhere/libopapi.so"),
                   {"./nowhere/libopapi.so", "no such file"});
    expect_refusal(verify + candidate("libattncheck_no_such_library.so"),
                   {"libattncheck_no_such_library.so", "cannot open shared object file"});
    expect_refusal(verify + candidate(std::string(ACL_LIBRARY) + ",,"), {"name is empty"});
    expect_refusal(verify + candidate(BUILTIN_LIBRARY),
                   {"no function aclInit", "aclrtMalloc", "libattncheck_builtin.so"});
    expect_refusal("ATTNCHECK_TEST_DEFECT=1 " + verify + candidate(RUNTIME_LIBRARY),
                   {"aclrtSetDevice(0) failed with 507899", "the driver is not loaded"});
}

// Half an operator would be judged with the other half of the library behind it.
TEST(AclnnAdapter, OperatorsThatAreNotWholeAreRefused) {
    const auto verify = [](const std::string& library) {
        return quoted(COMMAND_PATH) + " verify" + candidate(library + "," + ACL_LIBRARY);
    };
    const std::string first = "aclnnNsaCompressGetWorkspaceSize", second = "aclnnNsaCompress";
    expect_refusal(verify(FIRST_LIBRARY), {"vendor_HAS_FIRST.so has " + first + ", but not " + second + "\n"});
    expect_refusal(verify(SECOND_LIBRARY), {"vendor_HAS_SECOND.so has " + second + ", but not " + first + "\n"});
    expect_refusal(verify(CXX_LIBRARY), {"vendor_HAS_CXX_NAMES.so has " + first + " with a C++ name: declare it extern \"C\""});
    expect_refusal(verify(__FILE__), {"it is a source file: compile it with -shared -fPIC"});
}

// A rejection shows the vendor's status and its phase, too.
TEST(AclnnAdapter, StatusesOfTheVendorAreShown) {
    const Ran ran = with_defect("late", "verify --seed 1 --cases 5 --op nsa_compress --property agreement --time 20");
    EXPECT_EQ(ran.status, 1) << ran.printed;
    EXPECT_THAT(ran.printed, HasSubstr("it writes: aclnnNsaCompress: the second phase returned: 561103"));
}

// Two attributes swapped in a first phase show as wrong values or a rejected legal call.
TEST(AclnnAdapter, SwappedAttributesAreFound) {
    const Ran ran =
        with_defect("swapped", "verify --seed 1 --cases 20 --op nsa_compress --property agreement");
    EXPECT_EQ(ran.status, 1) << ran.printed;
    EXPECT_THAT(ran.printed, HasSubstr("FALSIFIED nsa_compress.agreement"));
    EXPECT_EQ(
        with_defect("none", "verify --seed 1 --cases 20 --op nsa_compress --property agreement")
            .status,
        0);
}

// What an operator writes on the device outside its outputs is found like any candidate's.
TEST(AclnnAdapter, StrayWritesOnTheDeviceAreFound) {
    const std::string memory = std::string("reproduce ") + kCase + " --property memory";
    const Ran past = with_defect("past_output", memory);
    EXPECT_EQ(past.status, 1) << past.printed;
    EXPECT_THAT(past.printed, AllOf(HasSubstr("out of bounds"), HasSubstr("output")));
    const Ran input = with_defect("writes_input", memory);
    EXPECT_EQ(input.status, 1) << input.printed;
    EXPECT_THAT(input.printed, AllOf(HasSubstr("FALSIFIED"), HasSubstr("input")));
}

// Behind the bytes that phase one asked for lies other memory.
TEST(AclnnAdapter, WritesBehindTheWorkspaceAreFound) {
    const Ran past = with_defect("past_workspace", std::string("reproduce ") + kCase + " --property agreement");
    EXPECT_EQ(past.status, 1) << past.printed;
    EXPECT_THAT(past.printed, AllOf(HasSubstr("FALSIFIED"), HasSubstr("behind the workspace it asked for")));
    const Ran rounding = with_defect("uses_rounding", std::string("reproduce ") + kCase + " --property agreement");
    EXPECT_EQ(rounding.status, 0) << rounding.printed;
}

// A caller may destroy descriptors when the second phase has returned, before the work has run.
TEST(AclnnAdapter, QueuedWorkThatReadsDescriptorsIsFound) {
    const Ran late = with_defect("reads_late", std::string("reproduce ") + kCase + " --property agreement");
    EXPECT_EQ(late.status, 1) << late.printed;
    EXPECT_THAT(late.printed, AllOf(HasSubstr("FALSIFIED"), HasSubstr("507015")));
}

// Kernels that are not installed are declined, other codes of either phase are rejections.
TEST(AclnnAdapter, VendorCodesBecomeTheContracts) {
    const std::string agreement = std::string("reproduce ") + kCase + " --property agreement";
    const Ran declined = with_defect("no_kernel", agreement);
    EXPECT_EQ(declined.status, 3) << declined.printed;
    EXPECT_THAT(declined.printed, AllOf(HasSubstr("declined"), HasSubstr("561112")));
    for (const std::string defect : {"tiling", "late"}) {
        const Ran rejected = with_defect(defect, agreement);
        EXPECT_EQ(rejected.status, 1) << rejected.printed;
        EXPECT_THAT(rejected.printed, AllOf(HasSubstr("161002"), HasSubstr("phase returned: 561")));
    }
}

// The list of the vendor's deviations can be read, and names operators and properties that exist.
TEST(AclnnAdapter, VendorWaiversAreReadable) {
    const Ran ran =
        attncheck("verify --seed 1 --cases 5 --op nsa_compress --property agreement --waive " +
                  quoted(VENDOR_WAIVERS) + candidate(""));
    EXPECT_EQ(ran.status, 0) << ran.printed;
}

// Help says that there is such a candidate.
TEST(AclnnAdapter, HelpMentionsIt) {
    EXPECT_THAT(attncheck("verify --help").printed, HasSubstr("aclnn:LIB"));
}

}  // namespace
}  // namespace attncheck::properties
