// Tests that every operator of the suite must pass: a new one is tested as soon as it is listed.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "tests/properties/case/case_line.h"

namespace attncheck::properties {

inline void PrintTo(const Operator* op, std::ostream* to) { *to << op->name(); }

class OperatorTest : public testing::TestWithParam<const Operator*> {
protected:
    const Operator& op() const { return *GetParam(); }
};

/// For INSTANTIATE_TEST_SUITE_P: the instances and their names.
inline std::vector<const Operator*> every_operator() {
    std::vector<const Operator*> all;
    for (const auto& op : operators()) all.push_back(op.get());
    return all;
}
inline std::string named_after_it(const testing::TestParamInfo<const Operator*>& instance) {
    return instance.param->name();
}

}  // namespace attncheck::properties
