#include "impl/runtime/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace attncheck::impl {
namespace {

constexpr int kMaxThreads = 256;

int default_num_threads() {
    if (const char* text = std::getenv("ATTNCHECK_NUM_THREADS")) {
        const long requested = std::strtol(text, nullptr, 10);
        if (requested > 0) return static_cast<int>(std::min<long>(requested, kMaxThreads));
    }
    return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMaxThreads);
}

std::atomic<int> requested_threads{0};

class ThreadPool {
public:
    ~ThreadPool() {
        {
            const std::lock_guard lock(mutex_);
            stopping_ = true;
        }
        wake_.notify_all();
        for (std::thread& worker : workers_) worker.join();
    }

    bool try_acquire() { return owner_.try_lock(); }
    void release() { owner_.unlock(); }

    // Only the owner calls this.
    void run(int threads, std::int64_t num_units, const std::function<void(std::int64_t)>& work) {
        start_workers(threads - 1);
        {
            const std::lock_guard lock(mutex_);
            work_ = &work;
            num_units_ = num_units;
            next_unit_.store(0, std::memory_order_relaxed);
            failure_ = nullptr;
            seats_ = threads - 1;
            ++generation_;
        }
        wake_.notify_all();
        take_units();
        std::unique_lock lock(mutex_);
        seats_ = 0;  // a worker that wakes up only now finds nothing to do
        idle_.wait(lock, [this] { return active_ == 0; });
        work_ = nullptr;
        if (failure_) std::rethrow_exception(failure_);
    }

private:
    void start_workers(int wanted) {
        while (static_cast<int>(workers_.size()) < wanted) {
            try {
                workers_.emplace_back([this] { worker_loop(); });
            } catch (const std::system_error&) {
                return;  // fewer threads than asked for change the time, not the result
            }
        }
    }

    void worker_loop() {
        std::uint64_t seen = 0;
        std::unique_lock lock(mutex_);
        for (;;) {
            wake_.wait(lock, [&] { return stopping_ || (generation_ != seen && seats_ > 0); });
            if (stopping_) return;
            seen = generation_;
            --seats_;
            ++active_;
            lock.unlock();
            take_units();
            lock.lock();
            if (--active_ == 0) idle_.notify_one();
        }
    }

    void take_units() {
        for (;;) {
            const std::int64_t unit = next_unit_.fetch_add(1, std::memory_order_relaxed);
            if (unit >= num_units_) return;
            try {
                (*work_)(unit);
            } catch (...) {
                const std::lock_guard lock(mutex_);
                if (!failure_) failure_ = std::current_exception();
                next_unit_.store(num_units_, std::memory_order_relaxed);
            }
        }
    }

    std::mutex owner_;
    std::mutex mutex_;  // guards everything below except next_unit_
    std::condition_variable wake_, idle_;
    std::vector<std::thread> workers_;
    const std::function<void(std::int64_t)>* work_ = nullptr;
    std::int64_t num_units_ = 0;
    std::atomic<std::int64_t> next_unit_{0};
    std::exception_ptr failure_;
    std::uint64_t generation_ = 0;
    int seats_ = 0, active_ = 0;
    bool stopping_ = false;
};

ThreadPool& pool() {
    static ThreadPool instance;
    return instance;
}

class PoolOwnership {
public:
    explicit PoolOwnership(ThreadPool& owned) : pool_(owned), acquired_(owned.try_acquire()) {}
    ~PoolOwnership() {
        if (acquired_) pool_.release();
    }
    PoolOwnership(const PoolOwnership&) = delete;
    PoolOwnership& operator=(const PoolOwnership&) = delete;
    bool acquired() const { return acquired_; }

private:
    ThreadPool& pool_;
    bool acquired_;
};

}  // namespace

int num_threads() {
    static const int by_default = default_num_threads();
    const int requested = requested_threads.load(std::memory_order_relaxed);
    return requested > 0 ? requested : by_default;
}

void set_num_threads(int count) { requested_threads.store(std::clamp(count, 0, kMaxThreads)); }

void parallel_for(std::int64_t num_units, const std::function<void(std::int64_t)>& work) {
    const int threads = static_cast<int>(std::min<std::int64_t>(num_threads(), num_units));
    if (threads > 1) {
        const PoolOwnership ownership(pool());
        if (ownership.acquired()) {
            pool().run(threads, num_units, work);
            return;
        }
    }
    for (std::int64_t unit = 0; unit < num_units; ++unit) work(unit);
}

}  // namespace attncheck::impl
