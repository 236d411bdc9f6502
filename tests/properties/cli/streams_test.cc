// What surrounds the program when it is called: closed and full streams, odd report names, unset
// variables, limits of the shell.
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <nlohmann/json.hpp>

#include "properties/case/printable.h"
#include "tests/properties/cli/command_fixture.h"

namespace attncheck::properties {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;
using Json = nlohmann::json;

const std::string kWithoutJobs = "verify --op nsa_compress --property repeatable --cases 3",
                  kShort = kWithoutJobs + " --jobs 1";

class StreamsTest : public CommandTest {
protected:
    static mode_t kind_of(const std::string& path) {
        struct stat status {};
        return lstat(path.c_str(), &status) == 0 ? status.st_mode & S_IFMT : 0;
    }
};

// A link stays a link, and the file it leads to has the report.
TEST_F(StreamsTest, ReportsFollowLinks) {
    for (const char* target : {"there.json", "missing.json"}) {
        std::filesystem::remove(file("link"));
        std::filesystem::create_symlink(target, file("link"));
        write("there.json", "old");
        EXPECT_EQ(attncheck(kShort + " --json " + file("link")).status, 0);
        EXPECT_EQ(kind_of(file("link")), static_cast<mode_t>(S_IFLNK));
        EXPECT_EQ(Json::parse(text_of(target)).at("schema"), 1) << target;
    }
}

// A pipe gets the report and stays a pipe.
TEST_F(StreamsTest, ReportsGoThroughPipes) {
    ASSERT_EQ(mkfifo(file("pipe").c_str(), 0600), 0);
    const Ran ran = run_line("cat " + file("pipe") + " > " + file("copy") + " & " +
                             quoted(COMMAND_PATH) + " " + kShort + " --json " + file("pipe") +
                             " 2>&1; status=$?; wait; exit $status");
    EXPECT_EQ(ran.status, 0) << ran.printed;
    EXPECT_EQ(kind_of(file("pipe")), static_cast<mode_t>(S_IFIFO));
    EXPECT_EQ(Json::parse(text_of("copy")).at("schema"), 1);
}

// Standard output is where it leads, whether that is a pipe or a file that has text already. The
// link is as /dev/stdout is, and no loss when a defect replaces it.
TEST_F(StreamsTest, ReportsGoToStandardOutput) {
    std::filesystem::create_symlink("/proc/self/fd/1", file("stdout"));
    for (const std::string& name : {file("stdout"), std::string("/dev/fd/1")}) {
        const Ran piped = attncheck(kShort + " --json " + name, "2>/dev/null");
        EXPECT_EQ(piped.status, 0) << name;
        EXPECT_THAT(piped.printed, AllOf(StartsWith("checking"), HasSubstr("\"schema\": 1")));
        const Ran ran = attncheck(kShort + " --json " + name, "2>&1 > " + file("out"));
        EXPECT_EQ(ran.status, 0) << ran.printed;
        EXPECT_THAT(text_of("out"), AllOf(StartsWith("checking"), HasSubstr("every property held"),
                                          HasSubstr("\"schema\": 1")));
    }
    EXPECT_EQ(kind_of(file("stdout")), static_cast<mode_t>(S_IFLNK));
}

// A device is written to, never replaced.
TEST_F(StreamsTest, ReportsLeaveDevicesAlone) {
    if (mknod(file("null").c_str(), S_IFCHR | 0600, makedev(1, 3)) != 0)
        GTEST_SKIP() << "only root makes devices";
    for (const char* option : {"--json", "--junit", "--html"}) {
        EXPECT_EQ(attncheck(kShort + " " + option + " " + file("null")).status, 0) << option;
        EXPECT_EQ(kind_of(file("null")), static_cast<mode_t>(S_IFCHR)) << option;
    }
}

// A report keeps the permissions of the file that it replaces.
TEST_F(StreamsTest, ReportsKeepPermissions) {
    write("out.json", "old");
    std::filesystem::permissions(file("out.json"), std::filesystem::perms::owner_read |
                                                       std::filesystem::perms::owner_write |
                                                       std::filesystem::perms::others_read);
    EXPECT_EQ(attncheck(kShort + " --json " + file("out.json")).status, 0);
    struct stat status {};
    ASSERT_EQ(stat(file("out.json").c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777u, 0604u);
}

// An unset variable of a script is no library, and no other option either.
TEST_F(StreamsTest, EmptyValuesAreRefused) {
    for (const char* option : {"--candidate", "--precision", "--json", "--junit", "--html",
                               "--corpus", "--waive", "--op", "--property", "--shard"}) {
        const Ran ran = attncheck(kShort + " " + option + " ''");
        EXPECT_EQ(ran.status, 2) << option;
        EXPECT_THAT(ran.printed, AllOf(HasSubstr(option), HasSubstr("empty"))) << option;
    }
    EXPECT_EQ(attncheck("list --candidate ''").status, 2);
    EXPECT_EQ(attncheck("merge ''").status, 2);
    EXPECT_EQ(attncheck("mutants --json ''").status, 2);
}

// What is no number of seconds is no limit.
TEST_F(StreamsTest, LimitsAreFiniteNumbers) {
    for (const char* limit : {"--timeout", "--time", "--shrink"})
        for (const char* value : {"nan", "-nan", "inf", "-1"})
            EXPECT_EQ(attncheck(kShort + " " + limit + " " + value).status, 2)
                << limit << " " << value;
    EXPECT_EQ(attncheck("mutants --list --limit nan").status, 2);
}

// A seed is what it says, and two reports do not take each other's place.
TEST_F(StreamsTest, OptionsAreWhatTheySay) {
    for (const char* seed : {"-1", "1.5", "99999999999999999999", "0x"})
        EXPECT_EQ(attncheck(kShort + " --seed " + seed).status, 2) << seed;
    EXPECT_EQ(attncheck(kShort + " --seed 18446744073709551615").status, 0);
    expect_refusal(kShort + " --json " + file("x") + " --junit " + file("x"),
                   {"two reports have the name"});
    expect_refusal(kShort + " --json " + file("x") + " --html " + file("./x"),
                   {"two reports have the name"});
    expect_refusal(kShort + " --precision 'acc=fp32 p=half acc=half'", {"'acc' is given twice"});
}

// A waiver is counted in the last line, one that matches nothing is named.
TEST_F(StreamsTest, WaiversAreMentioned) {
    write("waivers", "nsa_compress memory * writes past the end\n* history multi_head nothing\n");
    const Ran ran = attncheck("verify --op nsa_compress --property memory --cases 5 --waive " +
                              file("waivers") + " --candidate " +
                              quoted(candidate_path("one_element_past_output")));
    EXPECT_EQ(ran.status, 0) << ran.printed;
    EXPECT_THAT(ran.printed,
                AllOf(HasSubstr("every property held, 5 cases waived"),
                      HasSubstr("no failure matched the waiver '* history multi_head nothing'"),
                      Not(HasSubstr("waiver 'nsa_compress"))));
}

// A folder that is not there has no cases, which is said: it may be misspelt.
TEST_F(StreamsTest, MissingCorpusIsMentioned) {
    const Ran ran = attncheck(kShort + " --corpus " + file("corpsu"));
    EXPECT_EQ(ran.status, 0);
    EXPECT_THAT(ran.printed, HasSubstr("corpsu of --corpus is not there yet"));
}

/// The first byte that a terminal would obey or that is no UTF-8, as text; empty: there is none.
std::string odd_byte(const std::string& text) {
    return printable(text) == text ? "" : "odd bytes in\n" + printable(text);
}

// A library's name reaches no output as it is.
TEST_F(StreamsTest, NamesArePrintableInEveryOutput) {
    const Ran ran = attncheck("verify --op nsa_compress --property memory --cases 3 --jobs 1 --json " +
                              file("out.json") + " --junit " + file("out.xml") + " --html " +
                              file("out.html") + " --candidate " +
                              quoted(candidate_path("odd_name")));
    EXPECT_EQ(ran.status, 0) << ran.printed;
    EXPECT_EQ(odd_byte(ran.printed), "");
    for (const char* name : {"out.json", "out.xml", "out.html"}) {
        EXPECT_EQ(odd_byte(text_of(name)), "") << name;
        EXPECT_THAT(text_of(name), HasSubstr("odd ?]0;title")) << name;
    }
    // Nor does what was typed, back in a message.
    const Ran refused = attncheck("reproduce 'nsa_compress{heads=\x1b[2J}'");
    EXPECT_EQ(refused.status, 2);
    EXPECT_EQ(odd_byte(refused.printed), "");
    EXPECT_EQ(odd_byte(attncheck("verify --candidate '/tmp/\x1b[2J.so'").printed), "");
}

// Any standard stream may be closed.
TEST_F(StreamsTest, ClosedStreamsDoNoHarm) {
    for (const char* closed : {"<&-", ">&-", "2>&-", "<&- 2>&-", "<&- >&- 2>&-"})
        for (const char* jobs : {" --jobs 1", " --jobs 2"}) {
            std::filesystem::remove(file("out.json"));
            const Ran ran =
                attncheck(kWithoutJobs + jobs + " --json " + file("out.json"), closed);
            EXPECT_EQ(ran.status, 0) << closed << jobs;
            EXPECT_EQ(Json::parse(text_of("out.json"))["properties"][0]["status"], "held")
                << closed << jobs;
        }
}

// A reader that has seen enough costs neither the verdict nor the report.
TEST_F(StreamsTest, ClosedPipeKeepsVerdictAndReport) {
    const Ran ran = run_line("{ " + quoted(COMMAND_PATH) +
                             " verify --thorough --op nsa_compress --property memory --candidate " +
                             quoted(candidate_path("one_element_past_output")) + " --json " +
                             file("out.json") + "; echo $? > " + file("status") +
                             "; } 2>&1 | head -1");
    EXPECT_EQ(text_of("status"), "1\n");
    EXPECT_EQ(Json::parse(text_of("out.json"))["properties"][0]["status"], "falsified");
}

TEST_F(StreamsTest, FullDiskUnderStandardOutputIsNoSuccess) {
    const Ran ran = attncheck(kShort + " --json " + file("1.json"), "2>&1 >/dev/full");
    EXPECT_EQ(ran.status, 2);
    EXPECT_THAT(ran.printed, HasSubstr("standard output"));
    EXPECT_EQ(Json::parse(text_of("1.json"))["properties"][0]["status"], "held");
    EXPECT_EQ(attncheck("merge " + file("1.json"), "2>/dev/null >/dev/full").status, 2);
    EXPECT_EQ(attncheck("list", "2>/dev/null >/dev/full").status, 2);
}

TEST_F(StreamsTest, FileSizeLimitIsNamed) {
    const Ran ran = run_line("ulimit -f 100; " + quoted(COMMAND_PATH) + " " + kShort + " 2>&1");
    EXPECT_EQ(ran.status, 2) << ran.printed;
    EXPECT_THAT(ran.printed, HasSubstr("ulimit -f"));
}

}  // namespace
}  // namespace attncheck::properties
