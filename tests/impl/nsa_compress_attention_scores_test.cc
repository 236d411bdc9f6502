#include "impl/operators/nsa_compress_attention/scores.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "nsa_compress_attention_problem.h"

namespace attncheck::impl {
namespace {

using List = std::vector<std::int32_t>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> scores_of(const std::vector<float>& probs, const SelectionGeometry& geometry) {
    std::vector<float> scores(static_cast<std::size_t>(geometry.num_selected(std::ssize(probs))));
    block_scores(probs.data(), std::ssize(probs), geometry, scores.data());
    return scores;
}

List top_of(const std::vector<float>& scores, std::int64_t count) {
    List list(static_cast<std::size_t>(count));
    top_blocks(scores.data(), std::ssize(scores), count, list.data());
    return list;
}

using Floats = std::vector<float>;

// nsa.md 6.4 and 13, vector 6.
TEST(NsaCompressAttentionScoresTest, HandVectors) {
    const Floats eight{1, 2, 3, 4, 5, 6, 7, 8}, seven{1, 2, 3, 4, 5, 6, 7};
    EXPECT_EQ(scores_of(eight, {32, 16, 64}), (Floats{24, 47}));
    EXPECT_EQ(scores_of(eight, {16, 16, 64}), (Floats{14, 21}));
    EXPECT_EQ(scores_of(eight, {31, 16, 64}), (Floats{14, 21}));  // isN is a floor
    EXPECT_EQ(scores_of(seven, {32, 16, 32}), (Floats{8, 16, 24, 7}));
    EXPECT_EQ(scores_of({3}, {16, 16, 16}), (Floats{0}));  // P[0] never scores
    EXPECT_EQ(scores_of({3}, {32, 16, 64}), (Floats{3}));  // isN - 1 times
    EXPECT_EQ(scores_of({3}, {64, 16, 64}), (Floats{9}));
}

TEST(NsaCompressAttentionScoresTest, AgreesWithTheDoubleSum) {
    std::mt19937 random(5);
    for (std::int64_t block = 16; block <= 128; block += 16) {
        for (std::int64_t stride = 16; stride <= std::min<std::int64_t>(block, 64); stride += 16) {
            for (std::int64_t selected = block; selected <= 128; selected += 16) {
                if (selected % stride != 0) continue;
                for (std::int64_t num_probs = 1; num_probs < 40; ++num_probs) {
                    Floats probs;  // whole numbers: sums are exact
                    for (std::int64_t i = 0; i < num_probs; ++i)
                        probs.push_back(static_cast<float>(random() % 1000));
                    const std::vector<double> wanted = expected_scores(
                        {probs.begin(), probs.end()}, Geometry{block, stride, selected});
                    const Floats got = scores_of(probs, {block, stride, selected});
                    ASSERT_EQ(std::vector<double>(got.begin(), got.end()), wanted)
                        << block << " " << stride << " " << selected << " " << num_probs;
                }
            }
        }
    }
}

TEST(NsaCompressAttentionScoresTest, LargestFirstAndTiesInOrder) {
    EXPECT_EQ(top_of({1, 3, 2, 3, 0}, 3), (List{1, 3, 2}));
    EXPECT_EQ(top_of({0, 0, 0, 0}, 4), (List{0, 1, 2, 3}));
    EXPECT_EQ(top_of({0, 0, 1, 0}, 3), (List{2, 0, 1}));
    EXPECT_EQ(top_of({1, kForcedScore, 5, kForcedScore}, 1), (List{1}));
    EXPECT_EQ(top_of({1, kForcedScore, 5, kForcedScore}, 4), (List{1, 3, 2, 0}));
    EXPECT_EQ(top_of({kNan, 1, kNan, 0}, 4), (List{1, 3, 0, 2}));
    EXPECT_EQ(top_of({kNan, kNan, kNan}, 2), (List{0, 1}));
    EXPECT_EQ(top_of({7}, 1), (List{0}));
    std::mt19937 random(9);
    for (int turn = 0; turn < 500; ++turn) {
        Floats scores(1 + random() % 60);
        for (float& score : scores) score = static_cast<float>(random() % 9);
        List wanted(scores.size());
        for (std::size_t j = 0; j < wanted.size(); ++j) wanted[j] = static_cast<std::int32_t>(j);
        std::sort(wanted.begin(), wanted.end(), [&](std::int32_t a, std::int32_t b) {
            const float first = scores[static_cast<std::size_t>(a)],
                        second = scores[static_cast<std::size_t>(b)];
            return first > second || (first == second && a < b);
        });
        const std::size_t count = 1 + random() % std::min<std::size_t>(scores.size(), 32);
        wanted.resize(count);
        ASSERT_EQ(top_of(scores, static_cast<std::int64_t>(count)), wanted);
    }
}

}  // namespace
}  // namespace attncheck::impl
