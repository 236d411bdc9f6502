#ifndef ATTNCHECK_IMPL_ACLNN_STREAM_H
#define ATTNCHECK_IMPL_ACLNN_STREAM_H

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "acl/acl_base.h"

namespace attncheck::aclnn {

/// What went wrong while work ran: its status and the text it left.
struct AsyncError {
    aclError status = 0;
    std::string text;
};

/// A queue whose work runs in the order of submission, one piece at a time: on a separate thread,
/// started with the first piece, or inside enqueue when synchronous. All members may be called from
/// any thread; none may be called by the work itself.
class Stream {
public:
    using Work = std::function<int()>;

    explicit Stream(bool synchronous) : synchronous_(synchronous) {}
    ~Stream() { close(); }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    /// False once closed. A non-zero result is the stream's error, 507015 stands for an exception;
    /// later work runs all the same.
    bool enqueue(Work work);

    /// Waits for everything that was submitted before the call.
    void drain();
    /// False when the time was up first.
    bool drain_for(std::chrono::milliseconds limit);
    /// The first error since the last call.
    AsyncError take_first_error();

    /// Finishes what was submitted and refuses more.
    void close();

private:
    void work_loop();
    void finish(AsyncError error);

    const bool synchronous_;
    std::mutex running_;  ///< held by synchronous work
    std::mutex mutex_;    ///< guards all below
    std::condition_variable submitted_or_closed_;
    std::condition_variable finished_;
    std::deque<Work> queue_;
    std::uint64_t num_submitted_ = 0;
    std::uint64_t num_finished_ = 0;
    AsyncError first_error_;
    bool closed_ = false;
    std::thread worker_;
};

}  // namespace attncheck::aclnn

#endif  // ATTNCHECK_IMPL_ACLNN_STREAM_H
