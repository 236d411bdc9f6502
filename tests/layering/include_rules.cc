#include "include_rules.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string_view>
#include <tuple>
#include <utility>

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
         {with_public({"properties/", "ref/", "rapidcheck", "CLI/", "fmt/", "nlohmann/", "seccomp.h"})}},
        {"fuzz", {with_public({"fuzz/", "ref/", "impl/", "properties/", "rapidcheck"})}}};
    return table;
}

/// Inner rooms: what each may include of its own top-level room and of ref/, beside its own files.
/// A path that ends in ".h" opens the door for that header only.
const std::map<std::string, std::vector<std::string>>& inner_rules() {
    static const std::map<std::string, std::vector<std::string>> table{
        {"ref/numbers", {}},
        {"ref/bounds", {"ref/numbers/"}},
        {"ref/attention", {"ref/numbers/", "ref/bounds/"}},
        {"ref/operators", {"ref/numbers/", "ref/bounds/", "ref/attention/"}},
        {"ref/constraints", {"ref/numbers/"}},
        {"impl/runtime", {}},
        {"impl/kernels", {"impl/runtime/"}},
        {"impl/arguments", {"impl/kernels/", "impl/runtime/"}},
        {"impl/operators", {"impl/arguments/", "impl/kernels/", "impl/runtime/"}},
        {"impl/aclnn",
         {"impl/arguments/", "impl/kernels/", "impl/operators/", "impl/runtime/"}},
        {"properties/case", {"ref/"}},
        {"properties/candidate", {"properties/case/"}},
        {"properties/judge", {"properties/case/", "properties/candidate/candidate.h", "ref/"}},
        {"properties/laws",
         {"properties/case/", "properties/candidate/candidate.h", "properties/judge/", "ref/"}},
        {"properties/operators",
         {"properties/case/", "properties/candidate/candidate.h", "properties/judge/",
          "properties/laws/", "ref/"}},
        {"properties/search",
         {"properties/case/", "properties/candidate/candidate.h", "properties/judge/",
          "properties/operators/operator.h", "properties/operators/catalogue.h",
          "properties/report/", "ref/bounds/error_bound.h"}},
        {"properties/report", {"properties/case/", "properties/judge/"}},
        {"properties/grading", {"properties/case/", "properties/report/"}},
        {"properties/cli", {"properties/", "ref/"}},
        {"properties/aclnn_adapter", {"properties/case/", "properties/candidate/protocol.h"}}};
    return table;
}

/// The catalogue of operators is for those who start from a name; the others are passed an
/// Operator.
constexpr std::string_view kCatalogue = "properties/operators/catalogue.h";
const std::vector<std::string> kCatalogueReaders{
    "properties/cli/",        "properties/search/corpus.cc", "properties/search/run.cc",
    "properties/search/run_steps.cc", "properties/search/side_by_side.cc",
    "properties/search/large.cc", "properties/operators/catalogue.cc"};

/// Includes that break a rule of the inner rooms today. The list only shrinks: an entry that is no
/// longer needed fails the test.
struct Exception {
    std::string_view path, include;
};
constexpr std::array<Exception, 0> kExceptions{};

bool is_excepted(std::string_view path, std::string_view include) {
    return std::ranges::any_of(kExceptions, [&](const Exception& one) {
        return one.path == path && one.include == include;
    });
}

/// "properties/judge" of "properties/judge/tiers.cc"; empty for a loose file.
std::string inner_room_of(const std::string& path) {
    const auto first = path.find('/'), second = path.find('/', first + 1);
    return second == path.npos ? std::string() : path.substr(0, second);
}

bool is_standard_cpp(const std::string& include) {  // <vector>: neither a slash nor a dot
    return include.find_first_of("./") == std::string::npos;
}

/// The C library, and what Linux offers beside it.
bool is_system(const std::string& include) {
    static const std::vector<std::string> files{
        "assert.h",    "dirent.h", "dlfcn.h",  "errno.h",     "fcntl.h",    "float.h",    "inttypes.h", "malloc.h",
        "limits.h",    "math.h",   "poll.h",      "pthread.h",  "sched.h",    "signal.h",
        "stdalign.h",  "stdarg.h", "stdbool.h",   "stddef.h",   "stdint.h",   "stdio.h",
        "stdlib.h",    "string.h", "strings.h",   "time.h",     "ucontext.h", "unistd.h",
        "immintrin.h", "cpuid.h",  "x86intrin.h", "arm_neon.h", "arm_sve.h",  "arm_bf16.h",
        "link.h"};
    return include.starts_with("sys/") || include.starts_with("asm/") ||
           include.starts_with("linux/") ||
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

bool is_allowed_inside(const std::string& path, const std::string& target) {
    const std::string room = inner_room_of(path);
    const auto rule = inner_rules().find(room);
    if (rule == inner_rules().end()) return true;
    if (target == kCatalogue) return starts_with_any(path, kCatalogueReaders);
    const bool inner = target.starts_with("ref/") || target.starts_with("impl/") ||
                       target.starts_with("properties/");
    return !inner || target.starts_with(room + "/") || starts_with_any(target, rule->second);
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

std::vector<Include> includes_in(const std::string& path, const std::string& text) {
    static const std::regex directive(R"re(^\s*#\s*include\s*(<([^>]+)>|"([^"]+)"))re");
    std::vector<Include> found;
    std::istringstream lines(text);
    std::string line;
    for (int number = 1; std::getline(lines, line); ++number) {
        std::smatch match;
        if (!std::regex_search(line, match, directive)) continue;
        const bool quoted = match[3].matched;
        const std::string written = quoted ? match[3] : match[2];
        found.push_back({path, number, written, resolved(path, written, quoted), quoted});
    }
    return found;
}

std::vector<Include> includes_below(const std::filesystem::path& root, std::size_t& files_read) {
    namespace fs = std::filesystem;
    std::vector<Include> found;
    files_read = 0;
    for (const std::string& room : rooms()) {
        if (!fs::exists(root / room)) continue;
        for (const auto& entry : fs::recursive_directory_iterator(root / room)) {
            if (!entry.is_regular_file() || !is_source(entry.path())) continue;
            ++files_read;
            std::ifstream in(entry.path());
            const std::string text{std::istreambuf_iterator<char>(in), {}};
            std::ranges::move(
                includes_in(fs::relative(entry.path(), root).generic_string(), text),
                std::back_inserter(found));
        }
    }
    std::ranges::sort(found, {}, [](const Include& one) { return std::tie(one.path, one.line); });
    return found;
}

Violations violations_of(const std::vector<Include>& includes) {
    Violations found;
    for (const Include& one : includes) {
        const std::string room = one.path.substr(0, one.path.find('/'));
        if (!rules().contains(room)) continue;
        const bool outside = !is_allowed(room, one.target, one.quoted);
        if (!outside && (is_allowed_inside(one.path, one.target) ||
                         is_excepted(one.path, one.target)))
            continue;
        found.push_back(one.path + ":" + std::to_string(one.line) + ": " +
                        (outside ? room : inner_room_of(one.path)) + "/ may not include " +
                        one.written);
    }
    return found;
}

Violations exceptions_without_use(const std::vector<Include>& includes) {
    Violations found;
    for (const Exception& exception : kExceptions)
        if (std::ranges::none_of(includes, [&](const Include& one) {
                return one.path == exception.path && one.target == exception.include;
            }))
            found.push_back(std::string(exception.path) + " no longer includes " +
                            std::string(exception.include));
    return found;
}

Violations circle_of(const std::vector<Include>& includes) {
    std::map<std::string, std::map<std::string, const Include*>> doors;
    for (const Include& one : includes) {
        const std::string from = inner_room_of(one.path), to = inner_room_of(one.target);
        if (inner_rules().contains(from) && inner_rules().contains(to) && from != to &&
            !is_excepted(one.path, one.target))
            doors[from].emplace(to, &one);
    }
    std::set<std::string> finished;
    std::vector<std::pair<std::string, const Include*>> walk;  // a room, and the way into it
    std::function<bool(const std::string&, const Include*)> closes =
        [&](const std::string& room, const Include* way) {
            const auto known =
                std::ranges::find(walk, room, &std::pair<std::string, const Include*>::first);
            if (known != walk.end()) {
                walk.erase(walk.begin(), known + 1);
                walk.emplace_back(room, way);
                return true;
            }
            if (finished.contains(room)) return false;
            walk.emplace_back(room, way);
            for (const auto& [next, include] : doors[room])
                if (closes(next, include)) return true;
            walk.pop_back();
            finished.insert(room);
            return false;
        };
    Violations circle;
    for (const auto& [room, rule] : inner_rules())
        if (closes(room, nullptr)) {
            for (const auto& [into, way] : walk)
                circle.push_back(way->path + ":" + std::to_string(way->line) + " includes " +
                                 way->target);
            break;
        }
    return circle;
}

}  // namespace attncheck::layering
