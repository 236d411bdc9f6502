// `verify --judge` of right, wrong and hostile libraries.
#include <nlohmann/json.hpp>

#include "tests/hostile/hostile_run.h"

namespace attncheck::properties {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::json;

class JudgeModeTest : public HostileTest {
protected:
    Json judge(const std::string& trick, const std::string& library, const std::string& more = "") const {
        const Ran ran = run_line("TMPDIR=" + quoted(folder / "tmp") + " ATTNCHECK_TRICK=" + trick +
                                 " ATTNCHECK_TARGET=1 " + quoted(COMMAND_PATH) +
                                 " verify --judge --op nsa_compress --budget 60 --candidate " + quoted(library) +
                                 " " + more + " 2>/dev/null");
        EXPECT_TRUE(is_nothing_left()) << trick;
        EXPECT_TRUE(std::filesystem::is_empty(folder / "tmp")) << trick;
        const Json object = Json::parse(ran.printed, nullptr, false);
        EXPECT_TRUE(object.is_object()) << ran.printed;
        EXPECT_EQ(object.value("exit_status", -1), ran.status) << ran.printed;
        return object;
    }
    Json judge_hostile(const std::string& library, const std::string& trick, const std::string& more = "") const {
        return judge(trick, std::string(HOSTILE_DIR) + "/" + library + ".so", more);
    }
};

TEST_F(JudgeModeTest, ARightLibraryGetsOne) {
    const Json right = judge("none", BUILTIN_PATH);
    EXPECT_EQ(right.value("verdict", ""), "held") << right;
    EXPECT_EQ(right.value("reward", 0.0), 1);
    EXPECT_THAT(right.value("sandbox", ""), HasSubstr("landlock"));
    // What the command allows a library to decline costs nothing.
    const Json allowed = judge("none", BUILTIN_PATH, "--features 'nsa_compress: dim=16'");
    EXPECT_EQ(allowed.value("verdict", ""), "held") << allowed;
}

TEST_F(JudgeModeTest, WrongOnesGetLessAndASentence) {
    for (const char* trick : {"constant_answer", "right_at_one_size", "a_little_too_large", "nothing"}) {
        const Json wrong = judge_hostile("cheats", trick);
        EXPECT_EQ(wrong.value("verdict", ""), "falsified") << wrong;
        EXPECT_LT(wrong.value("reward", 1.0), 0.5) << trick;
        EXPECT_EQ(wrong["laws"].size(), 7u) << wrong;
        EXPECT_THAT(wrong.value("feedback", ""), HasSubstr("wrong for nsa_compress{")) << trick;
        EXPECT_THAT(wrong.dump(), Not(HasSubstr("expected"))) << trick;
    }
}

TEST_F(JudgeModeTest, HostileOnesEndNoRun) {
    for (const char* trick : {"kills_everybody", "floods_the_suite", "answers_after_300_us"})
        EXPECT_EQ(judge_hostile("deceives", trick).value("verdict", ""), "falsified") << trick;
    EXPECT_EQ(judge_hostile("missing", "none").value("verdict", ""), "not_loaded");
}

// The time of the command is that of loading too.
TEST_F(JudgeModeTest, ALibraryThatLoadsForLongIsNotWaitedFor) {
    const auto start = std::chrono::steady_clock::now();
    const Ran ran = run_line("ATTNCHECK_TRICK=loads_slowly ATTNCHECK_TARGET=50000 " + quoted(COMMAND_PATH) +
                             " verify --judge --op nsa_compress --budget 1 --candidate " +
                             quoted(std::string(HOSTILE_DIR) + "/holds_up.so") + " 2>/dev/null");
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
    const Json object = Json::parse(ran.printed, nullptr, false);
    EXPECT_EQ(object.value("verdict", ""), "not_loaded") << ran.printed;
    EXPECT_THAT(object.value("feedback", ""), HasSubstr("did not finish loading in 1 s; --budget gives it more"));
}

// The library's own words count where they are asked for.
TEST_F(JudgeModeTest, AWideClassIsTheCommands) {
    const Json wide = judge_hostile("cheats", "a_little_too_large", "--precision acc=half");
    EXPECT_THAT(wide.value("precision", ""), HasSubstr("acc=half"));
    const Ran refused = run({"cheats", "a_little_too_large", "", "--require-precision default"}, "on");
    EXPECT_EQ(refused.status, 2);
    EXPECT_THAT(refused.printed, HasSubstr("the library declares 'acc=half"));
    EXPECT_EQ(run({"cheats", "constant_answer", "", "--require-precision default"}, "on").status, 1);
}

TEST_F(JudgeModeTest, ASecretSeedIsToldAtTheEnd) {
    const std::string line = quoted(COMMAND_PATH) + " verify --op nsa_compress --property memory --cases 2 ";
    const Ran secret = run_line(line + "--secret-seed");
    EXPECT_THAT(secret.printed, HasSubstr(", seed told at the end\n"));
    EXPECT_THAT(secret.printed, testing::ContainsRegex("cases/s\\), seed [0-9]+"));
    EXPECT_EQ(run_line(line + "--secret-seed --seed 3 2>/dev/null").status, 2);
}

}  // namespace
}  // namespace attncheck::properties
