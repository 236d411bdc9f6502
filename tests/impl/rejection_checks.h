// What the tests of validators have in common: tensors without data, and what a rejection has to say.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attncheck/candidate.h"
#include "impl/arguments/rejection.h"

namespace attncheck::impl {

/// Present, but nothing may be read from it.
inline attncheck_tensor tensor_without_data(std::int32_t dtype, const std::vector<std::int64_t>& shape) {
    static std::uint16_t no_data;
    attncheck_tensor made{};
    made.data = &no_data;
    made.dtype = dtype;
    made.rank = static_cast<std::int32_t>(shape.size());
    for (std::size_t dim = 0; dim < shape.size(); ++dim) made.shape[dim] = shape[dim];
    return made;
}

/// "PARAMETER is VALUE; allowed: ALLOWED", with this status.
inline void expect_rejected(const std::optional<Rejection>& rejection, int status, const std::string& parameter,
                            const std::string& value, const std::string& allowed) {
    ASSERT_TRUE(rejection.has_value()) << parameter << " " << value;
    EXPECT_EQ(rejection->status, status) << rejection->message;
    EXPECT_EQ(rejection->parameter, parameter) << rejection->message;
    EXPECT_EQ(rejection->message.find(parameter + " is "), 0u) << rejection->message;
    const std::size_t split = rejection->message.find("; allowed: ");
    ASSERT_NE(split, std::string::npos) << rejection->message;
    EXPECT_LT(rejection->message.find(value), split) << rejection->message;
    EXPECT_NE(rejection->message.find(allowed, split), std::string::npos) << rejection->message;
}

}  // namespace attncheck::impl
