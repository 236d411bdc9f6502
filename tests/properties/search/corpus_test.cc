// The folder of cases that failed once: what is kept, what is replayed, what is refused.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "properties/operators/catalogue.h"
#include "properties/search/corpus.h"
#include "tests/properties/cli/command_fixture.h"

namespace attncheck::properties {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class CorpusTest : public CommandTest {
protected:
    std::string verify(const std::string& mutant, const std::string& arguments, int status) const {
        const Ran ran =
            run_line("ATTNCHECK_MUTANT=" + mutant + " " + quoted(COMMAND_PATH) +
                     " verify --op nsa_compress --corpus " + file("corpus") + " --candidate " +
                     quoted(MUTANTS_PATH) + " " + arguments + " 2>&1");
        EXPECT_EQ(ran.status, status) << ran.printed;
        return ran.printed;
    }
};

// What one run finds, the next one replays before it generates anything.
TEST_F(CorpusTest, FindingsAreKeptAndReplayed) {
    verify("NC-01", "--thorough --property agreement --seed 1", 1);
    const std::string kept = text_of("corpus/nsa_compress.txt");
    EXPECT_THAT(kept, HasSubstr("agreement nsa_compress{dtype=fp16 seq=[16,32]"));
    verify("NC-01", "--property agreement --seed 2 --cases 0", 1);
    EXPECT_EQ(text_of("corpus/nsa_compress.txt"), kept);  // known already
    EXPECT_THAT(
        verify("''", "--property agreement --seed 2 --cases 0 --json " + file("out.json"), 0),
        HasSubstr("0 cases and 1 replayed in"));
    EXPECT_EQ(nlohmann::json::parse(text_of("out.json")).at("properties")[0].at("replayed"), 1);
    EXPECT_EQ(nlohmann::json::parse(text_of("out.json")).at("properties")[0].at("cases"), 0);
}

// A replayed case that fails is shrunk like any other, and generated cases follow.
TEST_F(CorpusTest, ReplayedFailureIsShrunk) {
    std::filesystem::create_directories(folder / "corpus");
    write("corpus/nsa_compress.txt",
          "# by hand\n\n"
          "* nsa_compress{dtype=bf16 seq=[7,48,80] heads=3 dim=32 block=32 stride=16 data=normal "
          "seed=5}\n");
    const std::string printed = verify("NC-01", "--property agreement --cases 0", 1);
    EXPECT_THAT(printed,
                AllOf(HasSubstr("(replayed)"), HasSubstr("found    nsa_compress{dtype=bf16"),
                      HasSubstr("smallest nsa_compress{dtype=fp16 seq=[16,32]")));
    EXPECT_THAT(verify("''", "--cases 0 -v", 0),
                AllOf(HasSubstr("packing"), Not(HasSubstr("validation"))));
}

// A case that is legal under another platform profile is replayed there, and only there.
TEST_F(CorpusTest, CasesOfAnotherProfileAreReplayedUnderIt) {
    std::filesystem::create_directories(folder / "corpus");
    write("corpus/flash_attention_score_grad.txt",
          "agreement flash_attention_score_grad{dtype=fp8_e5m2 q=[1] kv=[1] layout=BSH kv_heads=1 "
          "group=1 dim=1 value_dim=1 data=zeros seed=0}\n");
    const std::string command =
        "verify --op flash_attention_score_grad --cases 0 --corpus " + file("corpus");
    EXPECT_EQ(attncheck(command).status, 3);
    for (const char* jobs : {" --jobs 1", " --jobs 2"}) {
        const Ran ran = attncheck(command + " --profile ascend950" + jobs);
        EXPECT_EQ(ran.status, 0) << ran.printed;
        EXPECT_THAT(ran.printed, HasSubstr("0 cases and 1 replayed in"));
    }
}

// A full disk leaves half a line: it is left out with a warning, and stays alone on its line.
TEST_F(CorpusTest, HalfALineAtTheEndIsLeftOut) {
    std::filesystem::create_directories(folder / "corpus");
    const std::string half = "# one\nagreement nsa_compress{dtype=fp16 se";
    write("corpus/nsa_compress.txt", half);
    EXPECT_THAT(verify("NC-01", "--thorough --property agreement --seed 1", 1),
                AllOf(HasSubstr("note: "), HasSubstr("nsa_compress.txt:2:"),
                      HasSubstr("was left out")));
    EXPECT_THAT(text_of("corpus/nsa_compress.txt"),
                AllOf(testing::StartsWith(half + "\nagreement nsa_compress{"),
                      testing::EndsWith("}\n")));
}

// Only regular files hold cases.
TEST_F(CorpusTest, OtherThanRegularFilesAreRefused) {
    std::filesystem::create_directories(folder / "corpus" / "nsa_compress.txt");
    const std::string command = "verify --op nsa_compress --corpus " + file("corpus");
    expect_refusal(command, {"nsa_compress.txt", "no regular file"});
    std::filesystem::remove(folder / "corpus" / "nsa_compress.txt");
    std::filesystem::create_symlink("/dev/zero", folder / "corpus" / "nsa_compress.txt");
    expect_refusal(command, {"nsa_compress.txt", "no regular file"});
}

TEST_F(CorpusTest, WhatIsNoCaseIsRefusedWithItsLine) {
    std::filesystem::create_directories(folder / "corpus");
    const std::string command = "verify --op nsa_compress --corpus " + file("corpus");
    write("corpus/nsa_compress.txt", "agreement nsa_compress{dtype=fp17}\n");
    expect_refusal(command, {"nsa_compress.txt:1:", "fp17"});
    write("corpus/nsa_compress.txt", "# one\nsomething nsa_compress{}\n");
    expect_refusal(command, {"nsa_compress.txt:2:", "no property 'something'"});
    write("corpus/nsa_compress.txt", "agreement\n");
    expect_refusal(command, {"nsa_compress.txt:1:", "PROPERTY CASE"});
    expect_refusal("verify --cases 0", {"--cases", "--corpus"});
    write("file", "");
    expect_refusal("verify --corpus " + file("file"), {"--corpus", "expected a folder"});
}

// Two runs may have one folder: what the other has added since is not added again.
TEST_F(CorpusTest, SharedFolderHasACaseOnce) {
    const Operator& op = *find_operator("nsa_compress");
    Random random(5);
    const Spec spec = op.plain(random, Profile::ascend910b);
    Corpus one(file("corpus"), Profile::ascend910b), other(file("corpus"), Profile::ascend910b);
    one.add(op, "agreement", spec);
    other.add(op, "agreement", spec);
    EXPECT_EQ(text_of("corpus/nsa_compress.txt"), "agreement " + print(spec) + "\n");
}

}  // namespace
}  // namespace attncheck::properties
