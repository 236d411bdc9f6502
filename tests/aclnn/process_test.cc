// aclInit to aclFinalize, configuration files, and the error text of a thread.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string_view>
#include <thread>

#include "acl_fixture.h"
#include "impl/aclnn/error_text.h"
#include "impl/aclnn/json_syntax.h"

namespace attncheck::aclnn {
namespace {

/// A file that goes away with the test.
class ConfigFile {
public:
    ConfigFile(const char* name, std::string_view text)
        : path_(std::filesystem::path(testing::TempDir()) /
                (std::to_string(getpid()) + "_" + name)) {
        std::ofstream(path_) << text;
    }
    ~ConfigFile() { std::filesystem::remove(path_); }
    const char* path() const { return path_.c_str(); }

private:
    std::filesystem::path path_;
};

TEST(Process, IsInitialisedOnce) {
    ASSERT_EQ(aclInit(""), ACL_SUCCESS);
    EXPECT_EQ(aclInit(nullptr), 100002);
    EXPECT_EQ(aclInit(""), 100002);
    EXPECT_EQ(aclFinalize(), ACL_SUCCESS);
    EXPECT_EQ(aclFinalize(), 100037);
    EXPECT_EQ(aclInit(nullptr), ACL_SUCCESS);
    EXPECT_EQ(aclFinalize(), ACL_SUCCESS);
}

TEST(Process, CountsReferences) {
    std::uint64_t left = 99;
    ASSERT_EQ(aclInit(nullptr), ACL_SUCCESS);
    EXPECT_EQ(aclInit(nullptr), 100002);
    EXPECT_EQ(aclInit(nullptr), 100002);
    EXPECT_EQ(aclFinalizeReference(&left), ACL_SUCCESS);
    EXPECT_EQ(left, 2u);
    EXPECT_EQ(aclFinalizeReference(nullptr), ACL_SUCCESS);
    EXPECT_EQ(aclFinalizeReference(&left), ACL_SUCCESS);
    EXPECT_EQ(left, 0u);
    EXPECT_EQ(aclFinalizeReference(&left), 100037);
}

TEST(Process, ChecksItsConfiguration) {
    const ConfigFile good("good.json", "{\"dump\": {\"list\": [1, -2.5e3]}}\n");
    const ConfigFile same("same.json", "{\"dump\": {\"list\": [1, -2.5e3]}}\n");
    const ConfigFile other("other.json", "{}");
    const ConfigFile broken("broken.json", "{\"dump\": ");
    const std::string missing = std::string(good.path()) + ".missing";
    EXPECT_EQ(aclInit(missing.c_str()), 100003);
    EXPECT_NE(recent_message().find(missing), std::string::npos);
    EXPECT_EQ(aclInit(testing::TempDir().c_str()), 100003);
    EXPECT_EQ(aclInit(broken.path()), 100006);
    ASSERT_EQ(aclInit(good.path()), ACL_SUCCESS);
    EXPECT_EQ(aclInit(same.path()), 100002);
    EXPECT_EQ(aclInit(other.path()), 100000);
    EXPECT_EQ(aclInit(nullptr), 100000);
    EXPECT_EQ(aclInit(missing.c_str()), 100003);
    EXPECT_EQ(aclFinalize(), ACL_SUCCESS);
}

TEST(Process, AclnnInitIsOptional) {
    EXPECT_EQ(aclnnInit(nullptr), 0);
    EXPECT_EQ(aclnnFinalize(), 0);
    EXPECT_EQ(aclnnFinalize(), 0);
}

TEST(Process, InitialisesFromManyThreads) {
    std::vector<std::thread> threads;
    std::vector<aclError> results(8);
    for (aclError& result : results) threads.emplace_back([&result] { result = aclInit(nullptr); });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(std::count(results.begin(), results.end(), 0), 1);
    EXPECT_EQ(std::count(results.begin(), results.end(), 100002), 7);
    EXPECT_EQ(aclFinalize(), ACL_SUCCESS);
}

TEST(ErrorText, IsHandedOutOnceNewestFirst) {
    recent_message();
    EXPECT_EQ(aclGetRecentErrMsg(), nullptr);
    set_error("first");
    set_error("second");
    EXPECT_EQ(recent_message(), "second\nfirst");
    EXPECT_EQ(aclGetRecentErrMsg(), nullptr);
}

TEST(ErrorText, BelongsToTheThread) {
    recent_message();
    set_error("mine");
    std::thread([] {
        EXPECT_EQ(aclGetRecentErrMsg(), nullptr);
        EXPECT_EQ(aclrtFree(nullptr), 100000);
        EXPECT_EQ(recent_message(),
                  "aclrtFree: devPtr is null; allowed: the start of a live block");
    }).join();
    EXPECT_EQ(recent_message(), "mine");
}

// The pointer stays good until the next call in this thread, whatever happens in between.
TEST(ErrorText, StaysValidUntilTheNextCall) {
    recent_message();
    set_error("kept");
    const char* text = aclGetRecentErrMsg();
    for (int i = 0; i < 10; ++i) set_error("later");
    EXPECT_STREQ(text, "kept");
    recent_message();
}

TEST(ErrorText, DoesNotGrowWithoutEnd) {
    recent_message();
    for (int i = 0; i < 10000; ++i) set_error("record " + std::to_string(i));
    const std::string text = recent_message();
    EXPECT_EQ(text.find("record 9999\nrecord 9998\n"), 0u);
    EXPECT_LT(text.size(), 1000u);
}

TEST(JsonSyntax, AcceptsJson) {
    for (const char* text :
         {"{}", "[]", "null", " true\n", "\"\"", "0", "-0", "10.25E+3", "1e-7", "[1,[2],{}]",
          "{\"a\":1,\"b\":[false,{\"c\":\"\\u00e9\\n\\\\\"}]}", "\"\xc3\xa9\""})
        EXPECT_TRUE(is_json(text)) << text;
    EXPECT_TRUE(is_json(std::string(256, '[') + std::string(256, ']')));
}

TEST(JsonSyntax, RefusesEverythingElse) {
    for (const char* text :
         {"",         " ",           "{",      "}",     "[1,]",      "[,1]", "{\"a\"}",
          "{\"a\":}", "{\"a\":1,}",  "{a:1}",  "{1:2}", "01",        "+1",   "1.",
          ".5",       "1e",          "-",      "nul",   "truefalse", "1 2",  "\"",
          "\"\\x\"",  "\"\\u12g4\"", "\"\n\"", "[1 2]", "{\"a\" 1}", "'a'"})
        EXPECT_FALSE(is_json(text)) << text;
    EXPECT_FALSE(is_json(std::string(257, '[') + std::string(257, ']')));
    EXPECT_FALSE(is_json(std::string(1000000, '[')));
}

}  // namespace
}  // namespace attncheck::aclnn
