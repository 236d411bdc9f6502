#include "include_rules.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>

namespace attncheck::layering {
namespace {

struct Rule {
    std::vector<std::string> allowed;  ///< beginnings of include paths beside the standard library
    bool c_only = false;               ///< public C headers: the C library instead of C++
};

/// Public headers are included as <attncheck/..>, <acl/..>, <aclnn/..> and <aclnnop/..>.
const std::vector<std::string> kPublic{"attncheck/", "acl/", "aclnn/", "aclnnop/", "include/"};

std::vector<std::string> with_public(std::vector<std::string> more) {
    more.insert(more.end(), kPublic.begin(), kPublic.end());
    return more;
}

const std::map<std::string, Rule>& rules() {
    static const std::map<std::string, Rule> table{
        {"include", {kPublic, true}},
        {"ref", {{"ref/", "Eigen/"}}},
        {"impl", {with_public({"impl/", "hwy/"})}},
        {"properties",
         {with_public({"properties/", "ref/", "rapidcheck", "CLI/", "fmt/", "nlohmann/"})}},
        {"fuzz", {with_public({"fuzz/", "ref/", "impl/", "properties/", "rapidcheck"})}}};
    return table;
}

bool is_standard_cpp(const std::string& include) {  // <vector>: neither a slash nor a dot
    return include.find_first_of("./") == std::string::npos;
}

/// The C library, and what Linux offers beside it.
bool is_system(const std::string& include) {
    static const std::vector<std::string> files{
        "assert.h",    "dlfcn.h",  "errno.h",     "fcntl.h",    "float.h",    "inttypes.h",
        "limits.h",    "math.h",   "poll.h",      "pthread.h",  "sched.h",    "signal.h",
        "stdalign.h",  "stdarg.h", "stdbool.h",   "stddef.h",   "stdint.h",   "stdio.h",
        "stdlib.h",    "string.h", "strings.h",   "time.h",     "ucontext.h", "unistd.h",
        "immintrin.h", "cpuid.h",  "x86intrin.h", "arm_neon.h", "arm_sve.h",  "arm_bf16.h"};
    return include.starts_with("sys/") || include.starts_with("asm/") ||
           std::find(files.begin(), files.end(), include) != files.end();
}

bool is_c_library(const std::string& include) {
    static const std::vector<std::string> files{
        "assert.h", "errno.h",  "float.h", "inttypes.h", "limits.h", "math.h", "stdbool.h",
        "stddef.h", "stdint.h", "stdio.h", "stdlib.h",   "string.h", "time.h"};
    return std::find(files.begin(), files.end(), include) != files.end();
}

bool starts_with_any(const std::string& text, const std::vector<std::string>& beginnings) {
    return std::any_of(beginnings.begin(), beginnings.end(),
                       [&](const std::string& start) { return text.starts_with(start); });
}

/// "x.h" without a folder is a file beside the one that includes it, and a path may climb.
std::string resolved(const std::string& path, const std::string& include, bool quoted) {
    namespace fs = std::filesystem;
    if (!quoted) return include;
    const bool beside = include.find('/') == std::string::npos || include.starts_with(".");
    return beside ? (fs::path(path).parent_path() / include).lexically_normal().string() : include;
}

bool is_allowed(const std::string& room, const std::string& target, bool quoted) {
    const Rule& rule = rules().at(room);
    if (starts_with_any(target, rule.allowed)) {
        // From fuzz/ the tiles are out of reach: it may ask impl/ whether arguments are legal.
        const bool of_impl = room == "fuzz" && target.starts_with("impl/");
        return !of_impl || target.find("validate") != std::string::npos ||
               target == "impl/arguments/rejection.h";
    }
    if (quoted) return false;
    return rule.c_only ? is_c_library(target) : is_standard_cpp(target) || is_system(target);
}

bool is_source(const std::filesystem::path& path) {
    const std::string extension = path.extension();
    return extension == ".h" || extension == ".cc" || extension == ".c" || extension == ".hpp" ||
           extension == ".cpp" || extension == ".inc";
}

}  // namespace

const std::vector<std::string>& rooms() {
    static const std::vector<std::string> names = [] {
        std::vector<std::string> out;
        for (const auto& [name, rule] : rules()) out.push_back(name);
        return out;
    }();
    return names;
}

Violations violations_in(const std::string& path, const std::string& text) {
    static const std::regex directive(R"re(^\s*#\s*include\s*(<([^>]+)>|"([^"]+)"))re");
    const std::string room = path.substr(0, path.find('/'));
    Violations found;
    if (!rules().contains(room)) return found;
    std::istringstream lines(text);
    std::string line;
    for (int number = 1; std::getline(lines, line); ++number) {
        std::smatch match;
        if (!std::regex_search(line, match, directive)) continue;
        const bool quoted = match[3].matched;
        const std::string include = quoted ? match[3] : match[2];
        if (is_allowed(room, resolved(path, include, quoted), quoted)) continue;
        found.push_back(path + ":" + std::to_string(number) + ": " + room + "/ may not include " +
                        include);
    }
    return found;
}

Violations violations_below(const std::filesystem::path& root, std::size_t& files_read) {
    namespace fs = std::filesystem;
    Violations found;
    files_read = 0;
    for (const std::string& room : rooms()) {
        if (!fs::exists(root / room)) continue;
        for (const auto& entry : fs::recursive_directory_iterator(root / room)) {
            if (!entry.is_regular_file() || !is_source(entry.path())) continue;
            ++files_read;
            std::ifstream in(entry.path());
            const std::string text{std::istreambuf_iterator<char>(in), {}};
            const auto more =
                violations_in(fs::relative(entry.path(), root).generic_string(), text);
            found.insert(found.end(), more.begin(), more.end());
        }
    }
    std::sort(found.begin(), found.end());
    return found;
}

}  // namespace attncheck::layering
