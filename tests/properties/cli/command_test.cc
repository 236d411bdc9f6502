// The program as people call it: exit status, messages, files, and Ctrl-C.
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <nlohmann/json.hpp>

#include "properties/report/exit_status.h"
#include "tests/properties/cli/command_fixture.h"
#include "tests/properties/report/xml_check.h"

namespace attncheck::properties {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Json = nlohmann::json;

constexpr const char* kCase =
    "'nsa_compress{dtype=fp16 seq=[16] heads=1 dim=16 block=16 stride=16 data=ones seed=0}'";

// Help is no error, for the program and each of its parts.
TEST_F(CommandTest, HelpOfEverySubcommandSucceeds) {
    for (const char* name : {"", "list", "verify", "reproduce", "judge", "merge", "explain", "cases", "mutants"}) {
        const Ran help = attncheck(std::string(name) + " --help");
        EXPECT_EQ(help.status, 0) << name;
        EXPECT_THAT(help.printed, HasSubstr("Usage")) << name;
        EXPECT_THAT(help.printed, HasSubstr(std::string("\nExample: attncheck ") + (*name ? name : "verify") + " ")) << name;
        std::istringstream lines(help.printed);
        for (std::string line; std::getline(lines, line);)
            EXPECT_LE(line.starts_with("Usage") ? 0 : line.size(), 80u) << name << ": " << line;
    }
    EXPECT_THAT(attncheck("verify --help").printed,
                AllOf(HasSubstr("--candidate"), HasSubstr("--shard"), HasSubstr("--junit"),
                      HasSubstr("--no-validation"), HasSubstr("--memory")));
}

// The list names every operator and what a library implements of them.
TEST_F(CommandTest, ListSaysWhatThereIs) {
    const Ran all = attncheck("list");
    EXPECT_EQ(all.status, 0);
    EXPECT_THAT(all.printed, AllOf(HasSubstr("nsa_compress\n"), HasSubstr("nsa_compress_grad\n"),
                                   HasSubstr("agreement"), HasSubstr("validation")));
    EXPECT_THAT(attncheck("list --json --op attention_merge").printed, AllOf(HasSubstr("\"attention_merge\": {"), Not(HasSubstr("nsa_compress"))));
    const Ran one = attncheck("list --candidate " + quoted(candidate_path("slow_but_correct")));
    EXPECT_THAT(one.printed, AllOf(HasSubstr("slow but correct"), HasSubstr("acc=fp32"),
                                   HasSubstr("nsa_compress  (implemented)"),
                                   HasSubstr("nsa_compress_grad  (not implemented)")));
}

// Status 0: the built-in implementation holds, in a report that programs can read.
TEST_F(CommandTest, BuiltInImplementationHolds) {
    const Ran ran = attncheck("verify --cases 5 --op nsa_compress --json " + file("out.json") +
                              " --junit " + file("out.xml") + " --html " + file("out.html"));
    EXPECT_EQ(ran.status, 0) << ran.printed;
    EXPECT_THAT(ran.printed, HasSubstr("every property held"));
    EXPECT_THAT(ran.printed, AllOf(Not(HasSubstr("\r")), Not(HasSubstr("\x1b"))));
    const Json json = Json::parse(text_of("out.json"));
    EXPECT_EQ(json.at("schema"), 1);
    EXPECT_FALSE(json.at("properties").empty());
    for (const Json& property : json["properties"]) EXPECT_NE(property.at("status"), "falsified");
    EXPECT_EQ(xml_error(text_of("out.xml")), "");
    EXPECT_THAT(text_of("out.html"), HasSubstr("</html>"));
    EXPECT_EQ(entries(), 3);
}

// Status 1: a counterexample with a line that replays it.
TEST_F(CommandTest, FalsifiedPropertyIsStatusOneAndReplays) {
    const std::string library = quoted(candidate_path("one_element_past_output"));
    const Ran ran = attncheck(
        "verify --stop-at-first --property memory --op nsa_compress "
        "--candidate " +
        library);
    EXPECT_EQ(ran.status, 1);
    const auto at = ran.printed.find("attncheck reproduce ");
    ASSERT_NE(at, std::string::npos) << ran.printed;
    const auto line = ran.printed.substr(at + 10, ran.printed.find('\n', at) - at - 10);
    const Ran again = attncheck(line);
    EXPECT_EQ(again.status, 1) << line;
    EXPECT_THAT(again.printed, HasSubstr("out of bounds: output"));
}

// fp8 is legal under one platform profile only: the case line is judged by the profile of the run.
TEST_F(CommandTest, ReproduceJudgesTheCaseByItsProfile) {
    const std::string line =
        "reproduce 'flash_attention_score_grad{dtype=fp8_e5m2 q=[1] kv=[1] layout=BSH kv_heads=1 "
        "group=1 dim=1 value_dim=1 data=zeros seed=0}' --property agreement";
    expect_refusal(line, {"fp8", "--profile ascend950"});
    const Ran ran = attncheck(line + " --profile ascend950");
    EXPECT_EQ(ran.status, 0) << ran.printed;
    EXPECT_THAT(ran.printed, AllOf(HasSubstr("by the contract: legal"), HasSubstr("held")));
}

// The replay line names the profile, unless it is the usual one.
TEST_F(CommandTest, ReplayLineNamesTheProfile) {
    const std::string command =
        "verify --stop-at-first --property memory --op nsa_compress --candidate " +
        quoted(candidate_path("one_element_past_output"));
    EXPECT_THAT(attncheck(command + " --profile ascend950").printed,
                HasSubstr("--property memory --profile ascend950"));
    EXPECT_THAT(attncheck(command).printed, Not(HasSubstr("--profile")));
}

// Status 3: declined throughout, or no operator in common.
TEST_F(CommandTest, NothingCheckedIsStatusThree) {
    const Ran declined =
        attncheck("verify --no-validation --cases 5 --op nsa_compress --candidate " +
                  quoted(candidate_path("declines")));
    EXPECT_EQ(declined.status, 3) << declined.printed;
    EXPECT_THAT(declined.printed, HasSubstr("nothing was checked"));
    EXPECT_EQ(attncheck("verify --cases 5 --op nsa_compress_grad --candidate " +
                        quoted(candidate_path("declines")))
                  .status,
              3);
    EXPECT_EQ(attncheck(std::string("reproduce ") + kCase + " --candidate " +
                        quoted(candidate_path("declines")))
                  .status,
              3);
}

// A program that is emitted compares with bounds; what other laws found it may not see.
TEST_F(CommandTest, EmittedProgramsSayWhatTheyDoNotCheck) {
    const std::string emit = "reproduce 'attention_merge{dtype=fp16 parts=2 rows=1 heads=1 dim=1 weights=equal data=zeros seed=0}' --emit c --property ";
    EXPECT_THAT(attncheck(emit + "deviation").printed, AllOf(HasSubstr("note: deviation found this"), HasSubstr("int main")));
    EXPECT_THAT(attncheck(emit + "agreement").printed, Not(HasSubstr("note:")));
    EXPECT_EQ(attncheck("reproduce '  attention_merge{dtype=fp16 parts=2 rows=1 heads=1 dim=1 weights=equal data=zeros seed=0}' --emit c").status, 0)
        << "a line as reports indent it";
}

// More time is no help where everything is declined at once.
TEST_F(CommandTest, NoTimeIsOverWhereNothingIsTaken) {
    const Ran ran = attncheck("verify --seed 1 --no-validation --candidate " + quoted(candidate_path("declines")));
    EXPECT_EQ(ran.status, 3);
    EXPECT_THAT(ran.printed, Not(HasSubstr("the usual")));
}

// What a library takes can be declared; what no operator or field is called is named, with what is.
TEST_F(CommandTest, FeaturesAreDeclared) {
    const std::string line = "verify --op flash_attention_score --property memory --no-validation "
                             "--cases 20 --seed 1 --candidate " +
                             quoted(std::string(RESTRICTED_DIR) + "/tiled_flash_0.so") +
                             " --features ";
    expect_refusal(line + "'flash_attention_score: dims=64'", {"--features", "unknown field 'dims'"});
    expect_refusal(line + "'flash_attention_score: outputs=lse'",
                   {"--features", "unknown output 'lse'", "attention_out"});
    expect_refusal(line + "'flash: dim=64'", {"--features", "unknown operator 'flash', did you mean 'flash_attention_score'?"});
    expect_refusal(line + "'dim=64'", {"names no operator"});
    const Ran declined = attncheck(line + "'flash_attention_score: dim=7' -v");
    EXPECT_EQ(declined.status, 3) << declined.printed;
    EXPECT_THAT(declined.printed, HasSubstr("inside of what is declared was declined"));
}

// A misspelt export is named with the entry point that it resembles, and an operator that must be
// there can be asked for.
TEST_F(CommandTest, MisspeltExportsAreNamed) {
    const std::string library = quoted(candidate_path("misspelt_export"));
    const std::string note =
        "the library exports attncheck_flash_attention_scores, which is no entry point "
        "(attncheck_flash_attention_score is one)";
    const std::string verify =
        "verify --op nsa_compress --property repeatable --cases 3 --candidate " + library;
    const Ran ran = attncheck(verify + " --require nsa_compress");
    EXPECT_EQ(ran.status, 0) << ran.printed;
    EXPECT_THAT(ran.printed, HasSubstr("note: " + note));
    EXPECT_THAT(attncheck("list --candidate " + library).printed, HasSubstr(note));
    EXPECT_THAT(attncheck("list --candidate " + quoted(candidate_path("prints"))).printed,
                Not(HasSubstr("no entry point")));
    expect_refusal(verify + " --require flash_attention_score",
                   {"--require flash_attention_score", "does not implement"});
    expect_refusal(verify + " --require flash", {"unknown operator 'flash'"});
}

// No operator has a case that does not fit into memory: the tensor, its size and the limit are
// named.
TEST_F(CommandTest, CasesHaveABudget) {
    expect_refusal(
        "reproduce 'nsa_compress{dtype=fp16 seq=[1048576] heads=128 dim=256 block=16 stride=16 "
        "data=ones seed=0}'",
        {"input has 34359738368 elements", "[1048576,128,256]", "67108864"});
    expect_refusal(
        "reproduce 'flash_attention_score{dtype=fp16 q=[1000000] kv=[1] layout=BSND kv_heads=1 "
        "group=256 dim=512 value_dim=512 data=ones seed=0}'",
        {"query has 131072000000 elements"});
}

// Few accepted cases are no verdict: a kernel that takes one case of hundreds is asked for those.
TEST_F(CommandTest, CasesOfARestrictedKernelAreAccepted) {
    const Ran ran = attncheck(
        "verify --op flash_attention_score --property memory --no-validation --cases 40 --seed 1 "
        "--json " + file("out.json") + " --candidate " +
        quoted(std::string(RESTRICTED_DIR) + "/tiled_flash_0.so"));
    EXPECT_EQ(ran.status, 0) << ran.printed;
    EXPECT_THAT(ran.printed, HasSubstr("flash_attention_score takes only "));
    const Json json = Json::parse(text_of("out.json"));
    EXPECT_EQ(json.at("properties").at(0).at("cases"), 40);
    EXPECT_THAT(json.at("takes").at("flash_attention_score").at("cases").get<std::string>(),
                HasSubstr("dim=64,128"));
}

// Buffers are aligned to elements only; a library may decline addresses that it cannot load from, and is judged at others.
TEST_F(CommandTest, AddressesAreAlignedToElementsOnly) {
    const std::string line = "verify --op nsa_compress --property repeatable --features 'nsa_compress: dim=16,64' "
                             "--cases 30 --env ROUNDS_ADDRESSES --candidate " +
                             candidate_path("rounds_addresses");
    const Ran rounds = run_line("ROUNDS_ADDRESSES=always " + quoted(COMMAND_PATH) + " " + line + " 2>&1");
    EXPECT_EQ(rounds.status, 1) << rounds.printed;
    EXPECT_THAT(rounds.printed, HasSubstr("aligned to elements only"));
    const Ran declines = run_line("ROUNDS_ADDRESSES=declines " + quoted(COMMAND_PATH) + " " + line + " 2>&1");
    EXPECT_EQ(declines.status, 0) << declines.printed;
}

// Status 4: a library that is gone before the workers start is nobody's counterexample.
TEST_F(CommandTest, TroubleOfTheSystemIsStatusFour) {
    std::filesystem::copy_file(candidate_path("slow_but_correct"), file("slow.so"));
    for (const char* jobs : {"1", "2"}) {
        const Ran ran = run_line(
            "(sleep 0.7; touch " + file("slow.so") + ") & " + quoted(COMMAND_PATH) +
            " verify --op nsa_compress --property history --property repeatable --cases 6 --features 'nsa_compress: "
            "dtype=fp16,bf16' --json " +  // declared: nothing is learned first
            file("out.json") + " --jobs " + jobs + " --candidate " + file("slow.so") + " 2>&1");
        EXPECT_EQ(ran.status, 4) << ran.printed;
        const std::string on_one_line = std::regex_replace(ran.printed, std::regex("\\s+"), " ");  // it is broken at 80 columns
        EXPECT_THAT(on_one_line, AllOf(HasSubstr("the library changed"),
                                       HasSubstr("could not be judged; nothing was falsified"),
                                       Not(HasSubstr("FALSIFIED"))));
        EXPECT_EQ(Json::parse(text_of("out.json")).at("exit_status"), 4);
    }
}

// A kernel of a fifth of a second per call keeps a limit of one second, whatever is repeated.
TEST_F(CommandTest, RepetitionsOfSlowCallsKeepTheLimit) {
    const Ran ran = attncheck(
        "verify --op nsa_compress --property concurrent --cases 1 --timeout 1 --candidate " +
        quoted(candidate_path("slow_but_correct")));
    EXPECT_EQ(ran.status, 0) << ran.printed;
}

// --time is for cases: a library that takes as long to load gets them all the same.
TEST_F(CommandTest, LoadingTakesNothingFromTheTime) {
    const Ran ran = attncheck("verify --op nsa_compress --property agreement --time 0.8 --jobs 1 --json " + file("out.json") +
                              " --candidate " + quoted(candidate_path("loads_slowly")));
    EXPECT_GT(Json::parse(text_of("out.json")).at("properties").at(0).at("cases"), 5) << ran.printed;
}

// It may have asked for what the walls keep away.
TEST_F(CommandTest, CrashOfALoadedLibraryNamesTheWalls) {
    const std::string verify = "verify --candidate " + quoted(candidate_path("crashes_when_loaded"));
    EXPECT_THAT(attncheck(verify).printed, HasSubstr("SIGSEGV while it was loaded; --sandbox off shows whether"));
    EXPECT_THAT(attncheck(verify + " --sandbox off").printed, Not(HasSubstr("; --sandbox off shows")));
}

TEST_F(CommandTest, VersionIsTold) {
    const Ran ran = attncheck("--version");
    EXPECT_EQ(ran.status, 0);
    EXPECT_THAT(ran.printed, testing::MatchesRegex("attncheck [0-9]+[.][0-9]+[.][0-9]+\n"));
}

// A library without checks is told so when the first illegal call is found and at the end, not for every argument.
TEST_F(CommandTest, MissingChecksAreToldOnce) {
    const Ran ran = attncheck("verify --property validation --cases 60 --seed 1 --shrink 1 --candidate " +
                              quoted(candidate_path("slow_but_correct")));
    EXPECT_EQ(ran.status, 1);
    EXPECT_THAT(ran.printed, HasSubstr("a library that checks no arguments: --no-validation leaves such calls out"));
    EXPECT_THAT(ran.printed, HasSubstr("@1 nsa_compress: the library checks no arguments"));
    EXPECT_THAT(ran.printed, Not(HasSubstr("also nsa_compress.validation")));
    EXPECT_THAT(ran.printed, HasSubstr("falsified: 1 cause in 1 law\n"));
}

// Help and README say the same of every exit status.
TEST_F(CommandTest, ExitStatusesAreDocumented) {
    std::string readme, help = attncheck("--help").printed;
    std::ifstream in(README_PATH);
    for (std::string line; std::getline(in, line);) readme += line + " ";
    std::istringstream words(help);
    std::string on_one_line;
    for (std::string word; words >> word;) on_one_line += word + " ";
    for (const ExitMeaning& one : kExitMeanings)
        EXPECT_THAT(on_one_line, HasSubstr(" " + std::to_string(one.status) + " " + one.meaning + " "));
    EXPECT_THAT(readme, HasSubstr("Exit status: " + exit_meanings() + "."));
}

// Status 2: names that do not exist come with those that do.
TEST_F(CommandTest, UnknownNamesListTheKnownOnes) {
    expect_refusal("verify --op unlike", {"'unlike'", "known:", "nsa_compress", "nsa_compress_grad"});
    expect_refusal("verify --property qwertz", {"'qwertz'", "known:", "agreement", "memory"});
    expect_refusal(std::string("reproduce ") + kCase + " --property qwertz",
                   {"'qwertz'", "known:", "agreement", "memory"});
    // One that is misspelt is answered with what was meant, not with a hundred names.
    expect_refusal("verify --op nsa_compres", {"'nsa_compres', did you mean 'nsa_compress'?"});
    expect_refusal(std::string("reproduce ") + kCase + " --property agreemnt",
                   {"'agreemnt', did you mean 'agreement'?"});
    expect_refusal("verify --op attention --property adjoint", {"attention has no property 'adjoint'"});
}

// Status 2: cases that cannot be read or are not legal.
TEST_F(CommandTest, UnreadableCaseIsRefusedWithItsWord) {
    expect_refusal("reproduce 'nsa_compress{heads=many}'", {"heads", "'many'"});
    expect_refusal("reproduce nonsense", {"nonsense"});
    expect_refusal(
        "reproduce 'nsa_compress{dtype=fp16 seq=[16] heads=1 dim=16 block=16 stride=32}'",
        {"stride=32"});
}

// Two lengths are no length.
TEST_F(CommandTest, BlanksInListsAreRefused) {
    const std::string line = "reproduce 'nsa_compress{dtype=fp16 seq=[%] heads=1 dim=16 block=16 "
                             "stride=16 data=ones seed=0 set=[input[0, 0, 0] = 1]}'";
    const auto with = [&](const char* lengths) {
        return std::string(line).replace(line.find('%'), 1, lengths);
    };
    expect_refusal(with("1 28"), {"'1 28]", "separated by commas"});
    expect_refusal(with("16,1\t6"), {"separated by commas"});
    EXPECT_EQ(attncheck(with(" 16 , 16 ")).status, 0);
}

// Status 2: libraries that cannot be loaded.
TEST_F(CommandTest, MissingLibraryIsRefused) {
    expect_refusal("verify --candidate ./nowhere.so", {"./nowhere.so", "no such file"});
    expect_refusal("verify --candidate " + quoted(candidate_path("wrong_version")),
                   {"ABI version 77"});
    expect_refusal("list --candidate " + quoted(candidate_path("no_name_symbol")),
                   {"attncheck_candidate_name"});
}

// Status 2 before anything runs: a report that could not be written in the end.
TEST_F(CommandTest, UnwritableReportIsRefusedAtOnce) {
    for (const char* option : {"--json", "--junit", "--html"})
        expect_refusal(std::string("verify --cases 5 ") + option + " " + file("missing/report"),
                       {"cannot write", "missing/report"});
    EXPECT_EQ(entries(), 0);
}

// Status 2: numbers out of their range.
TEST_F(CommandTest, BadNumbersAreStatusTwo) {
    for (const char* arguments :
         {"", "verify --cases 0", "verify --cases x", "verify --shard 3/2", "verify --shard 1",
          "verify --timeout -1", "verify --profile other", "verify --precision nonsense",
          "verify --nonsense", "merge", "reproduce", "verify --waive /nowhere"})
        EXPECT_EQ(attncheck(arguments).status, 2) << arguments;
}

// Shards merge into one report; foreign files do not.
TEST_F(CommandTest, ShardsMerge) {
    const std::string verify =
        "verify --op nsa_compress --property repeatable --property memory --cases 10 --shard ";
    ASSERT_EQ(attncheck(verify + "1/2 --json " + file("1.json")).status, 0);
    ASSERT_EQ(attncheck(verify + "2/2 --json " + file("2.json")).status, 0);
    const Ran whole =
        attncheck("merge " + file("1.json") + " " + file("2.json") + " --json " + file("all.json"));
    EXPECT_EQ(whole.status, 0) << whole.printed;
    EXPECT_EQ(Json::parse(text_of("all.json"))["properties"][0]["cases"], 10);
    for (const char* part : {"1", "2"}) {
        const Ran missing = attncheck("merge " + file(std::string(part) + ".json"));
        EXPECT_EQ(missing.status, 2);
        EXPECT_THAT(missing.printed, HasSubstr("--partial"));
        // A law that no report has neither holds nor is forgotten.
        const Ran some = attncheck("merge --partial " + file(std::string(part) + ".json") + " --json " + file("some.json"));
        EXPECT_EQ(some.status, 3);
        EXPECT_THAT(some.printed, AllOf(HasSubstr(part == std::string("1") ? "no report of shard 2 of 2; not run: nsa_compress."
                                                                           : "no report of shard 1 of 2; not run: nsa_compress."),
                                        HasSubstr("inconclusive: nothing falsified, but not every law was run"), Not(HasSubstr("nothing was checked"))));
    }
    EXPECT_THAT(whole.printed, AllOf(HasSubstr("2/2        20"), HasSubstr("20 cases in "), HasSubstr("every property held")));
    expect_refusal("merge " + file("1.json") + " " + file("1.json"), {"1.json", "shard 1"});
    const Json json = Json::parse(text_of("1.json"));
    EXPECT_EQ(json.at("library_sha256").get<std::string>().size(), 64u);
    EXPECT_EQ(json.at("options").at("cases"), 10);
    EXPECT_EQ(json.at("exit_status"), 0);
    EXPECT_FALSE(json.at("version").get<std::string>().empty());
    EXPECT_EQ(json.at("hosts").size(), 1u);
    std::ofstream(file("bad.json")) << "{}";
    expect_refusal("merge " + file("1.json") + " " + file("bad.json"), {"bad.json"});
    expect_refusal("merge " + file("none.json"), {"none.json"});
}

// Runners that shard tests tell a program in the environment which part it is, and that it has to say so.
TEST_F(CommandTest, RunnersOfShardsAreUnderstood) {
    const std::string rest = " GTEST_SHARD_STATUS_FILE=" + file("known") + " " + quoted(COMMAND_PATH) +
                             " verify --op nsa_compress --property repeatable --cases 5 --json " + file("part.json") + " 2>&1";
    const Ran ran = run_line("GTEST_TOTAL_SHARDS=3 GTEST_SHARD_INDEX=2" + rest);
    EXPECT_EQ(ran.status, 0) << ran.printed;
    EXPECT_EQ(Json::parse(text_of("part.json"))["shard"], Json({{"parts", {3}}, {"of", 3}}));
    EXPECT_EQ(Json::parse(text_of("part.json"))["seed"], 1);
    EXPECT_TRUE(std::filesystem::exists(file("known")));
    for (const char* wrong : {"GTEST_TOTAL_SHARDS=3 GTEST_SHARD_INDEX=3", "GTEST_TOTAL_SHARDS=3 GTEST_SHARD_INDEX=x", "GTEST_TOTAL_SHARDS=3"})
        EXPECT_EQ(run_line(wrong + rest).status, 2) << wrong;
}

// The candidate's own printing stays out of standard output.
TEST_F(CommandTest, CandidateThatPrintsDoesNotSpoilTheTable) {
    const Ran ran = attncheck(
        "verify --no-validation --cases 3 --op nsa_compress --property memory "
        "--candidate " +
        quoted(candidate_path("prints")));
    EXPECT_EQ(ran.status, 0) << ran.printed;
    EXPECT_THAT(ran.printed, Not(HasSubstr("NOISE")));
}

// Ctrl-C in a long run: the table so far, the report file, and status 130.
TEST_F(CommandTest, InterruptPrintsTheTableSoFar) {
    const Ran ran = run_line("timeout --preserve-status -s INT 2 " + quoted(COMMAND_PATH) +
                             " verify --op nsa_compress --property agreement --cases 100000000 "
                             "--json " +
                             file("out.json") + " 2>&1");
    EXPECT_EQ(ran.status, 130) << ran.printed;
    EXPECT_THAT(ran.printed, AllOf(HasSubstr("operator "), HasSubstr("agreement"),
                                   HasSubstr("interrupted: this is what was found so far")));
    const Json json = Json::parse(text_of("out.json"));
    EXPECT_EQ(json.at("interrupted"), true);
    EXPECT_GT(json["properties"][0].at("cases"), 0);
}

}  // namespace
}  // namespace attncheck::properties
