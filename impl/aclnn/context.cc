#include "impl/aclnn/context.h"

#include <array>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>

#include "acl/acl_rt.h"
#include "impl/aclnn/c_boundary.h"
#include "impl/aclnn/error_text.h"
#include "impl/aclnn/handle_table.h"
#include "impl/aclnn/settings.h"
#include "impl/runtime/thread_pool.h"

namespace attncheck::aclnn {
namespace {

struct Context {
    std::int32_t device;
    bool is_default;  ///< belongs to the device: the program cannot destroy it
    std::shared_ptr<Stream> default_stream;
};

struct OwnedStream {
    aclrtContext owner;
    std::shared_ptr<Stream> stream;
};

struct Device {
    int times_set = 0;
    aclrtContext default_context = nullptr;  ///< null unless set
};

/// Never destroyed: work may still run while the program ends.
struct Runtime {
    HandleTable<void, Context> contexts;
    HandleTable<void, OwnedStream> streams;
    std::mutex devices_mutex;
    std::array<Device, kNumDevices> devices;
};

Runtime& runtime() {
    static Runtime& only = *[] {
        // Work that is queued when the program ends must finish before the thread pool that it may
        // use is destroyed: handlers run in reverse, so the pool is made to exist first.
        impl::parallel_for(2, [](std::int64_t) {});
        std::atexit(drain_all_streams);
        return new Runtime;
    }();
    return only;
}

/// A handle, not a pointer: a context that another thread destroys is then simply not found.
thread_local aclrtContext current_handle = nullptr;

std::optional<Context> current_context() { return runtime().contexts.find(current_handle); }

aclError no_context(const char* api) {
    return fail(ACL_ERROR_RT_CONTEXT_NULL,
                misuse(api, "the current context", "null", "a context, as by aclrtSetDevice"));
}

aclError null_pointer(const char* api, const char* parameter) {
    return fail(ACL_ERROR_INVALID_PARAM, misuse(api, parameter, "null", "a non-null pointer"));
}

bool is_device(std::int32_t id) { return id >= 0 && id < kNumDevices; }

aclError no_device(const char* api, std::int32_t id) {
    return fail(ACL_ERROR_RT_INVALID_DEVICEID,
                misuse(api, "deviceId", std::to_string(id), "0, the only device"));
}

aclrtContext new_context(std::int32_t device, bool is_default) {
    return runtime().contexts.add(
        {device, is_default, std::make_shared<Stream>(synchronous_streams())});
}

void close_streams_of(aclrtContext owner) {
    const auto streams =
        runtime().streams.take_all([owner](const OwnedStream& s) { return s.owner == owner; });
    for (const OwnedStream& owned : streams) owned.stream->close();
}

/// Waits for everything on one device; the first error met, if any, leaves its stream.
AsyncError synchronize_device(std::int32_t device) {
    std::vector<std::shared_ptr<Stream>> streams;
    for (const Context& context : runtime().contexts.all())
        if (context.device == device) streams.push_back(context.default_stream);
    for (const OwnedStream& owned : runtime().streams.all()) {
        const auto context = runtime().contexts.find(owned.owner);
        if (context && context->device == device) streams.push_back(owned.stream);
    }
    AsyncError first;
    for (const auto& stream : streams) {
        stream->drain();
        AsyncError error = stream->take_first_error();
        if (first.status == 0) first = std::move(error);
    }
    return first;
}

/// The stream's error becomes the calling thread's.
aclError surfaced(AsyncError error) {
    if (error.status != 0 && !error.text.empty()) set_error(std::move(error.text));
    return error.status;
}

aclError stream_failure(const char* api, aclError status, aclrtStream stream) {
    if (status == ACL_ERROR_RT_CONTEXT_NULL) return no_context(api);
    const char* allowed =
        status == ACL_ERROR_RT_STREAM_CONTEXT ? "a stream of the current context" : "a live stream";
    return fail(status, misuse(api, "stream", text_of(stream), allowed));
}

}  // namespace

bool has_context() { return current_context().has_value(); }

StreamLookup find_stream(aclrtStream handle) {
    const auto context = current_context();
    if (!handle) {
        if (!context) return {ACL_ERROR_RT_CONTEXT_NULL, nullptr};
        return {ACL_SUCCESS, context->default_stream};
    }
    const auto owned = runtime().streams.find(handle);
    if (!owned) return {ACL_ERROR_RT_INVALID_HANDLE, nullptr};
    if (!context) return {ACL_ERROR_RT_CONTEXT_NULL, nullptr};
    if (owned->owner != current_handle) return {ACL_ERROR_RT_STREAM_CONTEXT, nullptr};
    return {ACL_SUCCESS, owned->stream};
}

void drain_all_streams() {
    for (const Context& context : runtime().contexts.all()) context.default_stream->drain();
    for (const OwnedStream& owned : runtime().streams.all()) owned.stream->drain();
}

void release_contexts() {
    {
        const std::lock_guard lock(runtime().devices_mutex);
        runtime().devices.fill(Device());
    }
    for (const OwnedStream& owned :
         runtime().streams.take_all([](const OwnedStream&) { return true; }))
        owned.stream->close();
    for (const Context& context : runtime().contexts.take_all([](const Context&) { return true; }))
        context.default_stream->close();
}

}  // namespace attncheck::aclnn

using namespace attncheck::aclnn;

extern "C" {

aclError aclrtGetDeviceCount(uint32_t* count) {
    if (!count) return null_pointer("aclrtGetDeviceCount", "count");
    *count = kNumDevices;
    return ACL_SUCCESS;
}

aclError aclrtSetDevice(int32_t deviceId) {
    return guarded_call("aclrtSetDevice", [&]() -> aclError {
        if (!is_device(deviceId)) return no_device("aclrtSetDevice", deviceId);
        const std::lock_guard lock(runtime().devices_mutex);
        Device& device = runtime().devices[deviceId];
        if (!device.default_context) device.default_context = new_context(deviceId, true);
        ++device.times_set;
        current_handle = device.default_context;
        return ACL_SUCCESS;
    });
}

aclError aclrtGetDevice(int32_t* deviceId) {
    if (!deviceId) return null_pointer("aclrtGetDevice", "deviceId");
    const auto context = current_context();
    if (!context) return no_context("aclrtGetDevice");
    *deviceId = context->device;
    return ACL_SUCCESS;
}

aclError aclrtResetDevice(int32_t deviceId) {
    return guarded_call("aclrtResetDevice", [&]() -> aclError {
        if (!is_device(deviceId)) return no_device("aclrtResetDevice", deviceId);
        drain_all_streams();
        aclrtContext released = nullptr;
        {
            const std::lock_guard lock(runtime().devices_mutex);
            Device& device = runtime().devices[deviceId];
            if (device.times_set == 0)
                return fail(ACL_ERROR_RT_CONTEXT_RELEASE_ERROR,
                            "aclrtResetDevice: device " + std::to_string(deviceId) +
                                " is not set; allowed: one reset per aclrtSetDevice");
            if (--device.times_set == 0) std::swap(released, device.default_context);
        }
        // Streams that the program left on the default context stay until aclFinalize.
        if (const auto context = runtime().contexts.take(released))
            context->default_stream->close();
        return ACL_SUCCESS;
    });
}

aclError aclrtSynchronizeDevice(void) {
    return guarded_call("aclrtSynchronizeDevice", []() -> aclError {
        const auto context = current_context();
        if (!context) return no_context("aclrtSynchronizeDevice");
        return surfaced(synchronize_device(context->device));
    });
}

const char* aclrtGetSocName(void) { return "attncheck-host"; }

aclError aclrtCreateContext(aclrtContext* context, int32_t deviceId) {
    return guarded_call("aclrtCreateContext", [&]() -> aclError {
        if (!context) return null_pointer("aclrtCreateContext", "context");
        if (!is_device(deviceId)) return no_device("aclrtCreateContext", deviceId);
        current_handle = *context = new_context(deviceId, false);
        return ACL_SUCCESS;
    });
}

aclError aclrtDestroyContext(aclrtContext context) {
    return guarded_call("aclrtDestroyContext", [&]() -> aclError {
        if (!context) return null_pointer("aclrtDestroyContext", "context");
        const auto released = runtime().contexts.take_unless(
            context, [](const Context& found) { return found.is_default; });
        if (!released || released->is_default)
            return fail(ACL_ERROR_RT_CONTEXT_NULL,
                        misuse("aclrtDestroyContext", "context", text_of(context),
                               "a live context made by aclrtCreateContext"));
        close_streams_of(context);
        released->default_stream->close();
        if (current_handle == context) {
            const std::lock_guard lock(runtime().devices_mutex);
            current_handle = runtime().devices[released->device].default_context;
        }
        return ACL_SUCCESS;
    });
}

aclError aclrtSetCurrentContext(aclrtContext context) {
    if (!context) return null_pointer("aclrtSetCurrentContext", "context");
    if (!runtime().contexts.find(context))
        return fail(ACL_ERROR_RT_PARAM_INVALID, misuse("aclrtSetCurrentContext", "context",
                                                       text_of(context), "a live context"));
    current_handle = context;
    return ACL_SUCCESS;
}

aclError aclrtGetCurrentContext(aclrtContext* context) {
    if (!context) return null_pointer("aclrtGetCurrentContext", "context");
    if (!has_context()) return no_context("aclrtGetCurrentContext");
    *context = current_handle;
    return ACL_SUCCESS;
}

aclError aclrtCreateStream(aclrtStream* stream) {
    return guarded_call("aclrtCreateStream", [&]() -> aclError {
        if (!stream) return null_pointer("aclrtCreateStream", "stream");
        if (!has_context()) return no_context("aclrtCreateStream");
        *stream = runtime().streams.add(
            {current_handle, std::make_shared<Stream>(synchronous_streams())});
        return ACL_SUCCESS;
    });
}

aclError aclrtDestroyStream(aclrtStream stream) {
    return guarded_call("aclrtDestroyStream", [&]() -> aclError {
        if (!stream) return null_pointer("aclrtDestroyStream", "stream");
        const StreamLookup found = find_stream(stream);
        if (!found.stream) return stream_failure("aclrtDestroyStream", found.status, stream);
        if (!runtime().streams.take(stream))  // another thread was quicker
            return stream_failure("aclrtDestroyStream", ACL_ERROR_RT_INVALID_HANDLE, stream);
        found.stream->close();
        return ACL_SUCCESS;
    });
}

aclError aclrtSynchronizeStream(aclrtStream stream) {
    return guarded_call("aclrtSynchronizeStream", [&]() -> aclError {
        const StreamLookup found = find_stream(stream);
        if (!found.stream) return stream_failure("aclrtSynchronizeStream", found.status, stream);
        found.stream->drain();
        return surfaced(found.stream->take_first_error());
    });
}

aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout) {
    constexpr const char* kApi = "aclrtSynchronizeStreamWithTimeout";
    return guarded_call(kApi, [&]() -> aclError {
        if (timeout < -1)
            return fail(ACL_ERROR_INVALID_PARAM,
                        misuse(kApi, "timeout", std::to_string(timeout), "-1 or more, in ms"));
        if (timeout == -1) return aclrtSynchronizeStream(stream);
        const StreamLookup found = find_stream(stream);
        if (!found.stream) return stream_failure(kApi, found.status, stream);
        if (!found.stream->drain_for(std::chrono::milliseconds(timeout)))
            return fail(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, std::string(kApi) +
                                                              ": work was still pending after " +
                                                              std::to_string(timeout) + " ms");
        return surfaced(found.stream->take_first_error());
    });
}

}  // extern "C"
