#include "impl/aclnn/stream.h"

#include <exception>
#include <utility>

#include "impl/aclnn/error_text.h"

namespace attncheck::aclnn {
namespace {

/// Runs one piece of work; texts that the thread had before stay with it.
AsyncError run(const Stream::Work& work) noexcept {
    std::string text_before = take_error();
    AsyncError error;
    try {
        error.status = work();
    } catch (const std::exception& failure) {
        error.status = ACL_ERROR_RT_AICORE_EXCEPTION;
        set_error(failure.what());
    } catch (...) {
        error.status = ACL_ERROR_RT_AICORE_EXCEPTION;
    }
    error.text = take_error();
    if (!text_before.empty()) set_error(std::move(text_before));
    return error;
}

}  // namespace

bool Stream::enqueue(Work work) {
    if (synchronous_) {
        const std::lock_guard turn(running_);
        {
            const std::lock_guard lock(mutex_);
            if (closed_) return false;
            ++num_submitted_;
        }
        finish(run(work));
        return true;
    }
    const std::lock_guard lock(mutex_);
    if (closed_) return false;
    if (!worker_.joinable()) worker_ = std::thread([this] { work_loop(); });
    queue_.push_back(std::move(work));
    ++num_submitted_;
    submitted_or_closed_.notify_one();
    return true;
}

void Stream::work_loop() {
    std::unique_lock lock(mutex_);
    for (;;) {
        submitted_or_closed_.wait(lock, [this] { return closed_ || !queue_.empty(); });
        if (queue_.empty()) return;
        Work work = std::move(queue_.front());
        queue_.pop_front();
        lock.unlock();
        AsyncError error = run(work);
        work = nullptr;  // who waits for the work may rely on what it owned being released
        finish(std::move(error));
        lock.lock();
    }
}

void Stream::finish(AsyncError error) {
    const std::lock_guard lock(mutex_);
    ++num_finished_;
    if (error.status != 0 && first_error_.status == 0) first_error_ = std::move(error);
    finished_.notify_all();
}

void Stream::drain() {
    std::unique_lock lock(mutex_);
    finished_.wait(lock, [this, last = num_submitted_] { return num_finished_ >= last; });
}

bool Stream::drain_for(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    return finished_.wait_for(lock, limit,
                              [this, last = num_submitted_] { return num_finished_ >= last; });
}

AsyncError Stream::take_first_error() {
    const std::lock_guard lock(mutex_);
    return std::exchange(first_error_, AsyncError());
}

void Stream::close() {
    std::thread worker;
    {
        const std::lock_guard lock(mutex_);
        closed_ = true;
        submitted_or_closed_.notify_all();
        worker = std::move(worker_);
    }
    drain();  // also for a second caller, whom the first left no thread to join
    if (worker.joinable()) worker.join();
}

}  // namespace attncheck::aclnn
