// keep_freed_memory() of the command; heap.cc is compiled alone here.
#include "properties/cli/heap.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__)  // which has a heap of its own
#include <malloc.h>

namespace attncheck::properties {
namespace {

TEST(Heap, FreedMemoryStays) {
    keep_freed_memory();
    constexpr std::size_t kBlock = 1 << 20, kCount = 64;
    std::vector<std::unique_ptr<char[]>> blocks(kCount);
    for (auto& block : blocks) block = std::make_unique<char[]>(kBlock);
    blocks.clear();
    EXPECT_GE(mallinfo2().fordblks, kBlock * kCount);
}

}  // namespace
}  // namespace attncheck::properties
#endif
