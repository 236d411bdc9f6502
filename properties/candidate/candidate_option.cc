#include "properties/candidate/candidate_option.h"

#include <fmt/format.h>

#include <filesystem>
#include <sstream>

#include "properties/candidate/installation.h"

namespace attncheck::properties {
namespace {

constexpr std::string_view kAclnn = "aclnn:";

/// The worker has the same working directory, but a bare name would be searched elsewhere.
std::string located(const std::string& library) {
    std::error_code error;
    if (std::filesystem::exists(library, error))
        return std::filesystem::absolute(library, error).string();
    if (library.find('/') == std::string::npos) return library;
    throw LoadError(fmt::format("cannot load the vendor library {}: no such file", library));
}

std::string vendor_libraries(const std::string& list) {
    constexpr std::string_view kOfTheBuild = ATTNCHECK_CANN_LIBRARIES;
    if (list.empty()) return kOfTheBuild.empty() ? find_acl_library() : std::string(kOfTheBuild);
    std::string out;
    std::istringstream names(list);
    for (std::string name; std::getline(names, name, ',');) {
        if (name.empty())
            throw LoadError(fmt::format("--candidate aclnn:{}: a library's name is empty", list));
        out += (out.empty() ? "" : ",") + located(name);
    }
    return out;
}

}  // namespace

void choose_library(const std::string& text, WorkerOptions& options) {
    if (text.empty()) {
        options.library = find_builtin_library();
    } else if (text.starts_with(kAclnn)) {
        options.library = find_aclnn_adapter();
        options.behind = vendor_libraries(text.substr(kAclnn.size()));
    } else {
        std::error_code error;
        const std::string path = text.starts_with("./") ? text.substr(2) : text;
        options.library = std::filesystem::absolute(path, error).string();
        if (!std::filesystem::exists(options.library))
            throw LoadError(fmt::format("cannot load {}: no such file{}", text,
                                        text.find(".py:") == text.npos
                                            ? ""
                                            : "; a function in a Python file is given as python:" + text));
    }
}

}  // namespace attncheck::properties
