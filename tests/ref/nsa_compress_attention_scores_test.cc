// Importance scores: the worked vectors, the double sum written down once more, and emulated fp32
// kernels that must stay within the bound.
#include "ref/operators/nsa_compress_attention_scores.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/ref/nsa_compress_attention_kernel.h"
#include "tests/ref/print_dtype.h"

namespace attncheck::ref {
namespace {

Values scaled_scores(const Values& weights, std::int64_t keys_per_select,
                     std::int64_t strides_per_key) {
    const ScoreProblem p = problem_of_weights(weights, keys_per_select, strides_per_key, 1);
    Values scores = p.scores(0, 0).score;
    for (double& s : scores) s *= std::accumulate(weights.begin(), weights.end(), 0.0);
    return scores;
}

void expect_near(const Values& got, const Values& wanted) {
    ASSERT_EQ(got.size(), wanted.size());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-12) << i;
}

// The specification's vectors: later by one compressed key than the geometric overlap, which would
// be (16, 48) and (10, 26).
TEST(ImportanceScores, MatchTheWorkedVectors) {
    const Values eight{1, 2, 3, 4, 5, 6, 7, 8};
    expect_near(scaled_scores(eight, 4, 2), {24, 47});
    expect_near(scaled_scores(eight, 4, 1), {14, 21});
    expect_near(scaled_scores({1, 2, 3, 4, 5, 6, 7}, 2, 2), {8, 16, 24, 7});
}

// The row sum of rounded terms is off by a roundoff of their type, for all scores of a head alike.
TEST(ImportanceScores, RoundedRowSumsMoveThem) {
    const ScoreProblem p = problem_of_weights({1, 2, 3, 4, 5, 6, 7, 8}, 4, 2, 1);
    const auto of = [&](const char* words) {
        ImportanceScores scores(p.shape, p.inputs(), p.masks(), {Dtype::bf16, parse_rounding_class(words)});
        return scores(0, 0);
    };
    const BlockScores usual = of("default"), rounded = of("sum=rounded");
    for (std::size_t j = 0; j < usual.score.size(); ++j)
        EXPECT_GE(rounded.bound[j], usual.bound[j] + 0.99 * 0x1p-9 * usual.score[j]);
    EXPECT_GE(rounded.difference_bound(0, 1),
              usual.difference_bound(0, 1) + 0.99 * 0x1p-9 * std::fabs(usual.score[0] - usual.score[1]));
}

// With one stride per compressed key P[0] lies in no window.
TEST(ImportanceScores, NeverCountTheFirstKeyWithoutOverlap) {
    for (const std::int64_t keys_per_select : {1, 2, 3}) {
        const Values low = scaled_scores({1, 2, 3, 4, 5}, keys_per_select, 1);
        const Values high = scaled_scores({1000, 2, 3, 4, 5}, keys_per_select, 1);
        expect_near(high, low);
        EXPECT_GT(scaled_scores({1000, 2, 3, 4, 5}, 4, 2)[0], 999);
    }
}

TEST(ImportanceScores, WeighPlacesAsTheDoubleSumDoes) {
    for (std::int64_t m_count = 1; m_count <= 8; ++m_count)
        for (std::int64_t n_count = 1; n_count <= m_count; ++n_count) {
            std::map<std::int64_t, std::int64_t> times;
            for (std::int64_t m = 0; m < m_count; ++m)
                for (std::int64_t n = 0; n < n_count; ++n) ++times[m + n];
            EXPECT_EQ(std::ssize(times), m_count + n_count - 1);
            for (const auto& [offset, weight] : times)
                EXPECT_EQ(window_weight(offset, m_count, n_count), weight);
        }
}

/// Group scores by the definition: unshifted softmax in long double, then the double sum.
std::vector<long double> direct_scores(const ScoreProblem& p, std::int64_t t, std::int64_t n) {
    std::vector<long double> scores;
    for (std::int64_t g = 0; g < p.shape.group(); ++g) {
        const Values logits = p.logits(t, n * p.shape.group() + g);
        std::vector<long double> prob;
        long double sum = 0;
        for (const double s : logits) {
            prob.push_back(std::exp(static_cast<long double>(s)));
            sum += prob.back();
        }
        const std::int64_t big = p.shape.select_block / p.shape.compress_stride;
        const std::int64_t small = p.shape.compress_block / p.shape.compress_stride;
        const std::int64_t blocks = (std::ssize(logits) + big - 1) / big;
        scores.resize(static_cast<std::size_t>(blocks));
        for (std::int64_t j = 1; j <= blocks; ++j)  // j from 1, as in the paper
            for (std::int64_t m = 0; m < big; ++m)
                for (std::int64_t k = 0; k < small; ++k) {
                    const std::int64_t at = big * j - m - k;
                    if (at >= 0 && at < std::ssize(logits) && sum > 0)
                        scores[static_cast<std::size_t>(j - 1)] +=
                            prob[static_cast<std::size_t>(at)] / sum;
                }
    }
    return scores;
}

// Ragged batches, groups, masks, short last blocks.
TEST(ImportanceScores, AgreeWithTheDefinition) {
    Random random(5);
    int rows = 0, short_last = 0, empty = 0;
    for (int i = 0; i < 400; ++i) {
        const auto kind = i % 2 ? ScoreKind::normal : ScoreKind::integers;
        ScoreProblem p = draw_score_problem(random, Dtype::fp16, kind, i % 10 ? 7 : 60);
        if (i % 7 == 0)
            std::fill(p.atten.begin(),
                      p.atten.begin() +
                          std::min<std::ptrdiff_t>(std::ssize(p.atten), p.shape.longest_cmp()),
                      std::uint8_t{1});
        ImportanceScores scores(p.shape, p.inputs(), p.masks(), p.type);
        for (std::int64_t t = 0; t < p.shape.total_queries; ++t)
            for (std::int64_t n = 0; n < p.shape.kv_heads; ++n, ++rows) {
                const BlockScores got = scores(t, n);
                const auto wanted = direct_scores(p, t, n);
                ASSERT_EQ(got.score.size(), wanted.size());
                short_last += scores.query(t).kv_length % p.shape.keys_per_select() != 0;
                double largest = 0;
                for (std::size_t j = 0; j < wanted.size(); ++j) {
                    EXPECT_NEAR(got.score[j], wanted[j], 1e-13);
                    largest = std::max(largest, got.score[j]);
                    EXPECT_EQ(got.bound[j] == 0, wanted[j] == 0);
                }
                empty += largest == 0;
            }
    }
    EXPECT_GT(rows, 1000);
    EXPECT_GT(short_last, 300);
    EXPECT_GT(empty, 50);
}

struct Worst {
    double score = 0, difference = 0;
    std::string score_case, difference_case;
};

/// Largest error of scores and of their differences over the bound.
void compare(const ScoreProblem& p, const ScoreMethod& method, const std::string& name,
             Worst& worst) {
    ImportanceScores scores(p.shape, p.inputs(), p.masks(), p.type);
    const ScoreKernel kernel(p, method);
    const auto ratio = [](double error, double bound) {
        return error == 0 ? 0 : bound > 0 ? error / bound : HUGE_VAL;
    };
    for (std::int64_t t = 0; t < p.shape.total_queries; ++t)
        for (std::int64_t n = 0; n < p.shape.kv_heads; ++n) {
            const BlockScores exact = scores(t, n);
            ASSERT_TRUE(exact.ordered) << name;
            const std::vector<float> got = kernel.run(t, n);
            ASSERT_EQ(got.size(), exact.score.size());
            for (std::size_t j = 0; j < got.size(); ++j) {
                const double one = ratio(std::fabs(got[j] - exact.score[j]), exact.bound[j]);
                if (one > worst.score) worst.score = one, worst.score_case = name;
                const std::size_t i = (j * 7 + 1) % got.size();
                const double difference =
                    (static_cast<double>(got[j]) - got[i]) - (exact.score[j] - exact.score[i]);
                const double two = ratio(std::fabs(difference),
                                         exact.difference_bound(static_cast<std::int64_t>(j),
                                                                static_cast<std::int64_t>(i)));
                if (two > worst.difference && std::fabs(difference) > 1e-15)
                    worst.difference = two, worst.difference_case = name;
            }
        }
}

class BoundOfScores : public testing::TestWithParam<Dtype> {};
INSTANTIATE_TEST_SUITE_P(Storage, BoundOfScores, testing::Values(Dtype::fp16, Dtype::bf16),
                         [](const auto& each) { return std::string(dtype_name(each.param)); });

TEST_P(BoundOfScores, HoldsForEmulatedKernels) {
    Random random(11);
    for (int kind = 0; kind < static_cast<int>(ScoreKind::count); ++kind) {
        Worst worst;
        for (int i = 0; i < 250; ++i) {
            const ScoreProblem p = draw_score_problem(
                random, GetParam(), static_cast<ScoreKind>(kind), i % 10 == 0 ? 300 : 40);
            const ScoreMethod method = draw_score_method(random);
            compare(
                p, method,
                std::string(kScoreKindNames[kind]) + ' ' + std::to_string(i) + ' ' + method.text(),
                worst);
        }
        EXPECT_LE(worst.score, 1) << worst.score_case;
        EXPECT_LE(worst.difference, 1) << worst.difference_case;
        EXPECT_GT(worst.difference, 0.03);  // not so wide that it says nothing
        RecordProperty(std::string("worst_score_") + kScoreKindNames[kind],
                       std::to_string(worst.score));
        RecordProperty(std::string("worst_difference_") + kScoreKindNames[kind],
                       std::to_string(worst.difference));
        std::printf("%s %-12s worst score %.3f, difference %.3f\n",
                    std::string(dtype_name(GetParam())).c_str(), kScoreKindNames[kind], worst.score,
                    worst.difference);
    }
}

// The longest row there may be: the error of the sum over 14000 keys does not blur the order of one
// head.
TEST(BoundOfScoresRange, HoldsForTheLongestRow) {
    Random random(13);
    std::normal_distribution<double> normal;
    ScoreProblem p = problem_of_weights(Values(14000, 1), 4, 2, 32);
    p.shape.head_dim = 8, p.type = Dtype::bf16;
    p.query.resize(8), p.key.resize(8 * 14000);
    for (Values* t : {&p.query, &p.key})
        for (double& v : *t) v = decode(p.type, encode(p.type, normal(random)));
    Worst worst;
    ScoreMethod method;
    for (const std::size_t tile : {0, 64, 512}) {
        method.tile = tile;
        compare(p, method, "tile " + std::to_string(tile), worst);
    }
    EXPECT_LE(worst.score, 1) << worst.score_case;
    EXPECT_LE(worst.difference, 1) << worst.difference_case;
    const BlockScores scores = p.scores(0, 0);
    EXPECT_EQ(scores.blocks(), 3500);
    double widest = 0;
    for (std::size_t j = 0; j < scores.score.size(); ++j)
        widest = std::max(widest, scores.local[j] / scores.score[j]);
    EXPECT_LT(widest, 1e-3);  // relative; most of it is granted to rescaling in 875 tiles of 16
    EXPECT_LT(scores.common[0], 3e-3);
}

// One term after the other onto a 1: each is lost, and with them 8e-4 of the row sum. That error is
// common to a head but not to a group, whose other head finds all keys alike.
TEST(BoundOfScoresRange, HoldsWhereARowSumLosesItsTerms) {
    Values weights(14000, 0x1p-24 * 0.99);
    weights[0] = 1;
    ScoreProblem p = problem_of_weights(weights, 4, 2, 1);
    p.shape.query_heads = 2, p.query = {1, 0};
    for (double& k : p.key) k = static_cast<float>(k);
    const BlockScores exact = p.scores(0, 0);
    EXPECT_GT(exact.head_score[0], 0.999);
    ScoreMethod method;
    const std::vector<float> got = ScoreKernel(p, method).run(0, 0);
    EXPECT_GT(got[0] - exact.score[0], 7e-4);
    Worst worst;
    compare(p, method, "sequential", worst);
    EXPECT_LE(worst.score, 1);
    EXPECT_LE(worst.difference, 1);
    EXPECT_GT((got[0] - exact.score[0]) / (exact.local[0] + exact.local[3500]), 1.5);
}

// A row of hidden keys scores 0 exactly, in a batch where others do not.
TEST(ImportanceScores, AreZeroWhereNothingIsVisible) {
    ScoreProblem p = problem_of_weights({1, 2, 3, 4}, 2, 2, 2);
    p.shape.query_lengths = {2}, p.shape.total_queries = 2;
    p.query = {1, 1}, p.atten = {1, 1, 1, 1, 0, 0, 0, 1};
    const BlockScores hidden = p.scores(0, 0);
    EXPECT_EQ(hidden.score, (Values{0, 0}));
    EXPECT_EQ(hidden.bound, (Values{0, 0}));
    EXPECT_TRUE(hidden.tied(0, 1));
    const BlockScores partial = p.scores(1, 0);
    EXPECT_NEAR(partial.score[0], (1 + 2 * 2 + 3) / 6.0, 1e-14);
    EXPECT_NEAR(partial.score[1], 3 / 6.0, 1e-14);
    // Key 3 is hidden: a window of hidden keys is exactly 0 beside others that are not.
    p.shape.select_block = 16, p.shape.compress_block = 16;
    EXPECT_EQ(p.scores(1, 0).score[2], 0);
    EXPECT_EQ(p.scores(1, 0).bound[2], 0);
    EXPECT_EQ(p.scores(1, 0).score[3], 0);
}

// NaN behind a mask does not count, NaN and logits that fp32 does not resolve take the order away.
TEST(ImportanceScores, AreNotOrderedBeyondArithmetic) {
    ScoreProblem p = problem_of_weights({1, 2, 3, 4}, 2, 2, 2);
    EXPECT_TRUE(p.scores(0, 0).ordered);
    for (const double wrong : {std::nan(""), HUGE_VAL, 1e9, 3e38}) {
        p.key[1] = wrong, p.atten.clear();
        EXPECT_FALSE(p.scores(0, 0).ordered) << wrong;
        p.atten = {0, 1, 0, 0};
        EXPECT_TRUE(p.scores(0, 0).ordered) << wrong;
    }
    p.key = {0, -HUGE_VAL, 0, 0}, p.atten.clear();
    const BlockScores scores = p.scores(0, 0);
    EXPECT_TRUE(scores.ordered);  // exp(-infinity) is 0
    EXPECT_NEAR(scores.score[0], (1 + 1) / 3.0, 1e-15);
    p.key.assign(4, -HUGE_VAL);
    EXPECT_FALSE(p.scores(0, 0).ordered);
    // Products leave fp32 although the logit is 0.
    p.shape.head_dim = 2, p.query = {0x1p70, 0x1p70};
    p.key = {0, 0, 0x1p60, -0x1p60, 0, 0, 0, 0};
    EXPECT_FALSE(p.scores(0, 0).ordered);
    p.query = {0x1p50, 0x1p50};
    EXPECT_TRUE(p.scores(0, 0).ordered);
}

// From given statistics: half the row sum doubles every P.
TEST(ImportanceScores, TakeGivenStatistics) {
    const ScoreProblem p = problem_of_weights({1, 2, 3, 4}, 2, 2, 2);
    const Values row_max{std::log(4.0)}, row_sum{10.0 / 4 / 2};
    ImportanceScores given(p.shape, p.inputs(), {}, p.type, Grant::rounding, {row_max, row_sum});
    const Values own = p.scores(0, 0).score, doubled = given(0, 0).score;
    for (std::size_t j = 0; j < own.size(); ++j) EXPECT_NEAR(doubled[j], 2 * own[j], 1e-14);
    const Values too_many{1, 2};
    EXPECT_THROW(
        ImportanceScores(p.shape, p.inputs(), {}, p.type, Grant::rounding, {too_many, row_sum}),
        std::invalid_argument);
}

}  // namespace
}  // namespace attncheck::ref
