// Products of operands whose last element is the last one of mapped memory: nothing behind an
// operand is read, whatever the instruction set and whatever the compiler makes of the loops.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <string>

#include "impl/kernels/attention_kernels.h"

namespace attncheck::impl {
namespace {

// `count` elements in front of a page that may not be touched.
template <class Element>
class EndingArray {
public:
    EndingArray(std::int64_t count, Element value)
        : page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))),
          used_((static_cast<std::size_t>(count) * sizeof(Element) + page_ - 1) / page_ * page_) {
        void* mapped = mmap(nullptr, used_ + page_, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (mapped == MAP_FAILED) throw std::bad_alloc();
        base_ = static_cast<std::byte*>(mapped);
        if (mprotect(base_ + used_, page_, PROT_NONE) != 0) throw std::bad_alloc();
        first_ = reinterpret_cast<Element*>(base_ + used_) - count;
        std::fill_n(first_, count, value);
    }
    ~EndingArray() { munmap(base_, used_ + page_); }
    EndingArray(const EndingArray&) = delete;
    EndingArray& operator=(const EndingArray&) = delete;

    Element* data() const { return first_; }

private:
    std::size_t page_, used_;
    std::byte* base_;
    Element* first_;
};

class OperandsEnd : public testing::TestWithParam<const char*> {
protected:
    void SetUp() override {
        const auto found = find_attention_kernels(GetParam());
        if (!found) GTEST_SKIP() << "not on this machine";
        kernels_ = *found;
    }

    AttentionKernels kernels_{};
};

TEST_P(OperandsEnd, ProductsReadNothingBehindThem) {
    for (std::int64_t rows = 1; rows <= 7; ++rows) {
        for (const std::int64_t depth : {1, 2, 33}) {
            for (const std::int64_t cols : {16, 48, 128}) {
                const EndingArray<float> left(rows * depth, 1.0f), right(depth * cols, 2.0f),
                    out(rows * cols, 0.0f);
                const auto sum = [&] { return out.data()[rows * cols - 1]; };
                const float expected = 2.0f * static_cast<float>(depth);

                kernels_.scaled_product({left.data(), depth, rows, right.data(), cols, depth, cols,
                                         1.0f, out.data(), cols});
                EXPECT_EQ(sum(), expected);
                kernels_.float_product({left.data(), depth, rows, right.data(), cols, depth, cols,
                                        false, out.data(), cols});
                EXPECT_EQ(sum(), expected);
                kernels_.transposed_product(
                    {left.data(), rows, rows, right.data(), cols, depth, cols, out.data(), cols});
                EXPECT_EQ(sum(), 2 * expected);
                const EndingArray<std::uint16_t> panels(depth * cols, 0x4000);  // 2 in both formats
                for (const auto product : kernels_.panel_product) {
                    product({left.data(), depth, rows, panels.data(), depth, cols, 1.0f,
                             out.data(), cols});
                    EXPECT_EQ(sum(), expected);
                }
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, OperandsEnd,
                         testing::Values("scalar", "ssse3", "sse4", "avx2", "avx512", "amx_emulated",
                                         "amx", "neon"),
                         [](const auto& set) { return std::string(set.param); });

}  // namespace
}  // namespace attncheck::impl
