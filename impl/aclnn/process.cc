#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>

#include "acl/acl.h"
#include "aclnn/aclnn_base.h"
#include "impl/aclnn/c_boundary.h"
#include "impl/aclnn/context.h"
#include "impl/aclnn/device_memory.h"
#include "impl/aclnn/error_text.h"
#include "impl/aclnn/executor.h"
#include "impl/aclnn/json_syntax.h"
#include "impl/aclnn/status.h"

namespace attncheck::aclnn {
namespace {

struct Process {
    std::mutex mutex;
    std::uint64_t times_initialized = 0;
    bool finalized_before = false;
    std::string configuration;  ///< text of the first aclInit's file, "" for the defaults
};

Process& process() {
    static auto& only = *new Process;
    return only;
}

std::optional<std::string> file_text(const char* path) {
    std::error_code unknown;
    if (!std::filesystem::is_regular_file(path, unknown)) return std::nullopt;
    std::ifstream file(path, std::ios::binary);
    if (!file) return std::nullopt;
    std::string text{std::istreambuf_iterator<char>(file), {}};
    return file.bad() ? std::nullopt : std::optional(std::move(text));
}

/// 100003 and 100006 for a file that is none, or not JSON.
aclError read_configuration(const char* path, std::string& text) {
    if (!path || !*path) return ACL_SUCCESS;
    std::optional<std::string> read = file_text(path);
    if (!read)
        return fail(ACL_ERROR_INVALID_FILE,
                    misuse("aclInit", "configPath", path, "null, \"\" or a readable file"));
    if (!is_json(*read))
        return fail(ACL_ERROR_PARSE_FILE, misuse("aclInit", "configPath", path, "a JSON file"));
    text = std::move(*read);
    return ACL_SUCCESS;
}

void release_everything() {
    release_contexts();  // first: ends all work
    release_executors();
    release_device_blocks();
}

}  // namespace
}  // namespace attncheck::aclnn

using namespace attncheck::aclnn;

extern "C" {

aclError aclInit(const char* configPath) {
    return guarded_call("aclInit", [&]() -> aclError {
        std::string configuration;
        const aclError status = read_configuration(configPath, configuration);
        if (status != 0) return status;
        const std::lock_guard lock(process().mutex);
        if (process().times_initialized == 0) {
            process().configuration = std::move(configuration);
            process().times_initialized = 1;
            return ACL_SUCCESS;
        }
        if (configuration != process().configuration)
            return fail(ACL_ERROR_INVALID_PARAM,
                        misuse("aclInit", "configPath", configPath ? configPath : "null",
                               "the configuration that is in force"));
        ++process().times_initialized;
        return fail(ACL_ERROR_REPEAT_INITIALIZE, "aclInit: already initialised");
    });
}

aclError aclFinalize(void) {
    return guarded_call("aclFinalize", []() -> aclError {
        const std::lock_guard lock(process().mutex);
        if (process().times_initialized == 0) {
            if (!process().finalized_before) return ACL_SUCCESS;
            return fail(ACL_ERROR_REPEAT_FINALIZE, "aclFinalize: already finalised");
        }
        process().times_initialized = 0;
        process().finalized_before = true;
        release_everything();
        return ACL_SUCCESS;
    });
}

aclError aclFinalizeReference(uint64_t* refCount) {
    {
        const std::lock_guard lock(process().mutex);
        if (process().times_initialized > 1) {
            --process().times_initialized;
            if (refCount) *refCount = process().times_initialized;
            return ACL_SUCCESS;
        }
    }
    if (refCount) *refCount = 0;
    return aclFinalize();
}

aclnnStatus aclnnInit(const char*) { return kSuccess; }

aclnnStatus aclnnFinalize(void) { return kSuccess; }

}  // extern "C"
