// Scratch that a call gives back serves the next one, within limits.
#include "impl/runtime/scratch_memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "impl/arguments/strided_rows.h"

namespace attncheck::impl {
namespace {

constexpr std::size_t kMib = std::size_t{1} << 20;

class ScratchMemoryTest : public testing::Test {
protected:
    void SetUp() override {
        drop_kept_scratch();
        give_scratch(take_scratch(kMib));
        if (kept_scratch_bytes() == 0) GTEST_SKIP() << "nothing is kept in this build";
        drop_kept_scratch();
    }
    void TearDown() override { drop_kept_scratch(); }
};

TEST_F(ScratchMemoryTest, WhatComesBackIsTakenAgain) {
    const Scratch first = take_scratch(5 * kMib + 77);
    EXPECT_GE(first.capacity, 5 * kMib + 77);
    EXPECT_LE(first.capacity, 6 * kMib);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first.memory) % 64, 0u);
    give_scratch(first);
    EXPECT_EQ(kept_scratch_bytes(), first.capacity);
    const Scratch other = take_scratch(3 * kMib);  // for which it would be a waste
    EXPECT_NE(other.memory, first.memory);
    const Scratch again = take_scratch(5 * kMib);
    EXPECT_EQ(again.memory, first.memory);
    EXPECT_EQ(again.capacity, first.capacity);
    EXPECT_EQ(kept_scratch_bytes(), 0u);
    give_scratch(other);
    give_scratch(again);
}

TEST_F(ScratchMemoryTest, TheBestFitIsTaken) {
    const Scratch large = take_scratch(10 * kMib), small = take_scratch(9 * kMib);
    give_scratch(large);
    give_scratch(small);
    const Scratch fitting = take_scratch(9 * kMib);
    EXPECT_EQ(fitting.memory, small.memory);
    give_scratch(fitting);
}

TEST_F(ScratchMemoryTest, NoMoreThanTheLimitIsKept) {
    std::vector<Scratch> blocks;
    for (int i = 0; i < 9; ++i) blocks.push_back(take_scratch(kMostKeptScratch / 8));
    for (const Scratch& block : blocks) give_scratch(block);
    EXPECT_EQ(kept_scratch_bytes(), kMostKeptScratch);
    // The one that came back first has made room for the last.
    blocks.clear();
    for (int i = 0; i < 8; ++i) blocks.push_back(take_scratch(kMostKeptScratch / 8));
    EXPECT_EQ(kept_scratch_bytes(), 0u);
    for (const Scratch& block : blocks) give_scratch(block);
    EXPECT_EQ(kept_scratch_bytes(), kMostKeptScratch);
    const Scratch half = take_scratch(kMostKeptScratch / 2);
    give_scratch(half);
    EXPECT_EQ(kept_scratch_bytes(), kMostKeptScratch);
    const Scratch half_again = take_scratch(kMostKeptScratch / 2);
    EXPECT_EQ(half_again.memory, half.memory);
    give_scratch(half_again);
    give_scratch(take_scratch(2 * kMostKeptScratch));
    EXPECT_EQ(kept_scratch_bytes(), kMostKeptScratch);
    drop_kept_scratch();
    EXPECT_EQ(kept_scratch_bytes(), 0u);
}

TEST_F(ScratchMemoryTest, ThreadsDoNotShareBlocks) {
    std::vector<std::thread> threads;
    std::vector<int> overwritten(4, 0);
    for (int thread = 0; thread < 4; ++thread) {
        threads.emplace_back([thread, &overwritten] {
            for (int turn = 0; turn < 200; ++turn) {
                const AlignedBuffer<std::uint8_t> buffer(64 << 10);
                std::memset(buffer.data(), thread, 64 << 10);
                std::this_thread::yield();
                for (int i = 0; i < 64 << 10; i += 4096)
                    if (buffer.data()[i] != thread) overwritten[static_cast<std::size_t>(thread)]++;
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(overwritten, std::vector<int>(4, 0));
}

}  // namespace
}  // namespace attncheck::impl
