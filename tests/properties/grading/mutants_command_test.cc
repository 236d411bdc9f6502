// `attncheck mutants`: what it grades, what it refuses, and the files it writes.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/properties/cli/command_fixture.h"

namespace attncheck::properties {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using Json = nlohmann::json;

class MutantsCommandTest : public CommandTest {
protected:
    static Ran grade(const std::string& arguments) {
        return attncheck("mutants " + quoted(MUTANTS_PATH) + " --shrink 5 " + arguments);
    }
};

// NC-01 is a wrong block count, VAL-07 a missing check of an argument, NC-07 leaves elements
// unwritten.
TEST_F(MutantsCommandTest, SaysWhatKilledEachAndHowSmall) {
    const Ran ran = grade("--only NC-01,VAL-07,NC-07 --json " + file("scores.json"));
    ASSERT_EQ(ran.status, 0) << ran.printed;
    EXPECT_THAT(ran.printed, AllOf(HasSubstr("3 mutants, 3 killed; 0 of the 3"),
                                   HasSubstr("3 of 3 smallest cases are certified")));
    const Json list = Json::parse(text_of("scores.json")).at("mutants");
    ASSERT_EQ(list.size(), 3);
    std::map<std::string, std::string> tiers;
    for (const Json& one : list) {
        tiers[one.at("id")] = one.at("tier");
        EXPECT_TRUE(one.at("killed"));
        EXPECT_GT(one.at("cases"), 0);
        EXPECT_GT(one.at("elements"), 0);
    }
    EXPECT_EQ(tiers["NC-01"], "bound");
    EXPECT_EQ(tiers["VAL-07"], "validation");
    EXPECT_EQ(tiers["NC-07"], "memory");
}

// A survivor that breaks a promise is status 1: nothing else would make a build fail. This one
// needs more than the zero seconds it gets.
TEST_F(MutantsCommandTest, SurvivorIsStatusOne) {
    const Ran ran = grade("--only NC-01 --limit 0.001");
    EXPECT_EQ(ran.status, 1);
    EXPECT_THAT(ran.printed, AllOf(HasSubstr("SURVIVED"), HasSubstr("1 of the 1")));
}

TEST_F(MutantsCommandTest, LibraryWithOneDefectIsOneMutant) {
    const Ran ran = attncheck("mutants " + quoted(candidate_path("one_element_past_output")));
    EXPECT_EQ(ran.status, 0) << ran.printed;
    EXPECT_THAT(ran.printed, AllOf(HasSubstr("one_element_past_output"), HasSubstr("killed"),
                                   HasSubstr("memory"), HasSubstr("1 mutants, 1 killed")));
}

TEST_F(MutantsCommandTest, ListRunsNothing) {
    const Ran ran = grade("--list --family NsaCompress --ids catalogue");
    EXPECT_EQ(ran.status, 0);
    EXPECT_THAT(ran.printed,
                AllOf(HasSubstr("NCG-02"), Not(HasSubstr("NC-x01")), Not(HasSubstr("NSF-"))));
}

// Which mutants are still killed under each word of --precision; one that is not killed without a word does not count.
TEST_F(MutantsCommandTest, WordsAreGraded) {
    write("words.md", "before\n<!-- words:begin -->\nold\n<!-- words:end -->\nafter\n");
    const Ran ran = grade("--only 'NC-0?' --every 9 --cases 2 --words " + file("words.md"));
    ASSERT_EQ(ran.status, 0) << ran.printed;
    const std::string text = text_of("words.md");
    EXPECT_THAT(text, AllOf(HasSubstr("before\n"), HasSubstr("| none | 1/1 | 1/1 |  |"),
                            HasSubstr("| `acc=half` | 1/1 |"), Not(HasSubstr("old")),
                            HasSubstr("<!-- words:end -->\nafter")));
}

// A limit of time, which a busy machine reaches sooner, makes no survivors.
TEST_F(MutantsCommandTest, WordsNameMutantsThatWereCutOff) {
    write("words.md", "<!-- words:begin -->\n<!-- words:end -->\n");
    const Ran ran = grade("--only NC-01 --cases 2 --limit 0.01 --words " + file("words.md"));
    EXPECT_EQ(ran.status, 1) << ran.printed;
    EXPECT_THAT(ran.printed, HasSubstr("the limit of time cut off mutants"));
    EXPECT_THAT(text_of("words.md"), HasSubstr("| none | 0/1 | 0/1 | NC-01 (cut off) |"));
}

TEST_F(MutantsCommandTest, UnknownNamesAreRefused) {
    expect_refusal("mutants " + quoted(MUTANTS_PATH) + " --only NC-999", {"NC-999", "--list"});
    expect_refusal("mutants " + quoted(MUTANTS_PATH) + " --family Nsa", {"family 'Nsa'"});
    expect_refusal("mutants /nowhere/lib.so", {"/nowhere/lib.so"});
    expect_refusal("mutants " + quoted(MUTANTS_PATH) + " --only NC-01 --earlier /nowhere.json",
                   {"/nowhere.json"});
}

// The property that killed a mutant before is tried first: NC-x27 needs a deep overlap and a share
// of windows of its own, which a whole run comes to after more than a hundred cases.
TEST_F(MutantsCommandTest, EarlierKillerIsTriedFirst) {
    write("earlier.json",
          R"({"schema":1,"mutants":[{"id":"NC-x27","property":"nsa_compress.deviation"}]})");
    const Ran ran =
        grade("--only NC-x27 --earlier " + file("earlier.json") + " --json " + file("scores.json"));
    ASSERT_EQ(ran.status, 0) << ran.printed;
    EXPECT_LE(Json::parse(text_of("scores.json")).at("mutants")[0].at("cases"), 100);
}

// What is not graded again stays, in its place.
TEST_F(MutantsCommandTest, ScoresOfAnEarlierRunStay) {
    write("scores.json",
          R"({"schema":1,"mutants":[{"id":"NC-02","cases":7},{"id":"NC-01"},{"id":"FA-01"}]})");
    const Ran ran = grade("--only NC-01 --only NC-03 --earlier " + file("scores.json") +
                          " --json " + file("scores.json"));
    ASSERT_EQ(ran.status, 0) << ran.printed;
    const Json mutants = Json::parse(text_of("scores.json")).at("mutants");
    ASSERT_EQ(mutants.size(), 4);
    EXPECT_EQ(mutants[0], (Json{{"id", "NC-02"}, {"cases", 7}}));
    EXPECT_EQ(mutants[1].at("id"), "NC-01");
    EXPECT_TRUE(mutants[1].at("killed"));
    EXPECT_EQ(mutants[2], (Json{{"id", "FA-01"}}));
    EXPECT_EQ(mutants[3].at("id"), "NC-03");
}

// A killer of yesterday that no longer kills does not make a survivor.
TEST_F(MutantsCommandTest, WholeSuiteFollowsAKillerThatFails) {
    write("earlier.json",
          R"({"schema":1,"mutants":[{"id":"NC-01","property":"nsa_compress.validation"}]})");
    const Ran ran = grade("--only NC-01 --earlier " + file("earlier.json"));
    EXPECT_EQ(ran.status, 0) << ran.printed;
    EXPECT_THAT(ran.printed, HasSubstr("nsa_compress.agreement"));
}

TEST_F(MutantsCommandTest, TablesBetweenMarkersAreRewritten) {
    write("page.md",
          "before\n<!-- score:NsaCompress:begin -->\nold\n"
          "<!-- score:NsaCompress:end -->\nafter\n");
    ASSERT_EQ(grade("--only NC-01 --counts " + file("page.md")).status, 0);
    EXPECT_THAT(text_of("page.md"),
                AllOf(HasSubstr("before\n"), HasSubstr("after\n"), Not(HasSubstr("old")),
                      HasSubstr("| NsaCompress | 1/1 | 0/0 | 0/0 | 0/0 | 1/1 |")));
    ASSERT_EQ(grade("--only NC-01 --details " + file("page.md")).status, 0);
    EXPECT_THAT(text_of("page.md"), HasSubstr("| NC-01 | nsa_compress.agreement | bound |"));
    write("bare.md", "no markers\n");
    const Ran bare = grade("--only NC-01 --counts " + file("bare.md"));
    EXPECT_EQ(bare.status, 2);
    EXPECT_THAT(bare.printed, HasSubstr("has no markers"));
    EXPECT_EQ(text_of("bare.md"), "no markers\n");
}

// A few mutants graded anew: the tables keep the rows of the others.
TEST_F(MutantsCommandTest, TablesKeepWhatTheEarlierRunHas) {
    write("scores.json", R"({"schema":1,"mutants":[{"id":"NC-03","killed":true,"tier":"bound","cases":7,
        "property":"nsa_compress.agreement","case":"a case"},{"id":"FA-01","killed":true}]})");
    ASSERT_EQ(grade("--only NC-01 --earlier " + file("scores.json") + " --details " + file("new.md") + " --counts " +
                    file("counts.md"))
                  .status,
              0);
    EXPECT_THAT(text_of("new.md"), AllOf(HasSubstr("| NC-01 | nsa_compress.agreement | bound |"),
                                         HasSubstr("| NC-03 | nsa_compress.agreement | bound | 7 | `a case` |"),
                                         Not(HasSubstr("FA-01"))));
    EXPECT_THAT(text_of("counts.md"), HasSubstr("| 2/2 |\n"));
}

// Of a family that the page does not have yet, and of a page that is not there.
TEST_F(MutantsCommandTest, TablesOfANewFamilyAreAdded) {
    write("page.md", "<!-- score:Other:begin -->\n<!-- score:Other:end -->\nafter\n");
    ASSERT_EQ(grade("--only NC-01 --counts " + file("page.md") + " --details " + file("new.md")).status, 0);
    EXPECT_THAT(text_of("page.md"),
                AllOf(StartsWith("<!-- score:Other:begin -->\n<!-- score:Other:end -->\n\n"
                                 "<!-- score:NsaCompress:begin -->\n| operator |"),
                      EndsWith("\n<!-- score:NsaCompress:end -->\nafter\n")));
    EXPECT_THAT(text_of("new.md"), AllOf(StartsWith("<!-- score:NsaCompress:begin -->\n"),
                                         HasSubstr("| NC-01 | nsa_compress.agreement | bound |")));
}

// Another smallest case than the one on record is a change of the shrinker that somebody must see.
TEST_F(MutantsCommandTest, UnexpectedMinimumIsStatusOne) {
    write("minima.txt", "# a comment\nNC-01 nsa_compress{other}\n");
    const Ran ran = grade("--only NC-01 --minima " + file("minima.txt"));
    EXPECT_EQ(ran.status, 1);
    EXPECT_THAT(ran.printed, HasSubstr("is not the expected\n  nsa_compress{other}"));
}

// NC-08 truncates where it should round: half an ulp more, which no tolerance of that kind sees.
TEST_F(MutantsCommandTest, ToleranceOfAnotherProjectIsGradedInstead) {
    const Ran ran = grade("--only NC-01,NC-08 --rule ggml");
    EXPECT_EQ(ran.status, 1);
    EXPECT_THAT(ran.printed, HasSubstr("2 mutants, 1 killed; 1 of the 2"));
    EXPECT_EQ(grade("--only NC-01,NC-08").status, 0);
    EXPECT_EQ(attncheck("verify --thorough --rule ggml --op nsa_compress --seed 1").status, 0);
    EXPECT_EQ(grade("--only NCG-04,NC-08 --rule fa2").status, 1);
    EXPECT_EQ(attncheck("verify --rule fa2 --op nsa_compress_grad --op flash_attention_score_grad "
                        "--cases 80 --seed 1")
                  .status,
              0);
    // Its lse is of fp32 and no reason to leave a half type unjudged.
    for (const char* rule : {"kernelbench", "fa2"})
        EXPECT_EQ(attncheck(std::string("verify --property agreement --op attention --cases 80 "
                                        "--seed 1 --rule ") +
                            rule)
                      .status,
                  0)
            << rule;
}

}  // namespace
}  // namespace attncheck::properties
