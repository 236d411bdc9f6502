// One hostile library under the command, at one level of the sandbox, and what it left behind.
#pragma once

#include <gmock/gmock.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "properties/candidate/process_family.h"
#include "tests/properties/cli/shell.h"

namespace attncheck::properties {

struct Trick {
    std::string library, name;
    std::string target = "";   ///< path or number, as ATTNCHECK_TARGET
    std::string options = "";  ///< more of the command
    std::string cases = "--cases 6", timeout = "--timeout 3";
};

inline std::string level_of(bool is_sandboxed) { return is_sandboxed ? "strict" : "off"; }

/// Few cases of two laws: whatever is wrong here is wrong in all of them.
inline std::string command_of(const Trick& trick, const std::string& sandbox) {
    return "ATTNCHECK_TRICK=" + trick.name + " ATTNCHECK_TARGET=" + quoted(trick.target) +
           " SECRET_OF_CI=1 " + quoted(COMMAND_PATH) + " verify --candidate " +
           quoted(std::string(HOSTILE_DIR) + "/" + trick.library + ".so") +
           " --op nsa_compress --property agreement --property memory --no-validation --jobs 1 --shrink 0 "
           "--stop-at-first --seed 7 --sandbox " +
           sandbox + " " + trick.cases + " " + trick.timeout + " " + trick.options + " 2>&1";
}

/// This process adopts what a run leaves: the guardian, for a moment, and nothing else.
inline bool is_nothing_left() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (std::chrono::steady_clock::now() < deadline) {
        while (waitpid(-1, nullptr, WNOHANG) > 0) {
        }
        if (descendants_of(getpid()).empty()) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return false;
}

/// What the system lacks of `strict`, in words; empty: nothing.
inline const std::string& lacks_of_strict() {
    static const std::string lacks = [] {
        const Ran ran = run_line(command_of({"reaches", "none"}, "strict"));
        const std::size_t at = ran.printed.find("--sandbox strict:");
        return ran.status == 2 && at != std::string::npos ? ran.printed.substr(at) : std::string();
    }();
    return lacks;
}

/// Skipped with a word on a system that has less than `strict` asks for: there is no wall to test.
class HostileTest : public testing::Test {
protected:
    void SetUp() override {
        if (needs_strict() && !lacks_of_strict().empty()) GTEST_SKIP() << lacks_of_strict();
    }
    virtual bool needs_strict() const { return true; }

    HostileTest() { std::filesystem::create_directories(folder); }
    ~HostileTest() override { std::filesystem::remove_all(folder); }
    static void SetUpTestSuite() { adopt_orphans(); }

    Ran run(const Trick& trick, const std::string& sandbox) const {
        const Ran ran = run_line(line_of(trick, sandbox));
        expect_nothing_left(trick.name + " " + sandbox);
        return ran;
    }

    /// The runs wait more than they work: some at a time. What they printed, in the order of the tricks.
    std::vector<Ran> run_all(const std::vector<Trick>& tricks, const std::string& sandbox) const {
        constexpr std::size_t kAtATime = 6;
        std::vector<Ran> ran(tricks.size());
        std::atomic<std::size_t> next{0};
        std::vector<std::thread> threads;
        for (std::size_t k = 0; k < kAtATime; ++k)
            threads.emplace_back([&] {
                for (std::size_t one; (one = next++) < tricks.size();)
                    ran[one] = run_line(line_of(tricks[one], sandbox));
            });
        for (std::thread& thread : threads) thread.join();
        expect_nothing_left("one of the tricks, " + sandbox);
        return ran;
    }

    std::string line_of(const Trick& trick, const std::string& sandbox) const {
        return "TMPDIR=" + quoted(folder / "tmp") + " " + command_of(trick, sandbox);
    }

    void expect_nothing_left(const std::string& whom) const {
        EXPECT_TRUE(is_nothing_left()) << whom;
        EXPECT_TRUE(std::filesystem::is_empty(folder / "tmp")) << whom;
    }

    const std::filesystem::path folder = [] {
        std::filesystem::path place = std::filesystem::path(testing::TempDir()) /
                                      ("attncheck_hostile_" + std::to_string(getpid()));
        std::filesystem::create_directories(place / "tmp");
        return place;
    }();
};

}  // namespace attncheck::properties
