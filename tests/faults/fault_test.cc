// Every call of the system that a run makes fails once, and fails for good from there on: the run
// ends by itself, with a status, a message and a report that are true. A correct library is never
// falsified, a wrong one never held.
#include <gmock/gmock.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "properties/report/exit_status.h"
#include "tests/properties/cli/command_fixture.h"

namespace attncheck::properties {
namespace {

using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::json;

constexpr int kHung = 124;  ///< of timeout(1)

class FaultTest : public CommandTest, public testing::WithParamInterface<const char*> {
protected:
    /// Runs with the n-th call failing. False when there is no n-th call.
    bool run_with(const std::string& library, int n, const char* more) {
        std::filesystem::remove(file("out.json"));
        write("fired", "");
        std::filesystem::remove_all(file("corpus"));
        fault_ = std::string(GetParam()) + ":" + std::to_string(n) + more;
        ran_ = run_line("FAULT=" + fault_ + " FAULT_FIRED=" + file("fired") + " LD_PRELOAD=" +
                        quoted(FAULT_LIBRARY) + " timeout -k 1 20 " + quoted(COMMAND_PATH) +
                        " verify --no-validation --op nsa_compress --property memory --cases 2 "
                        "--seed 1 --shrink 1 --timeout 5 --jobs 1 --json " +
                        file("out.json") + " --corpus " + file("corpus") + " --candidate " +
                        quoted(candidate_path(library)) + " 2>&1");
        return std::filesystem::file_size(file("fired")) > 0;
    }

    void expect_honest_end(const std::string& library, bool is_correct) {
        const std::string what = fault_ + " " + library + "\n" + ran_.printed;
        const int wrong_verdict = is_correct ? kFalsified : kHeld;
        EXPECT_NE(ran_.status, kHung) << what;
        EXPECT_NE(ran_.status, wrong_verdict) << what;
        EXPECT_LE(ran_.status, kNotJudged) << what;
        EXPECT_THAT(ran_.printed, Not(HasSubstr(is_correct ? "FALSIFIED" : "every property held")))
            << what;
        if (ran_.status == kUsage) {
            EXPECT_THAT(ran_.printed, HasSubstr("attncheck: ")) << what;
        } else if (ran_.status == kNotJudged) {
            EXPECT_THAT(ran_.printed, HasSubstr("could not be judged")) << what;
        }
        for (const auto& entry : std::filesystem::directory_iterator(folder))
            EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr(".part"))) << what;
        if (!std::filesystem::exists(file("out.json"))) {
            EXPECT_EQ(ran_.status == kHeld || ran_.printed.empty(), false) << what;
            return;
        }
        const Json report = Json::parse(text_of("out.json"), nullptr, false);
        ASSERT_FALSE(report.is_discarded()) << what;
        for (const Json& property : report.at("properties"))
            EXPECT_NE(property.at("status"), is_correct ? "falsified" : "held") << what;
        if (ran_.status == kHeld) {
            EXPECT_EQ(report.at("exit_status"), kHeld) << what;
        }
    }

    Ran ran_;
    std::string fault_;
};

TEST_P(FaultTest, EndsHonestly) {
    const char* asked_for = std::getenv("FAULT_SECONDS");  // for a longer look by hand
    const std::chrono::seconds limit(asked_for ? std::atoi(asked_for) : SECONDS);
    const auto start = std::chrono::steady_clock::now();
    int fired = 0;
    bool is_there = true;
    // Calls are many and alike after the first ones.
    for (int n = 1; is_there; n += 1 + n / 12) {
        is_there = false;
        for (const bool is_correct : {true, false})
            for (const char* more : {"", "+"}) {
                if (std::chrono::steady_clock::now() - start > limit)
                    continue;
                const std::string library = is_correct ? "prints" : "one_element_past_output";
                if (!run_with(library, n, more)) continue;
                is_there = true;
                ++fired;
                expect_honest_end(library, is_correct);
            }
    }
    EXPECT_GT(fired, 0) << "the command does not call it";
    std::cout << fired << " runs had a call that failed\n";
}

// A thread that the system does not have costs time: the reference does its part without it.
using ThreadTest = CommandTest;
TEST_F(ThreadTest, MissingThreadsCostNoVerdict) {
    for (const char* fault : {"pthread_create:1", "pthread_create:2+"}) {
        write("fired", "");
        const Ran ran = run_line(std::string("FAULT=") + fault + " FAULT_FIRED=" + file("fired") +
                                 " LD_PRELOAD=" + quoted(FAULT_LIBRARY) + " timeout -k 1 60 " +
                                 quoted(COMMAND_PATH) +
                                 " verify --op nsa_selected_attention_grad --seed 1 --large 512 2>&1");
        EXPECT_GT(std::filesystem::file_size(file("fired")), 0U) << fault;
        EXPECT_EQ(ran.status, kHeld) << fault << "\n" << ran.printed;
    }
}

INSTANTIATE_TEST_SUITE_P(Functions, FaultTest,
                         testing::Values("open", "openat", "fopen", "read", "write", "rename",
                                         "fsync", "ftruncate", "fork", "mmap", "memfd_create",
                                         "waitpid", "socketpair", "poll", "send", "recv"),
                         [](const auto& one) { return std::string(one.param); });

}  // namespace
}  // namespace attncheck::properties
