#ifndef ATTNCHECK_IMPL_ACLNN_OBJECT_TABLES_H
#define ATTNCHECK_IMPL_ACLNN_OBJECT_TABLES_H

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "impl/aclnn/error_text.h"
#include "impl/aclnn/handle_table.h"
#include "impl/aclnn/objects.h"
#include "impl/aclnn/status.h"

/// What the C functions on descriptors share: one table per kind, and their ways to fail.
namespace attncheck::aclnn {

/// The one table of a kind. Never destroyed: the program's own destructors may run later.
template <class Opaque>
HandleTable<Opaque, Opaque>& table() {
    static auto& only = *new HandleTable<Opaque, Opaque>;
    return only;
}

/// make(), which allocates what the caller's counts say; null when no memory can hold that.
template <class Make>
auto created(const char* api, Make make) -> decltype(make()) {
    try {
        return make();
    } catch (const std::exception& failure) {
        set_error(std::string(api) + ": " + failure.what());
        return nullptr;
    }
}

/// 161002 and its text, for a handle that is not in its table.
aclnnStatus not_alive(const char* api, const char* parameter, const void* handle);
/// 161001 and its text, for the getters.
aclnnStatus null_argument(const char* api);

template <class Opaque>
aclnnStatus destroy(const char* api, const char* parameter, const Opaque* handle) {
    if (!handle) return kSuccess;
    return table<Opaque>().take(handle) ? kSuccess : not_alive(api, parameter, handle);
}

/// *out = read(object); 161001 for a null argument, 161002 for a dead handle, 561000 when memory is
/// short.
template <class Opaque, class Out, class Read>
aclnnStatus get(const char* api, const char* parameter, const Opaque* handle, Out* out, Read read) {
    if (!handle || !out) return null_argument(api);
    try {
        const auto object = table<Opaque>().find(handle);
        if (!object) return not_alive(api, parameter, handle);
        *out = read(*object);
        return kSuccess;
    } catch (const std::exception& failure) {
        return fail(kInternal, std::string(api) + ": " + failure.what());
    }
}

/// Null counts as empty. Reserving first refuses a wild count before any value is read.
template <class Value>
std::vector<Value> copied(const Value* values, std::uint64_t count) {
    std::vector<Value> out;
    if (!values) return out;
    out.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) out.push_back(values[i]);
    return out;
}

}  // namespace attncheck::aclnn

#endif  // ATTNCHECK_IMPL_ACLNN_OBJECT_TABLES_H
