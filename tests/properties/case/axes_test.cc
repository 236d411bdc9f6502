// The notation of axes against formulas written out by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <stdexcept>

#include "properties/case/description.h"

namespace attncheck::properties {
namespace {

using Int = std::int64_t;
using testing::ElementsAre;

Description plain() {
    Description d;
    d.op = "test";
    d.numbers = {{.key = "dtype", .max = 1, .names = {"fp16", "bf16"}},
                 {.key = "heads", .max = 100, .word = "head"},
                 {.key = "dim", .max = 100, .word = "channel"},
                 {.key = "more", .max = 100}};
    d.lists = {{"q", 0, 100, 9, "query", "more"}, {"kv", 0, 100, 9, "key", ""}};
    d.symbols = {{.name = "lanes", .word = "lane", .value = [](const Extents&) { return Int{8}; }}};
    return d;
}

class AxesTest : public testing::Test {
protected:
    Axes axes(const char* text) const {
        Axes out(text);
        out.resolve(description_);
        return out;
    }
    Extents extents(std::vector<Int> q, std::vector<Int> kv, Int heads, Int dim, Int more) const {
        return {description_, {0, heads, dim, more}, {std::move(q), std::move(kv)}};
    }

    const Description description_ = resolved(plain());
};

// The five layouts of [sequence, row, head, channel], element by element.
TEST_F(AxesTest, PaddedAndMergedOrdersAreTheDocumentedOnes) {
    const Extents e = extents({4, 4}, {5, 5}, 3, 2, 0);
    const auto check = [&](const char* text, auto number) {
        const Axes a = axes(text);
        for (Int b = 0; b < 2; ++b)
            for (Int s = 0; s < 4; ++s)
                for (Int n = 0; n < 3; ++n)
                    for (Int c = 0; c < 2; ++c) {
                        const Place place = a.place(e, number(b, s, n, c));
                        EXPECT_EQ(place.sequence, b) << text;
                        EXPECT_EQ(place.of("q"), s) << text;
                        EXPECT_EQ(place.of("heads"), n) << text;
                        EXPECT_EQ(place.of("dim"), c) << text;
                    }
    };
    const auto by_batch = [](Int b, Int s, Int n, Int c) { return ((b * 4 + s) * 3 + n) * 2 + c; };
    check("B q heads*dim", by_batch);
    check("B q heads dim", by_batch);
    check("q+ heads dim", by_batch);
    check("q B heads*dim", [](Int b, Int s, Int n, Int c) { return ((s * 2 + b) * 3 + n) * 2 + c; });
    check("B heads q dim", [](Int b, Int s, Int n, Int c) { return ((b * 3 + n) * 4 + s) * 2 + c; });
    EXPECT_THAT(axes("q B heads*dim").shape(e), ElementsAre(4, 2, 6));
    EXPECT_THAT(axes("B heads q dim").shape(e), ElementsAre(2, 3, 4, 2));
}

// Statistics, flat biases and drop bits: the sequences one behind the other, a block in each.
TEST_F(AxesTest, SequencesOneBehindTheOtherHaveABlockEach) {
    const Extents e = extents({2, 0, 3}, {4, 7, 1}, 3, 1, 0);
    EXPECT_THAT(axes("+(heads kv)").shape(e), ElementsAre(3 * 12));
    EXPECT_THAT(axes("+(heads q kv)").shape(e), ElementsAre(3 * (8 + 0 + 3)));
    const Place bit = axes("+(heads q kv)").place(e, 24 + (2 * 3 + 1) * 1);
    EXPECT_EQ(bit.sequence, 2);
    EXPECT_EQ(bit.of("heads"), 2);
    EXPECT_EQ(bit.of("q"), 1);
    const Place lane = axes("+(heads q) lanes").place(e, (3 * 2 + 1 * 3 + 2) * 8 + 5);
    EXPECT_EQ(lane.sequence, 2);
    EXPECT_EQ(lane.of("heads"), 1);
    EXPECT_EQ(lane.of("q"), 2);
    EXPECT_EQ(lane.of("lanes"), 5);
}

// They have no length, so that their heads lie within a row in either order.
TEST_F(AxesTest, RowsBeyondTheLastSequenceLieRowByRow) {
    const Extents e = extents({2, 1}, {1, 1}, 3, 2, 4);
    EXPECT_THAT(axes("q+ heads dim").shape(e), ElementsAre(7, 3, 2));
    EXPECT_THAT(axes("q kv").shape(e), ElementsAre(2, 1));
    for (const char* order : {"+(heads q) lanes", "+(q heads) lanes", "q+ heads lanes"}) {
        const Place place = axes(order).place(e, (5 * 3 + 2) * 8 + 1);
        EXPECT_TRUE(place.beyond) << order;
        EXPECT_EQ(place.of("q"), 5) << order;
        EXPECT_EQ(place.of("heads"), 2) << order;
    }
}

// A place and the number of its element say the same.
TEST_F(AxesTest, NumbersFollowFromPlaces) {
    const Extents ragged = extents({2, 0, 3}, {4, 7, 1}, 3, 2, 4),
                  padded = extents({4, 4}, {5, 5}, 3, 2, 0);
    const auto check = [&](const Extents& e, const char* text, Int elements) {
        for (Int k = 0; k < elements; ++k)
            EXPECT_EQ(axes(text).number(e, axes(text).place(e, k)), k) << text;
    };
    for (const char* text : {"q+ heads dim", "+(heads q) dim", "+(q heads) dim"})
        check(ragged, text, (5 + 4) * 3 * 2);
    check(ragged, "+(heads q kv)", 3 * (8 + 0 + 3));
    for (const char* text : {"B q heads*dim", "B q heads dim", "q B heads*dim", "B heads q dim"})
        check(padded, text, 2 * 4 * 3 * 2);
}

TEST_F(AxesTest, NamesThatDoNotExistAreRefused) {
    EXPECT_THROW(axes("q+ head"), std::logic_error);
    EXPECT_THROW(axes("heads+"), std::logic_error);
    EXPECT_THROW(axes("+(q heads"), std::logic_error);
}

// Conditions know fields, enumerators and numbers.
TEST_F(AxesTest, ConditionsAreResolvedAndHold) {
    const auto holds = [&](const char* text) {
        When when(text);
        when.resolve(description_);
        return when.holds(Extents(description_, {1, 3, 2, 0}, {{1}, {1}}));
    };
    EXPECT_TRUE(holds(""));
    EXPECT_TRUE(holds("dtype=fp16,bf16 heads=3 dim>=2 heads"));
    EXPECT_FALSE(holds("dtype=fp16"));
    EXPECT_FALSE(holds("dtype!=bf16"));
    EXPECT_FALSE(holds("more"));
    EXPECT_FALSE(holds("dim>=3"));
    for (const char* wrong : {"type=fp16", "dtype=fp64", "dtype=1", "dim=two", "dim=", "dim>2"})
        EXPECT_THROW(holds(wrong), std::logic_error) << wrong;
}

// A claim changes what follows from its extent, and a claimed symbol stays what it is.
TEST_F(AxesTest, ClaimsAreFollowed) {
    Description d = plain();
    d.symbols.push_back({.name = "twice", .value = [](const Extents& e) { return 2 * e["dim"]; }});
    Extents e(d, {0, 3, 2, 0}, {{1, 2}, {1, 2}});
    EXPECT_EQ(e["twice"], 4);
    e.claim("dim", 5);
    EXPECT_EQ(e["twice"], 10);
    e.claim("twice", 7);
    e.claim("dim", 1);
    EXPECT_EQ(e["twice"], 7);
    e.claim("q", 9);
    EXPECT_EQ(e.rows("q"), 18);
}

}  // namespace
}  // namespace attncheck::properties
