// The headers declare what the library exports, no more and no less.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <stdio.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>
#include <string>

namespace attncheck::aclnn {
namespace {

using Names = std::set<std::string>;

std::string without_comments(const std::string& text) {
    return std::regex_replace(text, std::regex(R"(/\*[^]*?\*/|//[^\n]*)"), " ");
}

/// Functions declared anywhere in the public headers of the vendor's interface.
Names declared() {
    static const std::regex function(R"(\b(acl\w+)\s*\()");
    Names names;
    for (const char* folder : {"acl", "aclnn", "aclnnop"}) {
        const auto root = std::filesystem::path(INCLUDE_ROOT) / folder;
        for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
            if (!entry.is_regular_file()) continue;
            std::ifstream file(entry.path());
            const std::string text = without_comments({std::istreambuf_iterator<char>(file), {}});
            for (std::sregex_iterator at(text.begin(), text.end(), function), end; at != end; ++at)
                names.insert((*at)[1]);
        }
    }
    return names;
}

Names exported() {
    FILE* listing = popen(NM " -D --defined-only --format=posix '" ACL_LIBRARY "'", "r");
    std::string text;
    for (int c; (c = fgetc(listing)) != EOF;) text += static_cast<char>(c);
    EXPECT_EQ(pclose(listing), 0);
    std::istringstream lines(text);
    Names names;
    for (std::string line; std::getline(lines, line);) names.insert(line.substr(0, line.find(' ')));
    return names;
}

/// Exported, as by the vendor's libraries, although no public header declares them.
const Names kUndeclared{"_ZN2op7tagFp16aSERKd", "aclnnNsaCompressAttentionVarLenScore",
                        "aclnnNsaCompressAttentionVarLenScoreGetWorkspaceSize"};

TEST(Exports, EveryDeclaredFunctionIsInTheLibrary) {
    const Names names = declared();
    EXPECT_THAT(names, testing::IsSupersetOf({"aclInit", "aclrtMalloc", "aclCreateTensor",
                                              "aclnnInit", "aclnnNsaCompressGrad"}));
    void* library = dlopen(ACL_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    for (const std::string& name : names) EXPECT_NE(dlsym(library, name.c_str()), nullptr) << name;
    EXPECT_NE(dlsym(library, "_ZN2op7tagFp16aSERKd"), nullptr);
    EXPECT_EQ(dlclose(library), 0);
}

TEST(Exports, NothingElseIsVisible) {
    const Names names = declared();
    Names surplus;
    for (const std::string& name : exported())
        if (!names.contains(name) && !kUndeclared.contains(name)) surplus.insert(name);
    EXPECT_THAT(surplus, testing::IsEmpty());
}

// Names that programs define for themselves, and short ones that `using namespace std` meets.
TEST(Headers, LeaveTheProgramsNamesAlone) {
    static const std::regex taken(
        R"(\b(CHECK_RET|LOG_PRINT|SUCCESS|FAILED|INFO_LOG|WARN_LOG|ERROR_LOG|GetShapeSize|)"
        R"(Init|CreateAclTensor|PrintOutResult|CopyOutResult|ReadFile|FreeResource|OK|)"
        R"(using namespace)\b)");
    for (const char* folder : {"acl", "aclnn", "aclnnop"}) {
        const auto root = std::filesystem::path(INCLUDE_ROOT) / folder;
        for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
            if (!entry.is_regular_file()) continue;
            std::ifstream file(entry.path());
            const std::string text = without_comments({std::istreambuf_iterator<char>(file), {}});
            std::smatch match;
            EXPECT_FALSE(std::regex_search(text, match, taken))
                << entry.path() << ": " << match.str();
        }
    }
}

}  // namespace
}  // namespace attncheck::aclnn
