// Processes that end early are replaced, so that one bad property does not end the others.
#include "properties/search/parallel.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

namespace attncheck::properties {
namespace {

Processes::Serve start() {
    return [](const std::string& question, const Processes::Tell& tell) {
        if (question == "die") _exit(3);
        if (question == "stop") raise(SIGSTOP);
        if (question == "sleep") {
            tell("asleep");
            sleep(100);
        }
        return "answer to " + question;
    };
}

Processes::Answer answer_of(Processes& pool, const std::string& question) {
    EXPECT_TRUE(pool.any_idle());
    pool.ask(7, question);
    Processes::Answer answer;
    while (!pool.wait(1, answer)) {
    }
    EXPECT_EQ(answer.number, 7u);
    return answer;
}

TEST(Processes, ThatEndAreReplaced) {
    Processes pool(2, start);
    for (int k = 0; k < 10; ++k) {
        EXPECT_TRUE(answer_of(pool, "die").lost);
        EXPECT_EQ(answer_of(pool, "this").text, "answer to this");
    }
}

// What a process told before it was given up is not lost.
TEST(Processes, TellNewsAndAreGivenUp) {
    Processes pool(2, start);
    ASSERT_TRUE(pool.any_idle());
    pool.ask(5, "sleep");
    Processes::Answer news, answer;
    while (!pool.wait(1, news)) {
    }
    EXPECT_EQ(news.text, "asleep");
    EXPECT_FALSE(news.is_final);
    EXPECT_FALSE(news.lost);
    EXPECT_TRUE(pool.any_busy());
    EXPECT_FALSE(pool.wait(0.05, answer));
    pool.give_up();
    while (!pool.wait(1, answer)) {
    }
    EXPECT_TRUE(answer.lost);
    EXPECT_TRUE(answer.is_final);
    EXPECT_EQ(answer.number, 5u);
}

// A process that was stopped and is not told to go on is not waited for.
TEST(Processes, ThatAreStoppedAreEnded) {
    Processes pool(1, start, 2);
    const Processes::Answer answer = answer_of(pool, "stop");
    EXPECT_TRUE(answer.lost);
    EXPECT_NE(answer.why.find("stopped from outside"), std::string::npos) << answer.why;
    EXPECT_EQ(answer_of(pool, "this").text, "answer to this");
}

TEST(Processes, AreNotReplacedWithoutEnd) {
    Processes pool(1, start);
    constexpr int kFirstAndReplacements = 5;
    for (int k = 0; k < kFirstAndReplacements; ++k) EXPECT_TRUE(answer_of(pool, "die").lost);
    EXPECT_FALSE(pool.any_idle());
    EXPECT_FALSE(pool.any_busy());
}

}  // namespace
}  // namespace attncheck::properties
