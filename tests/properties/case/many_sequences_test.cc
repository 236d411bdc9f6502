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

// Kernels have tables of 32, 64 or 128 lengths. Some sequence behind the first 33 has queries and keys.
TEST(ManySequences, HaveRowsBehindTheTablesOfKernels) {
    for (const auto& op : operators()) {
        const Schema& schema = op->schema();
        if (schema.lists.empty() || schema.lists[0].max_size < 129) continue;
        constexpr int kDraws = 20000;
        int behind_33 = 0, behind_65 = 0, behind_257 = 0, large = 0, unlike = 0;
        for (int k = 0; k < kDraws; ++k) {
            Random random(static_cast<std::uint64_t>(k) * 104729 + 1);
            const Spec spec = op->sample(random, k % 100, Profile::ascend910b);
            const auto has_rows = [&](std::size_t b) {
                return std::all_of(spec.lists.begin(), spec.lists.end(), [&](const auto& list) {
                    return list.size() == 1 || (b < list.size() && list[b] > 0);
                });
            };
            const auto rows_behind = [&](std::size_t first) {
                for (std::size_t b = first; b < spec.lists[0].size(); ++b)
                    if (has_rows(b)) return true;
                return false;
            };
            // A table that wraps is not seen where the sequence behind it is as the first.
            const auto& last = spec.lists.back();
            unlike += last.size() > 64 && has_rows(64) && last[64] > last[0];
            behind_33 += rows_behind(33);
            behind_65 += rows_behind(65);
            behind_257 += rows_behind(257);
            large += schema.lists[0].max_size >= 1025 && rows_behind(1024);
        }
        EXPECT_GE(behind_33, kDraws / 300) << schema.op;
        EXPECT_GE(behind_65, kDraws / 800) << schema.op;
        EXPECT_GE(behind_257, schema.lists[0].max_size >= 258 ? kDraws / 500 : 0) << schema.op;
        EXPECT_GE(unlike, kDraws / 4000) << schema.op;
        EXPECT_GE(large, schema.lists[0].max_size >= 1025 ? 1 : 0) << schema.op;
    }
}

}  // namespace
}  // namespace attncheck::properties
