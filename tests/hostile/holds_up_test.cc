// A library that takes what runs out, locks what the suite wants or moves what the suite put in place holds up no run.
#include <chrono>
#include <fstream>
#include <span>

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

protected:
    void expect_all(const std::string& library, std::span<const Held> held, const std::string& options) const {
        std::vector<Trick> tricks;
        for (const Held& one : held) tricks.push_back({library, one.name, "", options});
        const std::vector<Ran> all = run_all(tricks, GetParam());
        for (std::size_t k = 0; k < all.size(); ++k) {
            EXPECT_EQ(all[k].status, 1) << held[k].name << "\n" << all[k].printed;
            EXPECT_THAT(all[k].printed, HasSubstr(held[k].said)) << held[k].name;
        }
    }
};

INSTANTIATE_TEST_SUITE_P(Sandbox, AtEachLevel, testing::Values("off", "strict"),
                         [](const auto& one) { return std::string(one.param); });

TEST_P(AtEachLevel, EndsTheRunWithAVerdict) {
    constexpr Held kHeld[] = {{"hides_a_child", "left 1 process behind"},
                              {"becomes_another_program", "ended the process with exit code 0"},
                              {"kills_its_group", "crashed: SIGKILL"},
                              {"hops", "output is wrong"},
                              {"passes_descriptors", "wrote to the suite's connection"},
                              {"opens_descriptors", "output is wrong"}};
    expect_all("holds_up", kHeld, "");
}

TEST_P(AtEachLevel, TooManyThreadsAreTold) {
    const Ran ran = run({"holds_up", "starts_threads"}, GetParam());
    EXPECT_EQ(ran.status, 1) << ran.printed;
    EXPECT_THAT(ran.printed, HasSubstr("started more than 4096 threads"));
}

// Memory counts wherever it is, and a process whose first thread ended is one.
TEST_P(AtEachLevel, NothingIsHidden) {
    constexpr Held kHidden[] = {{"hides_a_process", "left 1 process behind"},
                                {"hides_memory", "used more than 100 MiB of memory"},
                                {"fills_page_tables", "used more than 100 MiB of memory"},
                                {"fills_sockets", "used more than 100 MiB of memory"},
                                {"leaves_ended_children", "started more than 256 processes"}};
    // Memory is looked at alike at both levels, and taking it is dear.
    const bool is_strict = std::string(GetParam()) == "strict";
    expect_all("hides", std::span(kHidden).first(is_strict ? std::size(kHidden) : 1), "--memory 100");
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
