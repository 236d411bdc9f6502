// Processes that end early are replaced, so that one bad property does not end the others.
#include "properties/search/parallel.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace attncheck::properties {
namespace {

Processes::Serve start() {
    return [](const std::string& question) {
        if (question == "die") _exit(3);
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
    for (int k = 0; k < 2; ++k) {
        EXPECT_TRUE(answer_of(pool, "die").lost);
        EXPECT_EQ(answer_of(pool, "this").text, "answer to this");
    }
}

TEST(Processes, AreNotReplacedWithoutEnd) {
    Processes pool(1, start);
    EXPECT_TRUE(answer_of(pool, "die").lost);
    EXPECT_TRUE(answer_of(pool, "die").lost);
    EXPECT_FALSE(pool.any_idle());
    EXPECT_FALSE(pool.any_busy());
}

}  // namespace
}  // namespace attncheck::properties
