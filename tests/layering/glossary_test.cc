// docs/glossary.md: one term per concept, and every path it names exists.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>

namespace {

namespace fs = std::filesystem;

const fs::path kRoot = SOURCE_ROOT;

/// A "*" stands for every folder there; one that has the rest is enough.
bool exists(const std::string& path) {
    const auto star = path.find('*');
    if (star == std::string::npos) return fs::exists(kRoot / path);
    for (const auto& folder : fs::directory_iterator(kRoot / path.substr(0, star)))
        if (folder.is_directory() && fs::exists(folder.path().string() + path.substr(star + 1)))
            return true;
    return false;
}

TEST(Glossary, NamesEveryTermOnceAndOnlyPathsThatExist) {
    std::ifstream page(kRoot / "docs/glossary.md");
    const std::regex term(R"(^\| \*\*([^*]+)\*\* \|)"), path(R"(`([\w./*]+/[\w./*]*)`)");
    std::set<std::string> terms;
    for (std::string line; std::getline(page, line);) {
        std::smatch found;
        if (std::regex_search(line, found, term)) {
            EXPECT_TRUE(terms.insert(found[1]).second) << line;
        }
        for (std::sregex_iterator it(line.begin(), line.end(), path), end; it != end; ++it)
            EXPECT_TRUE(exists((*it)[1])) << line;
    }
    EXPECT_GT(terms.size(), 50u);
}

}  // namespace
