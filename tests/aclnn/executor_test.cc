// The two phases on streams: order, asynchrony, errors, workspaces and the life of an executor.
#include "impl/aclnn/executor.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <future>
#include <stdexcept>
#include <thread>

#include "acl_fixture.h"
#include "impl/aclnn/stream.h"
#include "impl/runtime/thread_pool.h"

namespace attncheck::aclnn {
namespace {

using Work = std::function<int(void*)>;

aclOpExecutor* plan(Work run, std::uint64_t workspace_bytes = 0, const char* api = "aclnnTest") {
    aclOpExecutor* executor = nullptr;
    std::uint64_t size = 12345;
    EXPECT_EQ(make_executor({api, workspace_bytes, std::move(run)}, &size, &executor), 0);
    EXPECT_EQ(size, workspace_bytes);
    return executor;
}

aclnnStatus launch(aclOpExecutor* executor, aclrtStream stream = nullptr) {
    return launch_executor("aclnnTest", nullptr, 0, executor, stream);
}

int nothing(void*) { return 0; }

/// Work that waits until it is let go.
class Gate {
public:
    Work work() {
        return [opened = opened_](void*) {
            opened.wait();
            return 0;
        };
    }
    void open() { open_.set_value(); }

private:
    std::promise<void> open_;
    std::shared_future<void> opened_ = open_.get_future().share();
};

TEST_F(DeviceTest, WorkRunsInOrderOnAThreadOfTheStream) {
    aclrtStream stream = new_stream();
    std::vector<int> order;
    std::vector<std::thread::id> threads;
    for (int i = 0; i < 100; ++i) {
        const Work run = [&, i](void*) {
            order.push_back(i);
            threads.push_back(std::this_thread::get_id());
            return 0;
        };
        ASSERT_EQ(launch(plan(run), stream), 0);
    }
    ASSERT_EQ(aclrtSynchronizeStream(stream), ACL_SUCCESS);
    for (int i = 0; i < 100; ++i) EXPECT_EQ(order[i], i);
    EXPECT_EQ(std::count(threads.begin(), threads.end(), threads[0]), 100);
    EXPECT_NE(threads[0], std::this_thread::get_id());
}

// A second phase returns before its work is done, and a copy does not wait for it.
TEST_F(DeviceTest, WorkIsAsynchronous) {
    aclrtStream stream = new_stream();
    char* block = allocate(4);
    ASSERT_EQ(upload(block, Bytes(4, 1)), ACL_SUCCESS);
    Gate gate;
    ASSERT_EQ(launch(plan(gate.work()), stream), 0);
    ASSERT_EQ(launch(plan([block](void*) { return block[0] = 2, 0; }), stream), 0);
    EXPECT_EQ(download(block, 4), Bytes(4, 1));
    EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(stream, 0), 507046);
    EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(stream, 20), 507046);
    gate.open();
    EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(stream, 60000), ACL_SUCCESS);
    EXPECT_EQ(download(block, 4), (Bytes{2, 1, 1, 1}));
}

// A stream that is held up holds up no other; the default one is a stream like them.
TEST_F(DeviceTest, StreamsAreIndependent) {
    aclrtStream stream = new_stream();
    Gate gate;
    ASSERT_EQ(launch(plan(gate.work()), stream), 0);
    std::atomic<bool> done = false;
    ASSERT_EQ(launch(plan([&](void*) { return done = true, 0; })), 0);
    EXPECT_EQ(aclrtSynchronizeStream(nullptr), ACL_SUCCESS);
    EXPECT_TRUE(done);
    gate.open();
    EXPECT_EQ(aclrtSynchronizeDevice(), ACL_SUCCESS);
}

// Freeing, destroying and resetting wait for work that is queued.
TEST_F(DeviceTest, ReleasesWaitForQueuedWork) {
    const auto slow_write = [](char* block) {
        return [block](void*) {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            block[0] = 1;
            return 0;
        };
    };
    aclrtStream stream = new_stream();
    char* block = allocate(1);
    ASSERT_EQ(launch(plan(slow_write(block)), stream), 0);
    EXPECT_EQ(aclrtFree(block), ACL_SUCCESS);
    std::atomic<int> finished = 0;
    const Work slow_count = [&](void*) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        return ++finished, 0;
    };
    ASSERT_EQ(launch(plan(slow_count), stream), 0);
    EXPECT_EQ(aclrtDestroyStream(stream), ACL_SUCCESS);
    EXPECT_EQ(finished, 1);
    ASSERT_EQ(launch(plan(slow_count)), 0);
    EXPECT_EQ(aclrtResetDevice(0), ACL_SUCCESS);
    EXPECT_EQ(finished, 2);
    ASSERT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
    ASSERT_EQ(launch(plan(slow_count)), 0);
    EXPECT_EQ(aclFinalize(), ACL_SUCCESS);
    EXPECT_EQ(finished, 3);
    ASSERT_EQ(aclInit(nullptr), ACL_SUCCESS);
}

TEST_F(DeviceTest, FirstFailureSurfacesOnceWhenSynchronised) {
    aclrtStream stream = new_stream();
    std::atomic<bool> ran = false;
    const auto failing = [](int status) {
        return [status](void*) {
            set_error("text of " + std::to_string(status));
            return status;
        };
    };
    EXPECT_EQ(launch(plan(failing(161002)), stream), 0);
    EXPECT_EQ(launch(plan(failing(561000)), stream), 0);
    EXPECT_EQ(launch(plan([&](void*) { return ran = true, 0; }), stream), 0);
    EXPECT_EQ(aclrtSynchronizeStream(nullptr), ACL_SUCCESS);
    EXPECT_EQ(recent_message(), "");
    EXPECT_EQ(aclrtSynchronizeStream(stream), 161002);
    EXPECT_EQ(recent_message(), "text of 161002");
    EXPECT_TRUE(ran);
    EXPECT_EQ(aclrtSynchronizeStream(stream), ACL_SUCCESS);
    EXPECT_EQ(launch(plan(failing(7)), stream), 0);
    EXPECT_EQ(aclrtSynchronizeDevice(), 7);
    EXPECT_EQ(aclrtSynchronizeDevice(), ACL_SUCCESS);
}

TEST_F(DeviceTest, ExceptionsOfWorkAreFailures) {
    EXPECT_EQ(launch(plan([](void*) -> int { throw std::runtime_error("broken tile"); })), 0);
    EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(nullptr, 60000), 507015);
    EXPECT_EQ(recent_message(), "broken tile");
    EXPECT_EQ(launch(plan([](void*) -> int { throw 5; })), 0);
    EXPECT_EQ(aclrtSynchronizeStream(nullptr), 507015);
}

TEST_F(DeviceTest, NullOutPointersOfAFirstPhase) {
    std::uint64_t size = 5;
    aclOpExecutor* executor = nullptr;
    EXPECT_EQ(make_executor({"aclnnTest", 8, nothing}, nullptr, &executor), 161001);
    EXPECT_EQ(recent_message(),
              "aclnnTest: workspaceSize is null; allowed: where to store the result");
    EXPECT_EQ(make_executor({"aclnnTest", 8, nothing}, &size, nullptr), 161001);
    EXPECT_EQ(executor, nullptr);
    EXPECT_EQ(size, 5u);
}

TEST_F(DeviceTest, ExecutorsAreUsedOnce) {
    int local = 0, runs = 0;
    aclOpExecutor* executor = plan([&](void*) { return ++runs, 0; });
    EXPECT_EQ(launch(nullptr), 161001);
    EXPECT_EQ(launch(reinterpret_cast<aclOpExecutor*>(&local)), 161002);
    EXPECT_EQ(launch(executor), 0);
    EXPECT_EQ(launch(executor), 161002);
    EXPECT_EQ(aclrtSynchronizeStream(nullptr), ACL_SUCCESS);
    EXPECT_EQ(runs, 1);
}

// Whatever a second phase returns, the executor is gone.
TEST_F(DeviceTest, FailedSecondPhasesUseTheExecutorUp) {
    void* block = allocate(100);
    int local = 0;
    struct Misuse {
        const char* api;
        void* workspace;
        std::uint64_t size;
        aclrtStream stream;
        aclnnStatus status;
    };
    for (const Misuse& misuse :
         {Misuse{"aclnnOther", block, 100, nullptr, 161002},
          Misuse{"aclnnTest", nullptr, 100, nullptr, 161001},
          Misuse{"aclnnTest", nullptr, 0, nullptr, 161001},
          Misuse{"aclnnTest", block, 99, nullptr, 161002},
          Misuse{"aclnnTest", &local, 100, nullptr, 161002},
          Misuse{"aclnnTest", static_cast<char*>(block) + 64, 100, nullptr, 161002},
          Misuse{"aclnnTest", block, 100, &local, 361001}}) {
        aclOpExecutor* executor = plan(nothing, 100);
        recent_message();
        EXPECT_EQ(
            launch_executor(misuse.api, misuse.workspace, misuse.size, executor, misuse.stream),
            misuse.status);
        EXPECT_NE(recent_message().find("; allowed: "), std::string::npos);
        EXPECT_EQ(launch_executor("aclnnTest", block, 100, executor, nullptr), 161002);
    }
    // A null workspace contradicts a size even when none was asked for.
    EXPECT_EQ(launch_executor("aclnnTest", nullptr, 1, plan(nothing), nullptr), 161001);
    EXPECT_EQ(launch_executor("aclnnTest", block, 1, plan(nothing), nullptr), 0);
}

TEST_F(DeviceTest, LaunchNeedsAContext) {
    aclrtStream stream = new_stream();
    std::thread([&] {
        EXPECT_EQ(launch(plan(nothing)), 361001);
        EXPECT_EQ(launch(plan(nothing), stream), 361001);
    }).join();
    aclrtContext made = nullptr;
    ASSERT_EQ(aclrtCreateContext(&made, 0), ACL_SUCCESS);
    EXPECT_EQ(launch(plan(nothing), stream), 361001);
    EXPECT_EQ(launch(plan(nothing)), 0);
}

TEST_F(DeviceTest, WorkspaceReachesTheWork) {
    void* block = allocate(64);
    void* seen = nullptr;
    aclOpExecutor* executor = plan([&](void* workspace) { return seen = workspace, 0; }, 64);
    EXPECT_EQ(launch_executor("aclnnTest", block, 64, executor, nullptr), 0);
    EXPECT_EQ(aclrtSynchronizeStream(nullptr), ACL_SUCCESS);
    EXPECT_EQ(seen, block);
}

TEST_F(DeviceTest, WorkspaceCanBeDemanded) {
    const ScopedVariable least("ATTNCHECK_ACL_WORKSPACE", "4096");
    std::uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    ASSERT_EQ(make_executor({"aclnnTest", 0, nothing}, &size, &executor), 0);
    EXPECT_EQ(size, 4096u);
    EXPECT_EQ(launch(executor), 161001);
    ASSERT_EQ(make_executor({"aclnnTest", 5000, nothing}, &size, &executor), 0);
    EXPECT_EQ(size, 5000u);
    const ScopedVariable wrong("ATTNCHECK_ACL_WORKSPACE", "4k");
    ASSERT_EQ(make_executor({"aclnnTest", 3, nothing}, &size, &executor), 0);
    EXPECT_EQ(size, 3u);
}

TEST_F(DeviceTest, RepeatableExecutorsLiveUntilDestroyed) {
    int runs = 0;
    aclOpExecutor* executor = plan([&](void*) { return ++runs, 0; });
    EXPECT_EQ(aclSetAclOpExecutorRepeatable(executor), 0);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(launch(executor), 0);
    EXPECT_EQ(launch_executor("aclnnOther", nullptr, 0, executor, nullptr), 161002);
    EXPECT_EQ(launch(executor), 0);
    EXPECT_EQ(aclDestroyAclOpExecutor(executor), 0);  // queued work keeps what it needs
    EXPECT_EQ(aclrtSynchronizeStream(nullptr), ACL_SUCCESS);
    EXPECT_EQ(runs, 4);
    EXPECT_EQ(launch(executor), 161002);
    EXPECT_EQ(aclDestroyAclOpExecutor(executor), 161002);
    EXPECT_EQ(aclSetAclOpExecutorRepeatable(executor), 161002);
    EXPECT_EQ(aclDestroyAclOpExecutor(nullptr), 561103);
    EXPECT_EQ(aclSetAclOpExecutorRepeatable(nullptr), 561103);
}

TEST_F(DeviceTest, FinalizeReleasesUnusedExecutors) {
    const auto held = std::make_shared<int>(0);
    aclOpExecutor* executor = plan([held](void*) { return 0; });
    EXPECT_EQ(held.use_count(), 2);
    EXPECT_EQ(aclFinalize(), ACL_SUCCESS);
    EXPECT_EQ(held.use_count(), 1);
    ASSERT_EQ(aclInit(nullptr), ACL_SUCCESS);
    ASSERT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
    EXPECT_EQ(launch(executor), 161002);
}

// Of many threads with one executor, one wins.
TEST_F(DeviceTest, RacingSecondPhasesRunTheWorkOnce) {
    for (int round = 0; round < 50; ++round) {
        std::atomic<int> runs = 0, wins = 0;
        aclOpExecutor* executor = plan([&](void*) { return ++runs, 0; });
        std::vector<std::thread> threads;
        for (int t = 0; t < 4; ++t)
            threads.emplace_back([&] {
                ASSERT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
                if (launch(executor) == 0) ++wins;
            });
        for (std::thread& thread : threads) thread.join();
        ASSERT_EQ(aclrtSynchronizeStream(nullptr), ACL_SUCCESS);
        ASSERT_EQ(wins, 1);
        ASSERT_EQ(runs, 1);
    }
}

TEST_F(DeviceTest, AsynchronousCopiesKeepTheirTurn) {
    aclrtStream stream = new_stream();
    char* block = allocate(4);
    Bytes source(4, 1), result(4, 0);
    Gate gate;
    ASSERT_EQ(launch(plan(gate.work()), stream), 0);
    constexpr auto kToDevice = ACL_MEMCPY_HOST_TO_DEVICE;
    ASSERT_EQ(aclrtMemcpyAsync(block, 4, source.data(), 4, kToDevice, stream), 0);
    ASSERT_EQ(launch(plan([block](void*) { return ++block[3], 0; }), stream), 0);
    ASSERT_EQ(aclrtMemcpyAsync(result.data(), 4, block, 4, ACL_MEMCPY_DEVICE_TO_HOST, stream), 0);
    source.assign(4, 8);  // read when the copy's turn comes, not when it is queued
    gate.open();
    EXPECT_EQ(aclrtSynchronizeStream(stream), ACL_SUCCESS);
    EXPECT_EQ(result, (Bytes{8, 8, 8, 9}));
    EXPECT_EQ(aclrtMemcpyAsync(nullptr, 0, nullptr, 0, kToDevice, stream), ACL_SUCCESS);
    EXPECT_EQ(aclrtMemcpyAsync(nullptr, 4, source.data(), 4, kToDevice, stream), 100000);
    EXPECT_EQ(aclrtMemcpyAsync(block, 3, source.data(), 4, kToDevice, stream), 107000);
    EXPECT_EQ(aclrtMemcpyAsync(block, 999, source.data(), 999, kToDevice, stream), 107000);
    EXPECT_EQ(aclrtMemcpyAsync(block, 4, source.data(), 4, kToDevice, &gate), 107017);
    EXPECT_EQ(aclrtMemcpyAsync(block, 4, source.data(), 4, kToDevice, nullptr), ACL_SUCCESS);
    EXPECT_EQ(aclrtSynchronizeStream(nullptr), ACL_SUCCESS);
}

// With ATTNCHECK_ACL_SYNC=1 a second phase returns when its work is done; the rest is as before.
TEST_F(DeviceTest, SynchronousStreamsRunWorkAtOnce) {
    const ScopedVariable sync("ATTNCHECK_ACL_SYNC", "1");
    aclrtStream stream = new_stream();
    std::thread::id thread;
    set_error("text from before");
    const Work failing = [&](void*) {
        thread = std::this_thread::get_id();
        set_error("text of the work");
        return 9;
    };
    EXPECT_EQ(launch(plan(failing), stream), 0);
    EXPECT_EQ(thread, std::this_thread::get_id());
    EXPECT_EQ(recent_message(), "text from before");
    EXPECT_EQ(aclrtSynchronizeStream(stream), 9);
    EXPECT_EQ(recent_message(), "text of the work");
    EXPECT_EQ(aclrtDestroyStream(stream), ACL_SUCCESS);
}

// Submissions from several threads to one stream all run, one at a time.
TEST_F(DeviceTest, ThreadsShareAStream) {
    for (const char* sync : {"0", "1"}) {
        const ScopedVariable mode("ATTNCHECK_ACL_SYNC", sync);
        aclrtStream stream = new_stream();
        aclrtContext context = nullptr;
        ASSERT_EQ(aclrtGetCurrentContext(&context), ACL_SUCCESS);
        int count = 0;  // not atomic: the stream orders its uses
        std::vector<std::thread> threads;
        for (int t = 0; t < 4; ++t)
            threads.emplace_back([&] {
                ASSERT_EQ(aclrtSetCurrentContext(context), ACL_SUCCESS);
                for (int i = 0; i < 100; ++i)
                    EXPECT_EQ(launch(plan([&](void*) { return ++count, 0; }), stream), 0);
                EXPECT_EQ(aclrtSynchronizeStream(stream), ACL_SUCCESS);
            });
        for (std::thread& thread : threads) thread.join();
        EXPECT_EQ(count, 400);
    }
}

// A stream that is destroyed under the feet of others refuses their work; nothing hangs.
TEST_F(DeviceTest, DestructionRacesWithSubmission) {
    aclrtContext context = nullptr;
    ASSERT_EQ(aclrtGetCurrentContext(&context), ACL_SUCCESS);
    for (int round = 0; round < 30; ++round) {
        aclrtStream stream = new_stream();
        std::atomic<int> accepted = 0, ran = 0;
        std::thread submitter([&] {
            ASSERT_EQ(aclrtSetCurrentContext(context), ACL_SUCCESS);
            for (int i = 0; i < 50; ++i)
                if (launch(plan([&](void*) { return ++ran, 0; }), stream) == 0) ++accepted;
        });
        EXPECT_EQ(aclrtDestroyStream(stream), ACL_SUCCESS);
        submitter.join();
        EXPECT_EQ(ran, accepted);
    }
}

// What find_stream returned before another thread destroyed the stream.
TEST(Stream, RefusesWorkOnceClosed) {
    for (const bool synchronous : {false, true}) {
        Stream stream(synchronous);
        int runs = 0;
        EXPECT_TRUE(stream.enqueue([&] { return ++runs, 0; }));
        stream.close();
        EXPECT_FALSE(stream.enqueue([&] { return ++runs, 0; }));
        stream.close();
        stream.drain();
        EXPECT_EQ(runs, 1);
    }
}

class ProgramEndDeathTest : public DeviceTest {
protected:
    void SetUp() override {
        GTEST_FLAG_SET(death_test_style, "threadsafe");  // streams have threads
        DeviceTest::SetUp();
    }
};

// A program that forgets to synchronise and to finalise: its work ends before what it uses does.
TEST_F(ProgramEndDeathTest, QueuedWorkFinishesBeforeTheProgram) {
    const auto forgetful_program = [] {
        const Work slow = [](void*) {
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
            std::atomic<int> sum = 0;
            impl::parallel_for(4, [&](std::int64_t unit) { sum += static_cast<int>(unit); });
            std::fprintf(stderr, "sum %d", sum.load());
            return 0;
        };
        launch(plan(slow), new_stream());
        std::exit(0);
    };
    EXPECT_EXIT(forgetful_program(), testing::ExitedWithCode(0), "sum 6");
}

}  // namespace
}  // namespace attncheck::aclnn
