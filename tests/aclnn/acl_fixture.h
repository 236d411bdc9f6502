// A process that has called aclInit and set device 0, and what tests of the runtime need with it.
#ifndef ATTNCHECK_TESTS_ACLNN_ACL_FIXTURE_H
#define ATTNCHECK_TESTS_ACLNN_ACL_FIXTURE_H

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "acl/acl.h"
#include "aclnn/aclnn_base.h"

namespace attncheck::aclnn {

/// Sets an environment variable (null: unsets) and puts the old value back.
class ScopedVariable {
public:
    ScopedVariable(const char* name, const char* value) : name_(name) {
        if (const char* old = std::getenv(name)) old_ = old;
        value ? setenv(name, value, 1) : unsetenv(name);
    }
    ~ScopedVariable() { old_ ? setenv(name_, old_->c_str(), 1) : unsetenv(name_); }
    ScopedVariable(const ScopedVariable&) = delete;
    ScopedVariable& operator=(const ScopedVariable&) = delete;

private:
    const char* name_;
    std::optional<std::string> old_;
};

/// The text that aclGetRecentErrMsg has, "" for none.
inline std::string recent_message() {
    const char* text = aclGetRecentErrMsg();
    return text ? text : "";
}

using Bytes = std::vector<std::uint8_t>;

class DeviceTest : public testing::Test {
protected:
    void SetUp() override {
        recent_message();
        ASSERT_EQ(aclInit(nullptr), ACL_SUCCESS);
        ASSERT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
    }
    void TearDown() override { EXPECT_EQ(aclFinalize(), ACL_SUCCESS); }

    static char* allocate(std::size_t bytes) {
        void* block = nullptr;
        EXPECT_EQ(aclrtMalloc(&block, bytes, ACL_MEM_MALLOC_HUGE_FIRST), ACL_SUCCESS);
        return static_cast<char*>(block);
    }
    static aclError upload(void* block, const Bytes& bytes) {
        return aclrtMemcpy(block, bytes.size(), bytes.data(), bytes.size(),
                           ACL_MEMCPY_HOST_TO_DEVICE);
    }
    static Bytes download(const void* block, std::size_t count) {
        Bytes bytes(count);
        EXPECT_EQ(aclrtMemcpy(bytes.data(), count, block, count, ACL_MEMCPY_DEVICE_TO_HOST),
                  ACL_SUCCESS);
        return bytes;
    }
    static aclrtStream new_stream() {
        aclrtStream stream = nullptr;
        EXPECT_EQ(aclrtCreateStream(&stream), ACL_SUCCESS);
        return stream;
    }
};

}  // namespace attncheck::aclnn

#endif  // ATTNCHECK_TESTS_ACLNN_ACL_FIXTURE_H
