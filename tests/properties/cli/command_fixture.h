// A folder of its own for what a command writes, and what every usage error looks like.
#pragma once

#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <vector>

#include "tests/properties/cli/shell.h"

namespace attncheck::properties {

class CommandTest : public testing::Test {
protected:
    CommandTest() {
        std::filesystem::create_directories(folder);
        for (const char* own : {"GTEST_TOTAL_SHARDS", "GTEST_SHARD_INDEX"}) unsetenv(own);  // of this program alone
    }
    ~CommandTest() override {
        std::error_code left;  // what a process that still ends writes there is no failure
        std::filesystem::remove_all(folder, left);
    }
    std::string file(const std::string& name) const { return folder / name; }
    std::string text_of(const std::string& name) const {
        std::ifstream in(file(name));
        return {std::istreambuf_iterator<char>(in), {}};
    }
    std::ptrdiff_t entries() const {
        return std::distance(std::filesystem::directory_iterator(folder), {});
    }
    void write(const std::string& name, const std::string& text) const {
        std::ofstream(file(name)) << text;
    }
    const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) /
                                         ("attncheck_command_" + std::to_string(getpid()));
};

// A usage error is one line on standard error, nothing on standard output, and status 2.
inline void expect_refusal(const std::string& arguments, const std::vector<std::string>& mentions) {
    const Ran errors = attncheck(arguments, "2>&1 >/dev/null");
    EXPECT_EQ(errors.status, 2) << arguments;
    EXPECT_EQ(std::count(errors.printed.begin(), errors.printed.end(), '\n'), 1) << errors.printed;
    for (const std::string& part : mentions) EXPECT_THAT(errors.printed, testing::HasSubstr(part));
    EXPECT_THAT(attncheck(arguments, "2>/dev/null").printed, testing::IsEmpty()) << arguments;
}

}  // namespace attncheck::properties
