// Devices, contexts and streams: who is current, what handles are good for, and every misuse.
#include <thread>

#include "acl_fixture.h"

namespace attncheck::aclnn {
namespace {

aclrtContext current() {
    aclrtContext context = nullptr;
    EXPECT_EQ(aclrtGetCurrentContext(&context), ACL_SUCCESS);
    return context;
}

TEST_F(DeviceTest, ThereIsOneDevice) {
    std::uint32_t count = 0;
    std::int32_t device = 9;
    EXPECT_EQ(aclrtGetDeviceCount(&count), ACL_SUCCESS);
    EXPECT_EQ(count, 1u);
    EXPECT_EQ(aclrtGetDevice(&device), ACL_SUCCESS);
    EXPECT_EQ(device, 0);
    EXPECT_STRNE(aclrtGetSocName(), "");
    EXPECT_EQ(aclrtGetDeviceCount(nullptr), 100000);
    EXPECT_EQ(aclrtGetDevice(nullptr), 100000);
    for (const std::int32_t bad : {-1, 1, 2147483647}) {
        aclrtContext context = nullptr;
        EXPECT_EQ(aclrtSetDevice(bad), 107001);
        EXPECT_EQ(aclrtResetDevice(bad), 107001);
        EXPECT_EQ(aclrtCreateContext(&context, bad), 107001);
        EXPECT_EQ(context, nullptr);
    }
    EXPECT_NE(recent_message().find("deviceId is 2147483647"), std::string::npos);
}

// One reset per set; the last one releases the default context.
TEST_F(DeviceTest, ResetsAreCounted) {
    const aclrtContext first = current();
    ASSERT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
    EXPECT_EQ(current(), first);
    EXPECT_EQ(aclrtResetDevice(0), ACL_SUCCESS);
    EXPECT_EQ(current(), first);
    EXPECT_EQ(aclrtResetDevice(0), ACL_SUCCESS);
    aclrtContext context = nullptr;
    EXPECT_EQ(aclrtGetCurrentContext(&context), 107002);
    EXPECT_EQ(aclrtResetDevice(0), 507007);
    EXPECT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
    EXPECT_NE(current(), first);
}

TEST_F(DeviceTest, ContextsAreCurrentPerThread) {
    const aclrtContext of_device = current();
    aclrtContext made = nullptr;
    ASSERT_EQ(aclrtCreateContext(&made, 0), ACL_SUCCESS);
    EXPECT_EQ(current(), made);
    std::thread([&] {
        aclrtContext context = nullptr;
        std::int32_t device = 0;
        aclrtStream stream = nullptr;
        EXPECT_EQ(aclrtGetCurrentContext(&context), 107002);
        EXPECT_EQ(aclrtGetDevice(&device), 107002);
        EXPECT_EQ(aclrtCreateStream(&stream), 107002);
        EXPECT_EQ(aclrtSynchronizeStream(nullptr), 107002);
        EXPECT_EQ(aclrtSynchronizeDevice(), 107002);
        EXPECT_EQ(aclrtSetCurrentContext(of_device), ACL_SUCCESS);
        EXPECT_EQ(current(), of_device);
    }).join();
    EXPECT_EQ(current(), made);
    EXPECT_EQ(aclrtSetCurrentContext(of_device), ACL_SUCCESS);
    EXPECT_EQ(current(), of_device);
    EXPECT_EQ(aclrtDestroyContext(made), ACL_SUCCESS);
    EXPECT_EQ(current(), of_device);
}

TEST_F(DeviceTest, DestroyingTheCurrentContextLeavesTheDefaultOneOrNone) {
    const aclrtContext of_device = current();
    aclrtContext made = nullptr;
    ASSERT_EQ(aclrtCreateContext(&made, 0), ACL_SUCCESS);
    std::thread([&] {
        EXPECT_EQ(aclrtSetCurrentContext(made), ACL_SUCCESS);
        EXPECT_EQ(aclrtDestroyContext(made), ACL_SUCCESS);
        EXPECT_EQ(current(), of_device);
    }).join();
    // To a thread where it was current too, the context is simply gone.
    aclrtContext context = nullptr;
    EXPECT_EQ(aclrtGetCurrentContext(&context), 107002);
    ASSERT_EQ(aclrtCreateContext(&made, 0), ACL_SUCCESS);
    EXPECT_EQ(aclrtResetDevice(0), ACL_SUCCESS);
    EXPECT_EQ(current(), made);
    EXPECT_EQ(aclrtDestroyContext(made), ACL_SUCCESS);
    EXPECT_EQ(aclrtGetCurrentContext(&context), 107002);
}

TEST_F(DeviceTest, ContextMisuse) {
    aclrtContext made = nullptr;
    int local = 0;
    const aclrtContext of_device = current();
    EXPECT_EQ(aclrtCreateContext(nullptr, 0), 100000);
    EXPECT_EQ(aclrtGetCurrentContext(nullptr), 100000);
    EXPECT_EQ(aclrtSetCurrentContext(nullptr), 100000);
    EXPECT_EQ(aclrtSetCurrentContext(&local), 107000);
    EXPECT_EQ(aclrtDestroyContext(nullptr), 100000);
    EXPECT_EQ(aclrtDestroyContext(&local), 107002);
    EXPECT_EQ(aclrtDestroyContext(of_device), 107002);
    EXPECT_EQ(current(), of_device);
    ASSERT_EQ(aclrtCreateContext(&made, 0), ACL_SUCCESS);
    EXPECT_EQ(aclrtDestroyContext(made), ACL_SUCCESS);
    EXPECT_EQ(aclrtDestroyContext(made), 107002);
    EXPECT_EQ(aclrtSetCurrentContext(made), 107000);
}

// The address of a handle instead of the handle, as in public examples.
TEST_F(DeviceTest, GarbageStreamsAreRecognised) {
    aclrtStream stream = new_stream();
    EXPECT_EQ(aclrtDestroyStream(nullptr), 100000);
    EXPECT_EQ(aclrtCreateStream(nullptr), 100000);
    for (void* garbage : {static_cast<void*>(&stream), reinterpret_cast<void*>(1), current()}) {
        EXPECT_EQ(aclrtDestroyStream(garbage), 107017);
        EXPECT_EQ(aclrtSynchronizeStream(garbage), 107017);
        EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(garbage, 1), 107017);
    }
    EXPECT_EQ(aclrtSynchronizeStream(stream), ACL_SUCCESS);
    EXPECT_EQ(aclrtDestroyStream(stream), ACL_SUCCESS);
    EXPECT_EQ(aclrtDestroyStream(stream), 107017);
    EXPECT_EQ(aclrtSynchronizeStream(stream), 107017);
}

TEST_F(DeviceTest, StreamsBelongToTheirContext) {
    const aclrtContext of_device = current();
    aclrtStream stream = new_stream();
    aclrtContext made = nullptr;
    ASSERT_EQ(aclrtCreateContext(&made, 0), ACL_SUCCESS);
    aclrtStream of_made = new_stream();
    EXPECT_EQ(aclrtSynchronizeStream(stream), 107003);
    EXPECT_EQ(aclrtDestroyStream(stream), 107003);
    std::thread([&] {
        EXPECT_EQ(aclrtSynchronizeStream(stream), 107002);
        EXPECT_EQ(aclrtDestroyStream(stream), 107002);
        EXPECT_EQ(aclrtSetCurrentContext(of_device), ACL_SUCCESS);
        EXPECT_EQ(aclrtSynchronizeStream(stream), ACL_SUCCESS);
    }).join();
    EXPECT_EQ(aclrtDestroyContext(made), ACL_SUCCESS);
    EXPECT_EQ(aclrtDestroyStream(of_made), 107017);  // went with its context
    EXPECT_EQ(aclrtDestroyStream(stream), ACL_SUCCESS);
}

TEST_F(DeviceTest, TimeoutsAreInMilliseconds) {
    EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(nullptr, -2), 100000);
    EXPECT_NE(recent_message().find("timeout is -2"), std::string::npos);
    EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(nullptr, -1), ACL_SUCCESS);
    EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(nullptr, 0), ACL_SUCCESS);
}

// Streams, contexts and memory that a program leaves alive do not disturb the end.
TEST_F(DeviceTest, ResetAndFinalizeTolerateLeaks) {
    aclrtContext context = nullptr;
    ASSERT_EQ(aclrtCreateContext(&context, 0), ACL_SUCCESS);
    aclrtStream stream = new_stream();
    char* block = allocate(1000);
    EXPECT_EQ(aclrtMemcpyAsync(block, 10, "0123456789", 10, ACL_MEMCPY_HOST_TO_DEVICE, stream), 0);
    EXPECT_EQ(aclrtResetDevice(0), ACL_SUCCESS);
    EXPECT_EQ(aclFinalize(), ACL_SUCCESS);
    EXPECT_EQ(aclrtSynchronizeStream(stream), 107017);
    EXPECT_EQ(aclrtFree(block), 107000);
    EXPECT_EQ(aclrtSetCurrentContext(context), 107000);
    ASSERT_EQ(aclInit(nullptr), ACL_SUCCESS);
}

// Threads with contexts and streams of their own do not meet.
TEST_F(DeviceTest, ThreadsWorkInContextsOfTheirOwn) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([t] {
            aclrtContext context = nullptr;
            ASSERT_EQ(aclrtCreateContext(&context, 0), ACL_SUCCESS);
            for (int i = 0; i < 20; ++i) {
                aclrtStream stream = new_stream();
                char* block = allocate(256);
                const Bytes sent(256, static_cast<std::uint8_t>(t * 20 + i));
                EXPECT_EQ(aclrtMemcpyAsync(block, 256, sent.data(), 256, ACL_MEMCPY_HOST_TO_DEVICE,
                                           stream),
                          ACL_SUCCESS);
                EXPECT_EQ(aclrtSynchronizeStream(stream), ACL_SUCCESS);
                EXPECT_EQ(download(block, 256), sent);
                EXPECT_EQ(aclrtFree(block), ACL_SUCCESS);
                EXPECT_EQ(aclrtDestroyStream(stream), ACL_SUCCESS);
            }
            EXPECT_EQ(aclrtDestroyContext(context), ACL_SUCCESS);
        });
    for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace attncheck::aclnn
