// Cases of many sequences are drawn for every operator that takes them.
#include "properties/case/many_sequences.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "properties/operators/catalogue.h"

namespace attncheck::properties {
namespace {

TEST(ManySequences, AreDrawnWhereverALibraryTakesThem) {
    std::size_t most_of_all = 0;
    for (const auto& op : operators()) {
        const Schema& schema = op->schema();
        if (schema.lists.empty() || schema.lists[0].max_size < 33) continue;
        constexpr int kDraws = 4000;
        int many = 0;
        std::size_t most = 0;
        for (int k = 0; k < kDraws; ++k) {
            Random random(static_cast<std::uint64_t>(k) * 7919 + 1);
            const Spec spec = op->sample(random, k % 100, Profile::ascend910b);
            const std::size_t count = spec.lists[0].size();
            many += count > 6;
            if (count <= 33) most = std::max(most, count);
            most_of_all = std::max(most_of_all, count);
            if (count > 6) {
                EXPECT_FALSE(illegal(spec)) << print(spec);
            }
        }
        EXPECT_GE(many, kDraws / 200) << schema.op;
        EXPECT_GE(most, 28u) << schema.op;
    }
    EXPECT_GE(most_of_all, 1025u);
}

}  // namespace
}  // namespace attncheck::properties
