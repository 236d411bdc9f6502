#ifndef ATTNCHECK_IMPL_ACLNN_CONTEXT_H
#define ATTNCHECK_IMPL_ACLNN_CONTEXT_H

#include <cstdint>
#include <memory>

#include "acl/acl_base.h"
#include "impl/aclnn/stream.h"

/// Devices, contexts and streams, and which of them a thread may use.
namespace attncheck::aclnn {

inline constexpr std::int32_t kNumDevices = 1;

/// Whether the calling thread has a live current context.
bool has_context();

/// The stream that a handle stands for in the calling thread: null is the default stream of the
/// current context. Else `status` says why there is none: 107017 not a live stream, 107002 no
/// current context, 107003 stream of another context.
struct StreamLookup {
    aclError status;
    std::shared_ptr<Stream> stream;
};
StreamLookup find_stream(aclrtStream handle);

/// Waits for all work of all streams; their errors stay.
void drain_all_streams();

/// Ends all work and forgets all contexts, streams and devices.
void release_contexts();

}  // namespace attncheck::aclnn

#endif  // ATTNCHECK_IMPL_ACLNN_CONTEXT_H
