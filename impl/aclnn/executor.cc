#include "impl/aclnn/executor.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>

#include "aclnn/aclnn_base.h"
#include "impl/aclnn/context.h"
#include "impl/aclnn/device_memory.h"
#include "impl/aclnn/handle_table.h"
#include "impl/aclnn/settings.h"
#include "impl/aclnn/status.h"

namespace attncheck::aclnn {
namespace {

struct Executor {
    std::shared_ptr<const Launch> launch;
    bool repeatable = false;
};

/// Never destroyed: the program's own destructors may run later.
HandleTable<aclOpExecutor, Executor>& executors() {
    static auto& only = *new HandleTable<aclOpExecutor, Executor>;
    return only;
}

aclnnStatus dead_executor(const char* api, const aclOpExecutor* executor) {
    return fail(kInvalid, misuse(api, "executor", text_of(executor),
                                 "one that a first phase made and no second phase used up"));
}

aclnnStatus check_workspace(const Launch& launch, const void* workspace, std::uint64_t size) {
    const char* api = launch.api.c_str();
    const std::string wanted = std::to_string(launch.workspace_bytes) + " bytes";
    if (!workspace && (launch.workspace_bytes > 0 || size > 0))
        return fail(kNullPointer, misuse(api, "workspace", "null", wanted.c_str()));
    if (size < launch.workspace_bytes)
        return fail(kInvalid, misuse(api, "workspaceSize", std::to_string(size),
                                     ("at least " + wanted).c_str()));
    if (launch.workspace_bytes > 0 &&
        device_placement(workspace, launch.workspace_bytes) != Placement::kInside)
        return fail(kInvalid, misuse(api, "workspace", text_of(workspace),
                                     (wanted + " in one live device block").c_str()));
    return kSuccess;
}

aclnnStatus queue(std::shared_ptr<const Launch> launch, void* workspace, aclrtStream stream) {
    const char* api = launch->api.c_str();
    const StreamLookup found = find_stream(stream);
    const bool queued = found.stream && found.stream->enqueue([launch, workspace] {
        const DeviceMemoryOpening opening;
        return launch->run(workspace);
    });
    if (queued) return kSuccess;
    return fail(kRuntimeFailed, misuse(api, "stream", text_of(stream),
                                       "null or a live stream, of the current context"));
}

}  // namespace

aclnnStatus make_executor(Launch launch, std::uint64_t* workspace_size, aclOpExecutor** executor) {
    const char* missing = !workspace_size ? "workspaceSize" : !executor ? "executor" : nullptr;
    if (missing)
        return fail(kNullPointer,
                    misuse(launch.api.c_str(), missing, "null", "where to store the result"));
    try {
        launch.workspace_bytes = std::max(launch.workspace_bytes, least_workspace_bytes());
        const std::uint64_t bytes = launch.workspace_bytes;
        *executor = executors().add({std::make_shared<const Launch>(std::move(launch))});
        *workspace_size = bytes;
        return kSuccess;
    } catch (const std::exception& failure) {
        return fail(kInternal, failure.what());
    }
}

aclnnStatus launch_executor(const char* api, void* workspace, std::uint64_t workspace_size,
                            aclOpExecutor* executor, aclrtStream stream) {
    try {
        if (!executor)
            return fail(kNullPointer, misuse(api, "executor", "null", "one made by a first phase"));
        const std::optional<Executor> taken = executors().take_unless(
            executor, [](const Executor& found) { return found.repeatable; });
        if (!taken) return dead_executor(api, executor);
        if (taken->launch->api != api)
            return fail(kInvalid, misuse(api, "executor", "of " + taken->launch->api,
                                         "one made by the first phase of the same operator"));
        const aclnnStatus status = check_workspace(*taken->launch, workspace, workspace_size);
        return status != kSuccess ? status : queue(taken->launch, workspace, stream);
    } catch (const std::exception& failure) {
        return fail(kInternal, std::string(api) + ": " + failure.what());
    }
}

void release_executors() {
    executors().take_all([](const Executor&) { return true; });
}

}  // namespace attncheck::aclnn

using namespace attncheck::aclnn;

extern "C" {

aclnnStatus aclSetAclOpExecutorRepeatable(aclOpExecutor* executor) {
    constexpr const char* kApi = "aclSetAclOpExecutorRepeatable";
    if (!executor)
        return fail(kInternalNull, misuse(kApi, "executor", "null", "one made by a first phase"));
    const bool alive =
        executors().update(executor, [](Executor& found) { found.repeatable = true; });
    return alive ? kSuccess : dead_executor(kApi, executor);
}

aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor* executor) {
    constexpr const char* kApi = "aclDestroyAclOpExecutor";
    if (!executor)
        return fail(kInternalNull, misuse(kApi, "executor", "null", "one made by a first phase"));
    return executors().take(executor) ? kSuccess : dead_executor(kApi, executor);
}

}  // extern "C"
