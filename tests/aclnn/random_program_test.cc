// Random programs, right and wrong uses mixed, against a model: a few byte vectors and the statuses
// that the documents promise.
#include <deque>
#include <ostream>
#include <random>

#include "acl_fixture.h"
#include "impl/aclnn/executor.h"

namespace attncheck::aclnn {
namespace {

struct ModelBlock {
    char* address;
    Bytes bytes;  ///< to the end of the padding
    int stream;   ///< the only one whose work uses the block, so that its order is determined
};

struct ModelStream {
    aclrtStream handle;
    aclError first_error;
};

class Program {
public:
    explicit Program(unsigned seed) : random_(seed) {
        for (ModelStream& stream : streams_) make(stream);
    }

    void step() {
        switch (draw(0, 12)) {
            case 0:
            case 1:
                return allocate();
            case 2:
                return with_block([this](ModelBlock& block) { release(block); });
            case 3:
                return with_block([this](ModelBlock& block) { write(block, false); });
            case 4:
                return with_block([this](ModelBlock& block) { write(block, true); });
            case 5:
                return with_block([this](ModelBlock& block) { read(block); });
            case 6:
                return with_block([this](ModelBlock& block) { copy_on_device(block); });
            case 7:
                return with_block([this](ModelBlock& block) { fill(block); });
            case 8:
            case 9:
                return with_block([this](ModelBlock& block) { run_kernel(block); });
            case 10:
                return fail_on(streams_[draw(0, kNumStreams - 1)]);
            case 11:
                return synchronize(streams_[draw(0, kNumStreams - 1)]);
            default:
                return misuse();
        }
    }

    void check_everything() {
        for (ModelStream& stream : streams_) synchronize(stream);
        for (const ModelBlock& block : blocks_) check_contents(block);
    }

private:
    static constexpr int kNumStreams = 3;
    static constexpr std::size_t kMaxBlocks = 12;

    std::size_t draw(std::size_t low, std::size_t high) {
        return std::uniform_int_distribution<std::size_t>(low, high)(random_);
    }

    template <class Action>
    void with_block(Action action) {
        if (!blocks_.empty()) action(blocks_[draw(0, blocks_.size() - 1)]);
    }

    /// A range that mostly lies inside the block; `status` is what a copy of it must return.
    struct Range {
        std::size_t offset, count;
        aclError status;
    };
    Range draw_range(const ModelBlock& block) {
        const std::size_t size = block.bytes.size();
        const std::size_t offset = draw(0, size - 1);
        const std::size_t count = draw(1, size - offset + (draw(0, 3) == 0 ? 40 : 0));
        return {offset, count, offset + count <= size ? 0 : 107000};
    }

    Bytes draw_bytes(std::size_t count) {
        Bytes bytes(count);
        for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random_());
        return bytes;
    }

    void make(ModelStream& stream) {
        stream.first_error = 0;
        ASSERT_EQ(aclrtCreateStream(&stream.handle), ACL_SUCCESS);
    }

    void synchronize(ModelStream& stream) {
        ASSERT_EQ(aclrtSynchronizeStream(stream.handle), std::exchange(stream.first_error, 0));
    }

    void settle(const ModelBlock& block) { synchronize(streams_[block.stream]); }

    void allocate() {
        if (blocks_.size() == kMaxBlocks) return;
        const std::size_t size = draw(1, 5000), usable = (size + 31) / 32 * 32 + 32;
        void* address = nullptr;
        ASSERT_EQ(aclrtMalloc(&address, size, ACL_MEM_MALLOC_NORMAL_ONLY), ACL_SUCCESS);
        ASSERT_EQ(aclrtMemset(address, usable, 0x3c, usable), ACL_SUCCESS);
        blocks_.push_back({static_cast<char*>(address), Bytes(usable, 0x3c),
                           static_cast<int>(draw(0, kNumStreams - 1))});
    }

    void release(ModelBlock& block) {
        ASSERT_EQ(aclrtFree(block.address), ACL_SUCCESS);
        ASSERT_EQ(aclrtFree(block.address), 107000);
        std::swap(block, blocks_.back());
        blocks_.pop_back();
    }

    void write(ModelBlock& block, bool asynchronous) {
        const Range range = draw_range(block);
        const Bytes& source = sources_.emplace_back(draw_bytes(range.count));
        char* dst = block.address + range.offset;
        if (asynchronous) {
            ASSERT_EQ(aclrtMemcpyAsync(dst, range.count, source.data(), range.count,
                                       ACL_MEMCPY_HOST_TO_DEVICE, streams_[block.stream].handle),
                      range.status);
        } else {
            settle(block);
            ASSERT_EQ(aclrtMemcpy(dst, range.count, source.data(), range.count,
                                  ACL_MEMCPY_HOST_TO_DEVICE),
                      range.status);
        }
        if (range.status == 0)
            std::copy(source.begin(), source.end(), block.bytes.begin() + range.offset);
    }

    void read(const ModelBlock& block) {
        settle(block);
        const Range range = draw_range(block);
        Bytes wanted(range.count, 0x77), result = wanted;
        ASSERT_EQ(aclrtMemcpy(result.data(), range.count, block.address + range.offset, range.count,
                              ACL_MEMCPY_DEVICE_TO_HOST),
                  range.status);
        if (range.status == 0)
            std::copy_n(block.bytes.begin() + range.offset, range.count, wanted.begin());
        ASSERT_EQ(result, wanted);
    }

    void check_contents(const ModelBlock& block) {
        Bytes result(block.bytes.size());
        ASSERT_EQ(aclrtMemcpy(result.data(), result.size(), block.address, result.size(),
                              ACL_MEMCPY_DEVICE_TO_HOST),
                  ACL_SUCCESS);
        ASSERT_EQ(result, block.bytes);
    }

    void copy_on_device(ModelBlock& from) {
        ModelBlock& to = blocks_[draw(0, blocks_.size() - 1)];
        settle(from);
        settle(to);
        const Range source = draw_range(from);
        const std::size_t offset = draw(0, to.bytes.size() - 1);
        const bool fits = source.status == 0 && offset + source.count <= to.bytes.size();
        const bool same = &from == &to && offset == source.offset;  // nothing to do, whatever fits
        ASSERT_EQ(aclrtMemcpy(to.address + offset, source.count, from.address + source.offset,
                              source.count, ACL_MEMCPY_DEVICE_TO_DEVICE),
                  fits || same ? 0 : 107000);
        if (fits && !same)
            std::memmove(to.bytes.data() + offset, from.bytes.data() + source.offset, source.count);
    }

    void fill(ModelBlock& block) {
        settle(block);
        const Range range = draw_range(block);
        const auto value = static_cast<std::uint8_t>(random_());
        ASSERT_EQ(aclrtMemset(block.address + range.offset, range.count, value, range.count),
                  range.status);
        if (range.status == 0) std::fill_n(block.bytes.begin() + range.offset, range.count, value);
    }

    /// Adds a number to a range, which depends on everything that came before in the stream.
    void run_kernel(ModelBlock& block) {
        Range range = draw_range(block);
        if (range.status != 0) range.count = block.bytes.size() - range.offset;
        const auto addend = static_cast<std::uint8_t>(random_());
        const auto add = [addend, count = range.count](std::uint8_t* bytes) {
            for (std::size_t i = 0; i < count; ++i) bytes[i] += addend;
        };
        auto* target = reinterpret_cast<std::uint8_t*>(block.address + range.offset);
        launch([add, target](void*) { return add(target), 0; }, streams_[block.stream].handle, 0);
        add(block.bytes.data() + range.offset);
    }

    void fail_on(ModelStream& stream) {
        const int status = static_cast<int>(draw(1, 1000));
        launch([status](void*) { return status; }, stream.handle, 0);
        if (stream.first_error == 0) stream.first_error = status;
    }

    void launch(std::function<int(void*)> run, aclrtStream stream, aclnnStatus wanted) {
        std::uint64_t size = 1;
        aclOpExecutor* executor = nullptr;
        ASSERT_EQ(make_executor({"aclnnTest", 0, std::move(run)}, &size, &executor), 0);
        ASSERT_EQ(size, 0u);
        ASSERT_EQ(launch_executor("aclnnTest", nullptr, 0, executor, stream), wanted);
        ASSERT_EQ(launch_executor("aclnnTest", nullptr, 0, executor, stream), 161002);
    }

    void misuse() {
        ModelStream& stream = streams_[draw(0, kNumStreams - 1)];
        const aclrtStream dead = stream.handle;
        switch (draw(0, 2)) {
            case 0:  // destroying waits and drops the error
                ASSERT_EQ(aclrtDestroyStream(dead), ACL_SUCCESS);
                make(stream);
                ASSERT_NE(stream.handle, dead);
                ASSERT_EQ(aclrtDestroyStream(dead), 107017);
                ASSERT_EQ(aclrtSynchronizeStream(dead), 107017);
                return launch([](void*) { return 1; }, dead, 361001);
            case 1:
                ASSERT_EQ(aclrtDestroyStream(&stream.handle), 107017);
                ASSERT_EQ(aclrtDestroyContext(&stream.handle), 107002);
                return;
            default:
                ASSERT_EQ(aclrtFree(this), 107000);
                return with_block([](const ModelBlock& block) {
                    ASSERT_EQ(aclrtFree(block.address + 1), 107000);
                });
        }
    }

    std::mt19937 random_;
    ModelStream streams_[kNumStreams];
    std::vector<ModelBlock> blocks_;
    std::deque<Bytes> sources_;  // of asynchronous copies; a deque keeps them in place
};

struct Mode {
    const char* name;
    const char* synchronous;
    const char* guarded;
};
void PrintTo(const Mode& mode, std::ostream* to) { *to << mode.name; }

class RandomProgram : public DeviceTest, public testing::WithParamInterface<Mode> {};

INSTANTIATE_TEST_SUITE_P(Modes, RandomProgram,
                         testing::Values(Mode{"Asynchronous", "0", "0"},
                                         Mode{"Synchronous", "1", "0"}, Mode{"Guarded", "0", "1"},
                                         Mode{"GuardedSynchronous", "1", "1"}),
                         [](const auto& instance) { return instance.param.name; });

TEST_P(RandomProgram, BehavesLikeTheModel) {
    const ScopedVariable synchronous("ATTNCHECK_ACL_SYNC", GetParam().synchronous);
    const ScopedVariable guarded("ATTNCHECK_ACL_DEBUG", GetParam().guarded);
    for (unsigned seed = 1; seed <= 20; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        Program program(seed);
        for (int i = 0; i < 300; ++i) {
            program.step();
            if (HasFatalFailure()) FAIL() << "step " << i;
        }
        program.check_everything();
        if (HasFatalFailure()) return;
    }
}

}  // namespace
}  // namespace attncheck::aclnn
