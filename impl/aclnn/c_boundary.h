#ifndef ATTNCHECK_IMPL_ACLNN_C_BOUNDARY_H
#define ATTNCHECK_IMPL_ACLNN_C_BOUNDARY_H

#include <exception>
#include <new>
#include <string>

#include "acl/acl_base.h"
#include "impl/aclnn/error_text.h"

namespace attncheck::aclnn {

/// body(), behind a C function of the runtime that no exception may leave: 200000 when memory is
/// short, 500000 for anything else (a thread that cannot be started).
template <class Body>
aclError guarded_call(const char* api, Body body) noexcept {
    try {
        return body();
    } catch (const std::bad_alloc&) {
        return fail(ACL_ERROR_BAD_ALLOC, std::string(api) + ": out of memory");
    } catch (const std::exception& failure) {
        return fail(ACL_ERROR_INTERNAL_ERROR, std::string(api) + ": " + failure.what());
    }
}

}  // namespace attncheck::aclnn

#endif  // ATTNCHECK_IMPL_ACLNN_C_BOUNDARY_H
