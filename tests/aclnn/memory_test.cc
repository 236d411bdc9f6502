// Device memory: allocation, ranges, every misuse of a copy, and guarded blocks.
#include <algorithm>
#include <thread>
#include <utility>

#include "acl_fixture.h"
#include "impl/aclnn/device_memory.h"

namespace attncheck::aclnn {
namespace {

constexpr auto kToDevice = ACL_MEMCPY_HOST_TO_DEVICE;
constexpr auto kToHost = ACL_MEMCPY_DEVICE_TO_HOST;
constexpr auto kOnDevice = ACL_MEMCPY_DEVICE_TO_DEVICE;
constexpr auto kOnHost = ACL_MEMCPY_HOST_TO_HOST;

/// Plain and guarded memory keep the same contract.
class Memory : public DeviceTest, public testing::WithParamInterface<bool> {
    ScopedVariable debug_{"ATTNCHECK_ACL_DEBUG", GetParam() ? "1" : nullptr};
};
INSTANTIATE_TEST_SUITE_P(Modes, Memory, testing::Bool(),
                         [](const auto& instance) { return instance.param ? "Guarded" : "Plain"; });

TEST_P(Memory, ReturnsWhatWasCopiedIn) {
    for (const std::size_t size : {1u, 31u, 32u, 4096u, 100001u}) {
        char* block = allocate(size);
        ASSERT_NE(block, nullptr);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 64, 0u);
        Bytes bytes(size);
        for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::uint8_t>(i * 7 + 1);
        EXPECT_EQ(upload(block, bytes), ACL_SUCCESS);
        EXPECT_EQ(download(block, size), bytes);
        EXPECT_EQ(aclrtFree(block), ACL_SUCCESS);
    }
}

// Size rounded up to 32, plus 32: usable, and one byte more is not.
TEST_P(Memory, IsUsableToItsPadding) {
    for (const auto& [size, usable] : {std::pair{1u, 64u}, {32u, 64u}, {33u, 96u}, {96u, 128u}}) {
        char* block = allocate(size);
        const Bytes bytes(usable + 1, 5);
        EXPECT_EQ(aclrtMemcpy(block, usable, bytes.data(), usable, kToDevice), ACL_SUCCESS);
        EXPECT_EQ(aclrtMemcpy(block, usable + 1, bytes.data(), usable + 1, kToDevice), 107000);
        EXPECT_EQ(aclrtMemcpy(block + usable - 1, 1, bytes.data(), 1, kToDevice), ACL_SUCCESS);
        EXPECT_EQ(aclrtMemcpy(block + usable, 1, bytes.data(), 1, kToDevice), 107000);
        EXPECT_EQ(aclrtFree(block), ACL_SUCCESS);
    }
}

TEST_P(Memory, CopyPastTheEndTouchesNothing) {
    char* block = allocate(64);
    Bytes host(200, 3);
    ASSERT_EQ(upload(block, Bytes(64, 9)), ACL_SUCCESS);
    EXPECT_EQ(aclrtMemcpy(host.data(), 200, block, 200, kToHost), 107000);
    EXPECT_NE(recent_message().find("src is 0x"), std::string::npos);
    EXPECT_EQ(host, Bytes(200, 3));
    EXPECT_EQ(aclrtMemcpy(block, 200, host.data(), 200, kToDevice), 107000);
    EXPECT_NE(recent_message().find("dst is 0x"), std::string::npos);
    EXPECT_EQ(download(block, 64), Bytes(64, 9));
}

TEST_P(Memory, FreedBlocksAreRefused) {
    char* block = allocate(64);
    Bytes host(64);
    ASSERT_EQ(aclrtFree(block), ACL_SUCCESS);
    EXPECT_EQ(aclrtFree(block), 107000);
    EXPECT_EQ(aclrtMemcpy(host.data(), 64, block, 64, kToHost), 107000);
    EXPECT_EQ(aclrtMemcpy(block, 64, host.data(), 64, kToDevice), 107000);
    EXPECT_EQ(aclrtMemset(block, 64, 0, 64), 107000);
    EXPECT_EQ(device_placement(block, 1), Placement::kElsewhere);
}

TEST_P(Memory, OnlyTheStartOfADeviceBlockCanBeFreed) {
    char* block = allocate(64);
    int local = 0;
    EXPECT_EQ(aclrtFree(nullptr), 100000);
    EXPECT_EQ(aclrtFree(&local), 107000);
    EXPECT_EQ(aclrtFree(block + 32), 107000);
    EXPECT_EQ(aclrtFreeHost(block), 107000);
    EXPECT_EQ(aclrtFree(block), ACL_SUCCESS);
}

TEST_P(Memory, KindsMustMatchTheAddresses) {
    char* block = allocate(64);
    Bytes host(64), other(64);
    EXPECT_EQ(aclrtMemcpy(host.data(), 64, block, 64, kToDevice), 107000);
    EXPECT_EQ(aclrtMemcpy(block, 64, host.data(), 64, kToHost), 107000);
    EXPECT_EQ(aclrtMemcpy(host.data(), 64, other.data(), 64, kOnDevice), 107000);
    EXPECT_EQ(aclrtMemcpy(block, 64, host.data(), 64, kOnHost), 107000);
    EXPECT_EQ(aclrtMemcpy(host.data(), 64, other.data(), 64, kOnHost), ACL_SUCCESS);
    EXPECT_EQ(aclrtMemcpy(block, 64, host.data(), 64, ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE), 0);
    EXPECT_EQ(aclrtMemcpy(host.data(), 64, block, 64, ACL_MEMCPY_DEFAULT), ACL_SUCCESS);
}

TEST_P(Memory, CopiesOverlapLikeMemmove) {
    char* block = allocate(64);
    Bytes bytes(64);
    for (int i = 0; i < 64; ++i) bytes[i] = static_cast<std::uint8_t>(i);
    ASSERT_EQ(upload(block, bytes), ACL_SUCCESS);
    EXPECT_EQ(aclrtMemcpy(block + 1, 63, block, 63, kOnDevice), ACL_SUCCESS);
    std::memmove(bytes.data() + 1, bytes.data(), 63);
    EXPECT_EQ(download(block, 64), bytes);
}

TEST_P(Memory, SetFillsBytes) {
    char* block = allocate(64);
    EXPECT_EQ(aclrtMemset(block, 64, 0x1a5, 64), ACL_SUCCESS);
    EXPECT_EQ(aclrtMemset(block + 8, 4, 0, 4), ACL_SUCCESS);
    Bytes wanted(64, 0xa5);
    std::fill_n(wanted.begin() + 8, 4, std::uint8_t{0});
    EXPECT_EQ(download(block, 64), wanted);
    EXPECT_EQ(aclrtMemset(nullptr, 1, 0, 1), 100000);
    EXPECT_EQ(aclrtMemset(block, 3, 0, 4), 107000);
    EXPECT_EQ(aclrtMemset(block, 1000, 0, 97), 107000);
    EXPECT_EQ(aclrtMemset(block, 0, 0, 0), ACL_SUCCESS);
    std::thread([&] { EXPECT_EQ(aclrtMemset(block, 64, 0, 64), 107002); }).join();
}

TEST_P(Memory, PlacementSaysWhereARangeLies) {
    char* block = allocate(32);
    EXPECT_EQ(device_placement(block, 64), Placement::kInside);
    EXPECT_EQ(device_placement(block + 10, 54), Placement::kInside);
    EXPECT_EQ(device_placement(block + 10, 55), Placement::kPastTheEnd);
    EXPECT_EQ(device_placement(block, ~std::size_t{0}), Placement::kPastTheEnd);
    EXPECT_EQ(device_placement(block + 64, 1), Placement::kElsewhere);
    EXPECT_EQ(device_placement(block - 1, 1), Placement::kElsewhere);
    EXPECT_EQ(device_placement(nullptr, 1), Placement::kElsewhere);
}

// The order of the checks: an earlier one decides.
TEST_F(DeviceTest, CopyChecksItsArgumentsInOrder) {
    char* block = allocate(64);
    Bytes host(64);
    const auto bad_kind = static_cast<aclrtMemcpyKind>(0x77);
    EXPECT_EQ(aclrtMemcpy(nullptr, 0, nullptr, 0, kToDevice), ACL_SUCCESS);
    EXPECT_EQ(aclrtMemcpy(nullptr, 0, host.data(), 1, kToDevice), 100000);
    EXPECT_EQ(aclrtMemcpy(block, 0, nullptr, 1, kToDevice), 100000);
    EXPECT_EQ(aclrtMemcpy(block, 0, host.data(), 1, bad_kind), 100000);
    for (const auto kind : {ACL_MEMCPY_INNER_DEVICE_TO_DEVICE, ACL_MEMCPY_INTER_DEVICE_TO_DEVICE})
        EXPECT_EQ(aclrtMemcpy(block, 64, block + 1, 1, kind), 100000);
    EXPECT_EQ(aclrtMemcpy(block, 63, host.data(), 64, kToDevice), 107000);
    EXPECT_EQ(aclrtMemcpy(block, 63, block, 64, kToDevice), 107000);
    EXPECT_EQ(aclrtMemcpy(host.data(), 64, host.data(), 64, kToDevice), ACL_SUCCESS);
    std::thread([&] {
        EXPECT_EQ(aclrtMemcpy(host.data(), 64, host.data(), 64, kToDevice), ACL_SUCCESS);
        EXPECT_EQ(aclrtMemcpy(block, 63, host.data(), 64, kToDevice), 107000);
        EXPECT_EQ(aclrtMemcpy(block, 64, host.data(), 64, kToDevice), 107002);
    }).join();
}

TEST_F(DeviceTest, AllocationChecksItsArgumentsInOrder) {
    void* block = &block;
    void* const untouched = block;
    constexpr auto kPolicy = ACL_MEM_MALLOC_HUGE_FIRST;
    EXPECT_EQ(aclrtMalloc(nullptr, 1, kPolicy), 100000);
    EXPECT_EQ(aclrtMalloc(&block, 0, kPolicy), 100000);
    EXPECT_EQ(aclrtMalloc(&block, ~std::size_t{0}, kPolicy), 207001);
    EXPECT_EQ(aclrtMalloc(&block, ~std::size_t{0} - 63, kPolicy), 207001);
    EXPECT_EQ(aclrtMalloc(&block, std::size_t{1} << 50, kPolicy), 207001);
    EXPECT_NE(recent_message().find("size is 1125899906842624"), std::string::npos);
    std::thread([&] {
        EXPECT_EQ(aclrtMalloc(&block, 0, kPolicy), 100000);
        EXPECT_EQ(aclrtMalloc(&block, 1, kPolicy), 107002);
        EXPECT_EQ(aclrtMallocHost(&block, 1), 107002);
    }).join();
    EXPECT_EQ(block, untouched);
}

TEST_F(DeviceTest, PinnedHostMemoryIsOrdinaryToTheHost) {
    void* pinned = nullptr;
    ASSERT_EQ(aclrtMallocHost(&pinned, 100), ACL_SUCCESS);
    std::memset(pinned, 4, 100);
    char* block = allocate(100);
    EXPECT_EQ(aclrtMemcpy(block, 100, pinned, 100, kToDevice), ACL_SUCCESS);
    EXPECT_EQ(download(block, 100), Bytes(100, 4));
    EXPECT_EQ(aclrtMemcpy(pinned, 101, block, 101, kToHost), 107000);
    EXPECT_EQ(aclrtMemcpy(pinned, 100, block, 100, kOnDevice), 107000);
    EXPECT_EQ(aclrtFree(pinned), 107000);
    EXPECT_EQ(aclrtFreeHost(pinned), ACL_SUCCESS);
    EXPECT_EQ(aclrtFreeHost(pinned), 107000);
    EXPECT_EQ(aclrtFreeHost(nullptr), 100000);
    EXPECT_EQ(aclrtMallocHost(nullptr, 1), 100000);
    EXPECT_EQ(aclrtMallocHost(&pinned, 0), 100000);
}

class GuardedMemory : public DeviceTest {
    ScopedVariable debug_{"ATTNCHECK_ACL_DEBUG", "1"};
};

// 0xFF bytes are a NaN in every float format.
TEST_F(GuardedMemory, IsPoisoned) { EXPECT_EQ(download(allocate(100), 128), Bytes(128, 0xff)); }

class GuardedMemoryDeathTest : public GuardedMemory {
protected:
    void SetUp() override {
        GTEST_FLAG_SET(death_test_style, "threadsafe");  // streams have threads
        GuardedMemory::SetUp();
    }
};

// Host code that uses a device pointer dies where hardware would fail.
TEST_F(GuardedMemoryDeathTest, HostAccessFaults) {
    volatile char* block = allocate(100);
    EXPECT_DEATH(block[0] = 1, "");
    EXPECT_DEATH(static_cast<void>(block[99]), "");
    EXPECT_EQ(aclrtFree(const_cast<char*>(block)), ACL_SUCCESS);
    EXPECT_DEATH(static_cast<void>(block[0]), "");
}

TEST_F(GuardedMemoryDeathTest, OpeningsNestAndEnd) {
    volatile char* block = allocate(100);
    {
        const DeviceMemoryOpening outer;
        volatile char* made_while_open = allocate(100);
        {
            const DeviceMemoryOpening inner;
            EXPECT_EQ(upload(const_cast<char*>(block), Bytes(100, 7)), ACL_SUCCESS);
        }
        EXPECT_EQ(block[99], 7);
        made_while_open[0] = 1;
        EXPECT_DEATH(static_cast<void>(block[192]), "");  // the closed page behind the block
    }
    EXPECT_DEATH(static_cast<void>(block[0]), "");
}

// A copy that is under way keeps its pages when a kernel elsewhere ends, and the other way round.
TEST_F(GuardedMemory, CopiesAndKernelsOpenItIndependently) {
    volatile char* block = allocate(64);
    {
        const CopyEnd copy(const_cast<char*>(block), 64);
        {
            const DeviceMemoryOpening kernel;
        }
        block[0] = 3;
    }
    const DeviceMemoryOpening kernel;
    {
        const CopyEnd copy(const_cast<char*>(block), 64);
    }
    EXPECT_EQ(block[0], 3);
}

// The pages of one block are opened and closed by several threads and kernels at once.
TEST_F(GuardedMemory, StaysOpenForTheLastUser) {
    char* block = allocate(64);
    ASSERT_EQ(upload(block, Bytes(64, 1)), ACL_SUCCESS);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&, t] {
            ASSERT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
            for (int i = 0; i < 200; ++i) {
                if (t % 2 == 0) {
                    EXPECT_EQ(download(block, 64), Bytes(64, 1));
                } else {
                    const DeviceMemoryOpening opening;
                    EXPECT_EQ(static_cast<volatile char*>(block)[i % 64], 1);
                }
            }
        });
    for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace attncheck::aclnn
