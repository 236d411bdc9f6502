// Which rows a sample holds, and that the chance to miss a defect is what is printed.
#include "properties/judge/sampling.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "properties/search/large.h"
#include "properties/operators/catalogue.h"

namespace attncheck::properties {
namespace {

using testing::Contains;
using testing::HasSubstr;
using Int = std::int64_t;

/// Share of all choices of `drawn` of `population` rows that hold none of the first `defective`.
double counted_misses(Int population, Int defective, Int drawn) {
    Int all = 0, missed = 0;
    for (unsigned set = 0; set < 1u << population; ++set) {
        if (std::popcount(set) != drawn) continue;
        ++all;
        missed += (set & ((1u << defective) - 1)) == 0;
    }
    return static_cast<double>(missed) / static_cast<double>(all);
}

TEST(MissProbability, IsTheShareOfAllChoices) {
    for (const Int population : {1, 5, 11})
        for (Int defective = 0; defective <= population; ++defective)
            for (Int drawn = 0; drawn <= population; ++drawn)
                EXPECT_NEAR(miss_probability(population, defective, drawn),
                            counted_misses(population, defective, drawn), 1e-12)
                    << population << " " << defective << " " << drawn;
}

TEST(MissProbability, OfManyRowsIsThatOfDrawsWithReplacement) {
    EXPECT_NEAR(miss_probability(524'288, 5'243, 512), std::pow(0.99, 512), 2e-5);
    EXPECT_NEAR(miss_probability(524'288, 64, 512), std::pow(1 - 512.0 / 524'288, 64), 1e-4);
}

/// The random part of the sample misses 20 of 1000 rows as often as the formula says: 400 samples
/// of 60, 28.9 % of them, standard deviation 2.3 %.
TEST(MissProbability, IsHowOftenSamplesMiss) {
    int missed = 0;
    constexpr int kSamples = 400;
    for (int seed = 0; seed < kSamples; ++seed) {
        const RowSample sample = sample_rows(std::vector<Int>(1000, 0), 1000, 1, 60, seed);
        missed += std::none_of(sample.numbers.begin(), sample.numbers.end(),
                               [](Int row) { return row >= 400 && row < 420; });
    }
    EXPECT_NEAR(static_cast<double>(missed) / kSamples, miss_probability(1000, 20, 60), 0.09);
}

bool holds_position(const RowSample& sample, Int row, Int heads) {
    return std::any_of(sample.numbers.begin(), sample.numbers.end(),
                       [&](Int number) { return number / heads == row; });
}

TEST(RowSample, HoldsTheBoundariesOfEverySequence) {
    const std::vector<Int> lengths{70'000, 0, 1, 300};
    const Int heads = 3, beyond = 70'301;
    const RowSample sample = sample_rows(lengths, beyond + 5, heads, 10, 7);
    for (const Int row :
         {Int{0},      Int{1},      Int{15},     Int{16},     Int{63},     Int{64},     Int{127},
          Int{128},    Int{32'767}, Int{32'768}, Int{65'535}, Int{65'536}, Int{69'983}, Int{69'984},
          Int{69'998}, Int{69'999}, Int{70'000}, Int{70'001}, Int{70'300}, beyond,      beyond + 4})
        EXPECT_TRUE(holds_position(sample, row, heads)) << row;
    for (Int head = 0; head < heads; ++head) {
        EXPECT_THAT(sample.numbers, Contains(head));
        EXPECT_THAT(sample.numbers, Contains(69'999 * heads + head));
    }
}

TEST(RowSample, IsAscendingDistinctAndInRange) {
    for (const Int count : {0, 1, 100, 5000}) {
        const RowSample sample = sample_rows({100, 700}, 810, 4, count, 3);
        EXPECT_EQ(sample.population, 810 * 4);
        EXPECT_EQ(sample.drawn, std::min<Int>(count, sample.population));
        EXPECT_TRUE(std::is_sorted(sample.numbers.begin(), sample.numbers.end()));
        EXPECT_EQ(std::adjacent_find(sample.numbers.begin(), sample.numbers.end()),
                  sample.numbers.end());
        EXPECT_GE(sample.numbers.front(), 0);
        EXPECT_LT(sample.numbers.back(), sample.population);
        EXPECT_GE(std::ssize(sample.numbers), std::max(sample.drawn, sample.boundary));
        EXPECT_LE(std::ssize(sample.numbers), sample.drawn + sample.boundary);
    }
}

TEST(RowSample, FollowsTheSeedAlone) {
    const auto numbers = [](std::uint64_t seed) {
        return sample_rows({5000}, 5000, 2, 50, seed).numbers;
    };
    EXPECT_EQ(numbers(1), numbers(1));
    EXPECT_NE(numbers(1), numbers(2));
}

TEST(RowSample, OfNothingIsEmpty) {
    EXPECT_TRUE(sample_rows({0, 0}, 0, 4, 100, 1).numbers.empty());
    EXPECT_TRUE(sample_rows({}, 0, 4, 100, 1).numbers.empty());
}

TEST(RowSample, SaysWhatItMayMiss) {
    const std::string text = describe(sample_rows({65'536}, 65'536, 8, 512, 1), "rows");
    EXPECT_THAT(text, HasSubstr("of 524288 (512 random, "));
    EXPECT_THAT(text, HasSubstr("a defect in 1 % of them is missed with probability 0.0058, in "
                                "one tile of 64 with 0.94"));
    EXPECT_EQ(describe(sample_rows({8}, 8, 2, 512, 1), "keys"), "all 16 keys compared");
}

TEST(SmallerVersions, CutLengthsAndKeepWhatIsLeftOfATile) {
    const Operator& op = *find_operator("flash_attention_score");
    const Spec spec = parse(
        "flash_attention_score{dtype=bf16 layout=TND q=[5000,3] kv=[5000,3] kv_heads=1 group=1 "
        "dim=16 value_dim=16 scale=rsqrt data=normal seed=1}",
        schemas());
    const auto versions = smaller_versions(spec);
    ASSERT_FALSE(versions.empty());
    EXPECT_EQ(versions.front().lists[0], (std::vector<Int>{32, 3}));
    for (const Spec& small : versions) EXPECT_FALSE(op.illegal(small)) << print(small);
    EXPECT_TRUE(std::any_of(versions.begin(), versions.end(), [](const Spec& small) {
        return small.lists[0][0] == 256 + 5000 % 256;
    }));
}

/// Every operator with a gradient of full size has legal cases, the same for the same seed.
TEST(LargeCases, AreLegalAndFollowTheSeed) {
    int with_cases = 0;
    for (const auto& op : operators())
        for (const Int length : {256, 2048, 16'384, 65'536}) {
            const auto cases = op->large_cases(length, 3);
            EXPECT_EQ(cases.empty(), op->property("sampled") == nullptr) << op->name();
            EXPECT_EQ(cases, op->large_cases(length, 3));
            with_cases += !cases.empty();
            for (const Spec& spec : cases) {
                EXPECT_EQ(op->illegal(spec), std::nullopt) << print(spec);
                EXPECT_EQ(parse(print(spec), schemas()), spec);
                const Property& sampled = *op->property("sampled");
                EXPECT_TRUE(sampled.large && (!sampled.domain || sampled.domain(spec)));
            }
        }
    EXPECT_GE(with_cases, 8);
}

}  // namespace
}  // namespace attncheck::properties
