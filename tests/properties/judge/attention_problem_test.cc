// The words for a place of an output.
#include "properties/judge/attention_problem.h"

#include <gtest/gtest.h>

namespace attncheck::properties {
namespace {

// A statistic that is there once has no lane; eight copies of it have.
TEST(AttentionProblem, NamesALaneWhereThereAreSeveral) {
    for (const auto& [width, expected] :
         {std::pair{1, "[sequence 0, query 1, head 2]"}, std::pair{8, "[sequence 0, query 1, head 2, lane 0]"}}) {
        AttentionProblem problem;
        problem.query_lengths = problem.kv_lengths = {2};
        problem.shape.query_rows = problem.shape.kv_rows = 2;
        AttentionOutput lse;
        lse.name = "lse";
        lse.heads = 3;
        lse.width = width;
        lse.column = "lane";
        problem.forward_outputs = {lse};
        EXPECT_EQ(problem.place("lse", static_cast<std::size_t>((1 * 3 + 2) * width)), expected);
    }
}

}  // namespace
}  // namespace attncheck::properties
