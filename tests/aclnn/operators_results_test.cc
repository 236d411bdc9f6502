// Results of every variant: the bits of the candidate interface, whatever the views and whoever
// holds the memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "acl_fixture.h"
#include "operators_direct.h"
#include "operators_fields.h"
#include "operators_variants.h"

namespace attncheck::aclnn {
namespace {

constexpr std::uint8_t kPoison = 0x6b;

/// The elements of a view in row-major order.
Bytes elements(const attncheck_tensor& view) {
    const std::int64_t size = size_of(view.dtype), count = view.data ? count_of(view) : 0;
    Bytes bytes(static_cast<std::size_t>(count * size));
    for (std::int64_t i = 0; i < count; ++i) {
        std::int64_t rest = i, offset = 0;
        for (int dim = view.rank - 1; dim >= 0; --dim) {
            offset += rest % view.shape[dim] * view.strides[dim];
            rest /= view.shape[dim];
        }
        std::memcpy(bytes.data() + i * size, static_cast<char*>(view.data) + offset * size,
                    static_cast<std::size_t>(size));
    }
    return bytes;
}

/// A copy with `gap` times the distance between elements, reversed where gap is negative, and
/// poison between them.
attncheck_tensor spread(Storage& storage, const attncheck_tensor& view, std::int64_t gap) {
    if (view.data == nullptr) return view;
    const std::int64_t size = size_of(view.dtype), count = count_of(view), distance = std::abs(gap);
    attncheck_tensor made = view;
    std::uint8_t* memory = storage.bytes((count * distance + 8) * size, kPoison);
    for (int dim = 0; dim < view.rank; ++dim) made.strides[dim] *= distance;
    std::int64_t first = 4;
    if (gap < 0) {
        const int last = view.rank - 1;
        made.strides[last] = -made.strides[last];
        first += (view.shape[last] - 1) * distance;
    }
    made.data = memory + first * size;
    const Bytes packed = elements(view);
    for (std::int64_t i = 0; i < count; ++i) {
        std::int64_t rest = i, offset = 0;
        for (int dim = made.rank - 1; dim >= 0; --dim) {
            offset += rest % made.shape[dim] * made.strides[dim];
            rest /= made.shape[dim];
        }
        std::memcpy(static_cast<std::uint8_t*>(made.data) + offset * size, packed.data() + i * size,
                    static_cast<std::size_t>(size));
    }
    return made;
}

template <class Variant>
class OperatorResults : public DeviceTest {
protected:
    using CallArgs = typename Variant::Args;

    void SetUp() override {
        DeviceTest::SetUp();
        Variant::fill_problem(problem);
        direct_args = problem.args;
        for (const auto output : fields<CallArgs>().outputs) {
            const attncheck_tensor& view = problem.args.*output;
            if (view.data == nullptr) continue;
            (direct_args.*output).data = problem.storage.bytes(count_of(view) * size_of(view.dtype),
                                                               static_cast<std::uint8_t>(~kPoison));
        }
        ASSERT_EQ(direct(direct_args), 0);
    }

    /// Both phases; the workspace is exactly as large as asked for, between two walls.
    void run(const CallArgs& args) {
        Descriptors descriptors;
        aclOpExecutor* executor = nullptr;
        ASSERT_EQ(Variant::first_phase(args, descriptors, &workspace_bytes, &executor), 0)
            << recent_message();
        constexpr std::size_t kWall = 64;
        char* block = allocate(workspace_bytes + 2 * kWall);
        std::memset(block, kPoison, workspace_bytes + 2 * kWall);
        ASSERT_EQ(Variant::kSecondPhase(workspace_bytes > 0 ? block + kWall : nullptr,
                                        workspace_bytes, executor, nullptr),
                  0)
            << recent_message();
        ASSERT_EQ(aclrtSynchronizeStream(nullptr), 0) << recent_message();
        const Bytes all = download(block, workspace_bytes + 2 * kWall);
        const auto begin = all.begin() + kWall, end = begin + static_cast<long>(workspace_bytes);
        poison_left = static_cast<std::uint64_t>(std::count(begin, end, kPoison));
        EXPECT_EQ(std::count(all.begin(), begin, kPoison), static_cast<long>(kWall));
        EXPECT_EQ(std::count(end, all.end(), kPoison), static_cast<long>(kWall));
    }

    void expect_direct_results(const CallArgs& args) {
        for (const auto output : fields<CallArgs>().outputs)
            EXPECT_EQ(elements(args.*output), elements(direct_args.*output));
    }

    Problem<CallArgs> problem;
    CallArgs direct_args;
    std::uint64_t workspace_bytes = 0, poison_left = 0;
};
TYPED_TEST_SUITE(OperatorResults, Variants, VariantName);

TYPED_TEST(OperatorResults, HaveTheBitsOfTheCandidateInterface) {
    this->run(this->problem.args);
    this->expect_direct_results(this->problem.args);
    EXPECT_EQ(this->workspace_bytes, 0u);
}

// Elements two and three apart, forwards and backwards: packed into the workspace, which is exactly
// the sum of the packed tensors in lines of 64 bytes and is written from its first byte on.
TYPED_TEST(OperatorResults, DoNotDependOnStrides) {
    using Args = typename TestFixture::CallArgs;
    Args args = this->problem.args;
    std::uint64_t wanted = 0, packed = 0;
    std::int64_t gap = 2;
    for (const auto tensor : fields<Args>().tensors()) {
        attncheck_tensor& view = args.*tensor;
        if (view.data == nullptr) continue;
        const auto bytes = static_cast<std::uint64_t>(count_of(view) * size_of(view.dtype));
        packed += bytes;
        wanted += (bytes + 63) / 64 * 64;
        view = spread(this->problem.storage, view, gap);
        gap = gap > 0 ? -gap - 1 : -gap - 1 > 2 ? 2 : 3;
    }
    this->run(args);
    this->expect_direct_results(args);
    EXPECT_EQ(this->workspace_bytes, wanted);
    // What the padding keeps, and the few bytes of data that happen to look like it.
    EXPECT_LE(this->poison_left, wanted - packed + packed / 8);
    for (const auto output : fields<Args>().outputs) {
        const attncheck_tensor& view = args.*output;
        if (view.data == nullptr) continue;
        const std::int64_t size = size_of(view.dtype);
        for (const std::int64_t neighbour : {-1, 1}) {
            const auto* gap_bytes = static_cast<std::uint8_t*>(view.data) + neighbour * size;
            EXPECT_EQ(Bytes(gap_bytes, gap_bytes + size),
                      Bytes(static_cast<std::size_t>(size), kPoison));
        }
    }
}

// Rows that lie further apart than they are long need no copy.
TYPED_TEST(OperatorResults, OfSeparatedRowsNeedNoWorkspace) {
    using Args = typename TestFixture::CallArgs;
    Args args = this->problem.args;
    for (const auto tensor : fields<Args>().tensors()) {
        attncheck_tensor& view = args.*tensor;
        if (view.data == nullptr || view.rank < 2) continue;
        attncheck_tensor wide = view;
        const std::int64_t row = view.shape[view.rank - 1], size = size_of(view.dtype);
        for (int dim = 0; dim < view.rank - 1; ++dim)
            wide.strides[dim] = view.strides[dim] / row * (row + 5);
        wide.data = this->problem.storage.bytes(count_of(view) / row * (row + 5) * size, kPoison);
        const Bytes packed = elements(view);
        for (std::size_t i = 0; i < packed.size(); i += static_cast<std::size_t>(row * size)) {
            const std::size_t target =
                i / static_cast<std::size_t>(row) * static_cast<std::size_t>(row + 5);
            std::memcpy(static_cast<std::uint8_t*>(wide.data) + target, packed.data() + i,
                        static_cast<std::size_t>(row * size));
        }
        view = wide;
    }
    this->run(args);
    this->expect_direct_results(args);
    EXPECT_EQ(this->workspace_bytes, 0u);
}

// With its pages closed to the host, memory of the device serves all operators, and the first phase
// does not look into it.
TYPED_TEST(OperatorResults, ComeFromGuardedDeviceMemory) {
    using Args = typename TestFixture::CallArgs;
    const ScopedVariable guarded("ATTNCHECK_ACL_DEBUG", "1");
    Args args = this->problem.args;
    for (const auto tensor : fields<Args>().tensors()) {
        attncheck_tensor& view = args.*tensor;
        if (view.data == nullptr) continue;
        Bytes data = elements(view);
        data.insert(data.begin(), static_cast<std::size_t>(4 * size_of(view.dtype)), kPoison);
        char* block = this->allocate(data.size());
        ASSERT_EQ(this->upload(block, data), 0);
        view.data = block + 4 * size_of(view.dtype);
    }
    Descriptors descriptors;
    aclOpExecutor* executor = nullptr;
    std::uint64_t bytes = 1;
    ASSERT_EQ(TypeParam::first_phase(args, descriptors, &bytes, &executor), 0) << recent_message();
    ASSERT_EQ(bytes, 0u);
    ASSERT_EQ(TypeParam::kSecondPhase(nullptr, 0, executor, nullptr), 0) << recent_message();
    ASSERT_EQ(aclrtSynchronizeStream(nullptr), 0) << recent_message();
    for (const auto output : fields<Args>().outputs) {
        const attncheck_tensor& view = args.*output;
        if (view.data == nullptr) continue;
        const Bytes wanted = elements(this->direct_args.*output);
        EXPECT_EQ(this->download(view.data, wanted.size()), wanted);
    }
}

// One executor, several runs, each on what the inputs hold by then.
TYPED_TEST(OperatorResults, FollowTheInputsOfARepeatedExecutor) {
    using Args = typename TestFixture::CallArgs;
    Args& args = this->problem.args;
    Descriptors descriptors;
    aclOpExecutor* executor = nullptr;
    std::uint64_t bytes = 1;
    ASSERT_EQ(TypeParam::first_phase(args, descriptors, &bytes, &executor), 0) << recent_message();
    ASSERT_EQ(aclSetAclOpExecutorRepeatable(executor), 0);
    const attncheck_tensor& first_input = args.*fields<Args>().inputs[0];
    auto* const data = static_cast<std::uint8_t*>(first_input.data);
    for (int repetition = 0; repetition < 2; ++repetition) {
        ASSERT_EQ(TypeParam::kSecondPhase(nullptr, 0, executor, nullptr), 0) << recent_message();
        ASSERT_EQ(aclrtSynchronizeStream(nullptr), 0) << recent_message();
        this->expect_direct_results(args);
        std::reverse(data, data + count_of(first_input) * size_of(first_input.dtype));
        for (std::int64_t i = 0; i < count_of(first_input); ++i) {
            auto* element = data + i * size_of(first_input.dtype);
            std::reverse(element, element + size_of(first_input.dtype));
        }
        ASSERT_EQ(direct(this->direct_args), 0);
    }
    EXPECT_EQ(aclDestroyAclOpExecutor(executor), 0);
}

}  // namespace
}  // namespace attncheck::aclnn
