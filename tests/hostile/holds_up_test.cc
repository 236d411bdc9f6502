// A library that takes what runs out, locks what the suite wants or moves what the suite put in place holds up no run.
#include <chrono>
#include <fstream>

#include "properties/case/printable.h"
#include "tests/hostile/hostile_run.h"

namespace attncheck::properties {
namespace {

using testing::HasSubstr;
using testing::Not;

struct Held {
    const char* name;
    const char* said;
};

class AtEachLevel : public HostileTest, public testing::WithParamInterface<const char*> {
    bool needs_strict() const override { return std::string(GetParam()) == "strict"; }
};

INSTANTIATE_TEST_SUITE_P(Sandbox, AtEachLevel, testing::Values("off", "strict"),
                         [](const auto& one) { return std::string(one.param); });

TEST_P(AtEachLevel, EndsTheRunWithAVerdict) {
    for (const Held& trick : {Held{"hides_a_child", "left 1 process behind"},
                              {"becomes_another_program", "ended the process with exit code 0"},
                              {"kills_its_group", "crashed: SIGKILL"},
                              {"hops", "output is wrong"},
                              {"starts_threads", "started more than 4096 threads"},
                              {"passes_descriptors", "wrote to the suite's connection"},
                              {"opens_descriptors", "output is wrong"}}) {
        const Ran ran = run({"holds_up", trick.name}, GetParam());
        EXPECT_EQ(ran.status, 1) << trick.name << "\n" << ran.printed;
        EXPECT_THAT(ran.printed, HasSubstr(trick.said)) << trick.name;
    }
}

// A file that can be read can be locked: the line of the corpus is written all the same.
TEST_P(AtEachLevel, ALockedCorpusIsWritten) {
    const std::filesystem::path corpus = folder / "corpus", file = corpus / "nsa_compress.txt";
    std::filesystem::create_directories(corpus);
    std::ofstream(file).put('\n');
    const auto start = std::chrono::steady_clock::now();
    const Ran ran = run({"holds_up", "locks_a_file", file, "--corpus " + quoted(corpus)}, GetParam());
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
    EXPECT_EQ(ran.status, 1) << ran.printed;
    EXPECT_GT(std::filesystem::file_size(file), 20u);
}

// Out of bounds, with the guard page put aside and put back. Without a sandbox nothing sees it.
TEST_F(HostileTest, TheArenaStaysWhereItIs) {
    const Ran ran = run({"holds_up", "swaps_a_guard"}, "strict");
    EXPECT_EQ(ran.status, 1) << ran.printed;
    EXPECT_THAT(ran.printed, HasSubstr("out of bounds: output"));
    EXPECT_EQ(run({"holds_up", "swaps_a_guard"}, "off").status, 0);
}

// What a call says of itself is text: of one place, for the terminal, for XML and for a page.
TEST_F(HostileTest, AMessageForgesNothing) {
    std::string reports;
    for (const char* kind : {"json", "junit", "html"}) reports += std::string(" --") + kind + " " + quoted(folder / kind);
    const Ran ran = run({"takes_over", "forges_a_report", "", reports}, "strict");
    EXPECT_EQ(ran.status, 1) << ran.printed;
    EXPECT_EQ(printable(ran.printed), ran.printed);
    EXPECT_THAT(ran.printed, Not(HasSubstr("\nevery property held")));
    for (const char* kind : {"json", "junit", "html"}) {
        std::ifstream in(folder / kind);
        const std::string text{std::istreambuf_iterator<char>(in), {}};
        EXPECT_EQ(printable(text), text) << kind;
        EXPECT_THAT(text, HasSubstr("every property held")) << kind << ": the message";
        if (kind != std::string("json")) {
            EXPECT_THAT(text, Not(HasSubstr("</script><testcase"))) << kind;
        }
    }
}

}  // namespace
}  // namespace attncheck::properties
