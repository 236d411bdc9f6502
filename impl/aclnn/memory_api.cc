#include <cstring>
#include <optional>
#include <string>

#include "acl/acl_rt.h"
#include "impl/aclnn/c_boundary.h"
#include "impl/aclnn/context.h"
#include "impl/aclnn/device_memory.h"
#include "impl/aclnn/error_text.h"

namespace attncheck::aclnn {
namespace {

struct Copy {
    const char* api;
    void* dst;
    const void* src;
    std::size_t count;
    int kind;  ///< an aclrtMemcpyKind, or whatever else a C caller passed
};

/// Any number may stand in a C enumeration; reading it as the C++ type would be undefined.
int number_of(const aclrtMemcpyKind& kind) {
    int number;
    static_assert(sizeof number == sizeof kind);
    std::memcpy(&number, &kind, sizeof number);
    return number;
}

/// Where a kind says that an end is; kAnywhere takes what the address says.
enum class Wanted { kHost, kDevice, kAnywhere };

struct WantedEnds {
    Wanted dst, src;
};

/// Nothing for kinds that are unknown or not supported.
std::optional<WantedEnds> wanted_ends(int kind) {
    switch (kind) {
        case ACL_MEMCPY_HOST_TO_HOST:
            return WantedEnds{Wanted::kHost, Wanted::kHost};
        case ACL_MEMCPY_HOST_TO_DEVICE:
        case ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE:
            return WantedEnds{Wanted::kDevice, Wanted::kHost};
        case ACL_MEMCPY_DEVICE_TO_HOST:
            return WantedEnds{Wanted::kHost, Wanted::kDevice};
        case ACL_MEMCPY_DEVICE_TO_DEVICE:
            return WantedEnds{Wanted::kDevice, Wanted::kDevice};
        case ACL_MEMCPY_DEFAULT:
            return WantedEnds{Wanted::kAnywhere, Wanted::kAnywhere};
        default:
            return std::nullopt;
    }
}

aclError invalid(const char* api, const char* parameter, const std::string& value,
                 const char* allowed) {
    return fail(ACL_ERROR_INVALID_PARAM, misuse(api, parameter, value, allowed));
}

aclError out_of_range(const char* api, const char* parameter, const std::string& value,
                      const char* allowed) {
    return fail(ACL_ERROR_RT_PARAM_INVALID, misuse(api, parameter, value, allowed));
}

aclError no_context(const char* api) {
    return fail(ACL_ERROR_RT_CONTEXT_NULL,
                misuse(api, "the current context", "null", "a context, as by aclrtSetDevice"));
}

aclError check_end(const Copy& copy, const char* parameter, const void* address, const CopyEnd& end,
                   Wanted wanted) {
    const std::string range = text_of(address) + " (" + std::to_string(copy.count) + " bytes)";
    if (wanted == Wanted::kDevice && !end.on_device())
        return out_of_range(copy.api, parameter, range, "an address in a live device block");
    if (wanted == Wanted::kHost && end.on_device())
        return out_of_range(copy.api, parameter, range, "an address outside device memory");
    if (end.leaves_block())
        return out_of_range(copy.api, parameter, range, "a range that ends inside its block");
    return ACL_SUCCESS;
}

aclError check_ends(const Copy& copy, const CopyEnd& dst, const CopyEnd& src) {
    const std::optional<WantedEnds> wanted = wanted_ends(copy.kind);
    if (!wanted) return invalid(copy.api, "kind", std::to_string(copy.kind), "0 to 5");
    const aclError status = check_end(copy, "dst", copy.dst, dst, wanted->dst);
    return status != 0 ? status : check_end(copy, "src", copy.src, src, wanted->src);
}

aclError run(const Copy& copy) {
    const CopyEnd dst(copy.dst, copy.count), src(copy.src, copy.count);
    const aclError status = check_ends(copy, dst, src);
    if (status == 0) std::memmove(copy.dst, copy.src, copy.count);
    return status;
}

/// All checks that need no look at memory. `done` is set when there is nothing to copy.
aclError check_arguments(const Copy& copy, std::size_t dest_max, bool& done) {
    done = copy.count == 0;
    if (done) return ACL_SUCCESS;
    if (!copy.dst) return invalid(copy.api, "dst", "null", "a non-null pointer");
    if (!copy.src) return invalid(copy.api, "src", "null", "a non-null pointer");
    if (!wanted_ends(copy.kind))
        return invalid(copy.api, "kind", std::to_string(copy.kind), "0 to 5");
    if (copy.count > dest_max)
        return out_of_range(copy.api, "count", std::to_string(copy.count),
                            ("at most destMax, " + std::to_string(dest_max)).c_str());
    done = copy.dst == copy.src;
    if (done) return ACL_SUCCESS;
    return has_context() ? ACL_SUCCESS : no_context(copy.api);
}

aclError allocate(const char* api, const char* parameter, void** out, std::size_t size, Side side) {
    return guarded_call(api, [&]() -> aclError {
        if (!out) return invalid(api, parameter, "null", "a non-null pointer");
        if (size == 0) return invalid(api, "size", "0", "1 or more");
        if (!has_context()) return no_context(api);
        void* block = allocate_block(size, side);
        if (!block)
            return fail(ACL_ERROR_RT_MEMORY_ALLOCATION,
                        misuse(api, "size", std::to_string(size), "what memory is left"));
        *out = block;
        return ACL_SUCCESS;
    });
}

aclError release(const char* api, const char* parameter, void* address, Side side) {
    return guarded_call(api, [&]() -> aclError {
        if (!address) return invalid(api, parameter, "null", "the start of a live block");
        drain_all_streams();  // work that uses the block may still be queued
        if (!release_block(address, side))
            return out_of_range(api, parameter, text_of(address), "the start of a live block");
        return ACL_SUCCESS;
    });
}

}  // namespace
}  // namespace attncheck::aclnn

using namespace attncheck::aclnn;

extern "C" {

aclError aclrtMalloc(void** devPtr, size_t size, aclrtMemMallocPolicy) {
    return allocate("aclrtMalloc", "devPtr", devPtr, size, Side::kDevice);
}

aclError aclrtFree(void* devPtr) { return release("aclrtFree", "devPtr", devPtr, Side::kDevice); }

aclError aclrtMallocHost(void** hostPtr, size_t size) {
    return allocate("aclrtMallocHost", "hostPtr", hostPtr, size, Side::kHost);
}

aclError aclrtFreeHost(void* hostPtr) {
    return release("aclrtFreeHost", "hostPtr", hostPtr, Side::kHost);
}

aclError aclrtMemcpy(void* dst, size_t destMax, const void* src, size_t count,
                     aclrtMemcpyKind kind) {
    return guarded_call("aclrtMemcpy", [&]() -> aclError {
        const Copy copy{"aclrtMemcpy", dst, src, count, number_of(kind)};
        bool done = false;
        const aclError status = check_arguments(copy, destMax, done);
        return status != 0 || done ? status : run(copy);
    });
}

aclError aclrtMemcpyAsync(void* dst, size_t destMax, const void* src, size_t count,
                          aclrtMemcpyKind kind, aclrtStream stream) {
    constexpr const char* kApi = "aclrtMemcpyAsync";
    return guarded_call(kApi, [&]() -> aclError {
        const Copy copy{kApi, dst, src, count, number_of(kind)};
        bool done = false;
        aclError status = check_arguments(copy, destMax, done);
        if (status != 0 || done) return status;
        const StreamLookup found = find_stream(stream);
        if (!found.stream)
            return fail(found.status, misuse(kApi, "stream", text_of(stream),
                                             "a live stream of the current context"));
        status = check_ends(copy, CopyEnd(dst, count), CopyEnd(src, count));
        if (status != 0) return status;
        if (found.stream->enqueue([copy] { return run(copy); })) return ACL_SUCCESS;
        return fail(ACL_ERROR_RT_INVALID_HANDLE,
                    misuse(kApi, "stream", text_of(stream), "a live stream"));
    });
}

aclError aclrtMemset(void* devPtr, size_t maxCount, int32_t value, size_t count) {
    constexpr const char* kApi = "aclrtMemset";
    return guarded_call(kApi, [&]() -> aclError {
        if (count == 0) return ACL_SUCCESS;
        if (!devPtr) return invalid(kApi, "devPtr", "null", "a non-null pointer");
        if (count > maxCount)
            return out_of_range(kApi, "count", std::to_string(count),
                                ("at most maxCount, " + std::to_string(maxCount)).c_str());
        if (!has_context()) return no_context(kApi);
        const CopyEnd end(devPtr, count);
        if (!end.in_block() || end.leaves_block())
            return out_of_range(kApi, "devPtr",
                                text_of(devPtr) + " (" + std::to_string(count) + " bytes)",
                                "a range inside a live block");
        std::memset(devPtr, value, count);
        return ACL_SUCCESS;
    });
}

}  // extern "C"
