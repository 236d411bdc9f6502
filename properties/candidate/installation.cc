#include "properties/candidate/installation.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "properties/candidate/candidate.h"

namespace attncheck::properties {
namespace {

std::string find_beside(const char* variable, const std::vector<std::string>& relative,
                        const std::string& what) {
    namespace fs = std::filesystem;
    if (const char* path = std::getenv(variable); path && *path) return path;
    std::error_code ignored;
    const fs::path here = fs::read_symlink("/proc/self/exe", ignored).parent_path();
    for (const auto& path : relative)
        if (const fs::path candidate = (here / path).lexically_normal(); fs::exists(candidate))
            return candidate;
    throw LoadError(
        fmt::format("{} is not beside {}; set {} to its path", what, here.string(), variable));
}

}  // namespace

std::string find_worker() {
    return find_beside("ATTNCHECK_WORKER",
                       {"attncheck-worker", "../bin/attncheck-worker", ATTNCHECK_WORKER_FROM_BIN},
                       "attncheck-worker");
}

std::string find_builtin_library() {
    return find_beside("ATTNCHECK_BUILTIN",
                       {"../lib/libattncheck_builtin.so", ATTNCHECK_BUILTIN_FROM_BIN},
                       "libattncheck_builtin.so");
}

std::string find_aclnn_adapter() {
    return find_beside("ATTNCHECK_ACLNN_ADAPTER",
                       {"../lib/libattncheck_aclnn_adapter.so", ATTNCHECK_ADAPTER_FROM_BIN},
                       "libattncheck_aclnn_adapter.so");
}

std::string find_acl_library() {
    return find_beside("ATTNCHECK_ACL", {"../lib/libattncheck_acl.so", ATTNCHECK_ACL_FROM_BIN},
                       "libattncheck_acl.so");
}

std::string find_worker_library() {
    return find_beside("ATTNCHECK_WORKER_LIBRARY",
                       {"../lib/libattncheck_worker.so", ATTNCHECK_WORKER_LIBRARY_FROM_BIN},
                       "libattncheck_worker.so");
}

std::string find_python_worker() {
    const std::string file = "/attncheck/_worker.py";
    return find_beside("ATTNCHECK_PYTHON_WORKER",
                       {"../../_worker.py",  // in a wheel
                        ATTNCHECK_PYTHON_FROM_BIN + file, ATTNCHECK_PYTHON_SOURCES + file},
                       "the worker for Python");
}

std::string find_mutants_library() {
    return find_beside("ATTNCHECK_MUTANTS", {"../lib/libattncheck_mutants.so"},
                       "libattncheck_mutants.so");
}

}  // namespace attncheck::properties
