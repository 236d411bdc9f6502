// How relations between sums are judged and told.
#include "properties/laws/relation_checks.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

namespace attncheck::properties {
namespace {

using testing::HasSubstr;

// A place has one pair of brackets, whether its name brings them or not.
TEST(Identity, BracketsAPlaceOnce) {
    for (const char* place : {"head 3", "[head 3]"}) {
        Identity sums(1);
        sums.left[0] = 1;
        sums.place[0] = place;
        EXPECT_THAT(sums.verdict("dk", "a sum").message, HasSubstr("worst:\n  [head 3]  1 against 0")) << place;
    }
}

const auto kPlace = [](std::size_t k) { return "[" + std::to_string(k) + "]"; };

// What the reference may err by is relative to the sizes that are added, and is added to what roundings may do.
TEST(Identity, AllowsWhatTheSumsMayErrBy) {
    const auto differing_by = [](double difference, double allowed) {
        Identity sums(1);
        sums.left[0] = 8 + difference, sums.right[0] = 8;
        sums.allowed[0] = allowed, sums.size[0] = 1000;
        return sums.verdict("dk", "a sum").failed();
    };
    EXPECT_FALSE(differing_by(0.9e-9, 0));
    EXPECT_TRUE(differing_by(1.1e-9, 0));
    EXPECT_FALSE(differing_by(1.1e-9, 1e-9));
    EXPECT_FALSE(differing_by(100, std::numeric_limits<double>::infinity()));
}

TEST(VerdictWithin, ComparesWhereThereIsABound) {
    const double infinity = std::numeric_limits<double>::infinity(), nan = std::nan("");
    EXPECT_FALSE(verdict_within("out", {1, 5}, {1.5, nan}, {0.5, infinity}, "twice", kPlace).failed());
    const Verdict far = verdict_within("out", {1, 5}, {1, 5.6}, {0.5, 0.5}, "twice", kPlace);
    EXPECT_TRUE(far.failed());
    EXPECT_THAT(far.message, HasSubstr("[1]"));
    EXPECT_TRUE(verdict_within("out", {1}, {nan}, {0.5}, "twice", kPlace).failed());
}

// Powers of two change no bit of a normal number.
TEST(VerdictOnPowers, IsExactWithinTheRangeOfTheType) {
    const auto fails = [](double left, double right) {
        return verdict_on_powers("dq", ref::Dtype::fp16, {left}, {right}, 2, "a scale", kPlace).failed();
    };
    EXPECT_FALSE(fails(1.5, 6));
    EXPECT_TRUE(fails(1.5, 6.00390625));
    EXPECT_TRUE(fails(1.5, -6));
    EXPECT_FALSE(fails(0x1p-20, 0x1p-17));  // subnormal, or near to it
    EXPECT_FALSE(fails(30'000, 65'504));    // near overflow
}

TEST(Join, KeepsTheFirstFailureAndTheLargestError) {
    Verdict all, small, large, first = Verdict::fail("dk is wrong", "first", Tier::bound),
                               second = Verdict::fail("dv is wrong", "second", Tier::bound);
    small.worst_ratio = 0.2, large.worst_ratio = 0.7;
    join(all, large), join(all, small);
    EXPECT_EQ(all.worst_ratio, 0.7);
    join(all, first), join(all, second);
    EXPECT_EQ(all.message, "first");
}

// ---- changes of stored numbers ----

TEST(ChangeExactly, SaysWhatTheTypeCannotHold) {
    std::vector<std::uint32_t> bits = ref::encode_all(ref::Dtype::bf16, std::vector<double>{1, 2, std::nan("")});
    EXPECT_TRUE(scale_exactly(ref::Dtype::bf16, bits, 3));
    EXPECT_EQ(ref::decode(ref::Dtype::bf16, bits[1]), 16);
    EXPECT_TRUE(std::isnan(ref::decode(ref::Dtype::bf16, bits[2])));
    EXPECT_FALSE(scale_exactly(ref::Dtype::bf16, bits, 127));
    std::vector<std::uint32_t> one = ref::encode_all(ref::Dtype::bf16, std::vector<double>{1});
    EXPECT_FALSE(change_exactly(ref::Dtype::bf16, one, [](double v, std::size_t) { return v + 0x1p-9; }));
}

TEST(Quantise, LeavesEighthsOfAtMostFour) {
    std::vector<std::uint32_t> bits = ref::encode_all(ref::Dtype::fp16, std::vector<double>{0.3, -9, 2.06});
    quantise(ref::Dtype::fp16, bits);
    EXPECT_EQ(ref::decode_all(ref::Dtype::fp16, bits), (std::vector<double>{0.25, -4, 2}));
    drop_tiny(ref::Dtype::fp16, bits);
    EXPECT_EQ(ref::decode_all(ref::Dtype::fp16, bits), (std::vector<double>{0.25, -4, 2}));
    std::vector<std::uint32_t> tiny = ref::encode_all(ref::Dtype::fp16, std::vector<double>{0x1p-8, 0x1p-7});
    drop_tiny(ref::Dtype::fp16, tiny);
    EXPECT_EQ(ref::decode_all(ref::Dtype::fp16, tiny), (std::vector<double>{0, 0x1p-7}));
}

TEST(GatherHeads, TakesWholeHeadsOfEveryRow) {
    const std::vector<int> rows{1, 2, 3, 4, 5, 6, 7, 8};  // 2 rows, 2 heads, 2 channels
    EXPECT_EQ(gather_heads(rows, 2, {1, 0}, 2), (std::vector<int>{3, 4, 1, 2, 7, 8, 5, 6}));
    EXPECT_EQ(gather_heads(rows, 2, {1}, 2), (std::vector<int>{3, 4, 7, 8}));
    EXPECT_EQ(slice(rows, 1, 2, 2), (std::vector<int>{3, 4, 5, 6}));
}

TEST(Permutation, IsNeverTheIdentity) {
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
        Random random(seed);
        const auto order = permutation(2, random);
        EXPECT_EQ(order, (std::vector<std::int64_t>{1, 0}));
    }
}

}  // namespace
}  // namespace attncheck::properties
