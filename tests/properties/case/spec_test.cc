// Case lines as people write them: what parses, what it means, and how simple it counts.
#include "properties/case/spec.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "tests/properties/case/case_line.h"

namespace attncheck::properties {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr const char* kDocumented =
    "nsa_compress_grad{dtype=bf16 seq=[0,128,144] heads=4 dim=128 block=32 stride=16 data=normal "
    "seed=7}";

// The line of the documentation is legal, and says what the documentation says.
TEST(Spec, ExampleOfTheDocumentationParses) {
    const Spec spec = spec_of(kDocumented);
    EXPECT_EQ(spec.schema->op, "nsa_compress_grad");
    EXPECT_EQ(spec.number("dtype"), 1);
    EXPECT_THAT(spec.lists.at(0), ElementsAre(0, 128, 144));
    EXPECT_EQ(spec.number("heads"), 4);
    EXPECT_EQ(spec.number("dim"), 128);
    EXPECT_EQ(spec.number("block"), 32);
    EXPECT_EQ(spec.number("stride"), 16);
    EXPECT_EQ(spec.number("beyond"), 0);
    EXPECT_EQ(spec.number("lengths"), 0);
    EXPECT_EQ(spec.recipe, Recipe::normal);
    EXPECT_EQ(spec.seed, 7u);
    EXPECT_THAT(spec.overrides, IsEmpty());
    EXPECT_EQ(gradient().illegal(spec), std::nullopt);
    EXPECT_EQ(print(spec), kDocumented);
}

// Words may stand in any order, with any blanks between them.
TEST(Spec, OrderAndBlanksDoNotMatter) {
    const Spec spec = spec_of(
        " \t nsa_compress_grad { seed=7\tdata=normal\n stride=16  block=32 dim=128 heads=4 "
        "seq=[ 0, 128 ,\t144 ] dtype=bf16 }\r\n");
    EXPECT_EQ(spec, spec_of(kDocumented));
}

// A thousand sequences of one length are a word, and a few of them stay what people write.
TEST(Spec, EqualEntriesThatFollowEachOtherAreOneWord) {
    const auto line = [](std::string_view list) {
        return fmt::format("nsa_compress{{dtype=fp16 seq={} heads=2 dim=32 block=16 stride=16 data=ints seed=1}}",
                           list);
    };
    const Spec spec = spec_of(line("[3,5*1000,0*2,7]"));
    ASSERT_EQ(spec.lists.at(0).size(), 1004u);
    EXPECT_EQ(spec.lists[0][1], 5);
    EXPECT_EQ(spec.lists[0][1000], 5);
    EXPECT_EQ(spec.lists[0][1001], 0);
    EXPECT_EQ(print(spec), line("[3,5*1000,0,0,7]"));
    EXPECT_EQ(spec_of(print(spec)), spec);
    EXPECT_EQ(print(spec_of(line("[4,4,4,4,4,4,4]"))), line("[4,4,4,4,4,4,4]"));
    EXPECT_EQ(print(spec_of(line("[4,4,4,4,4,4,4,4]"))), line("[4*8]"));
}

// Everything a line can hold is read into its place.
TEST(Spec, EveryKindOfWordIsRead) {
    const Spec spec = spec_of(
        "nsa_compress{dtype=fp16 seq=[20] heads=2 dim=32 block=16 stride=16 beyond=3 data=ints "
        "seed=18446744073709551615 input.layout=broadcast output.layout=gap "
        "set=[input[4,1,31]=nan,weight[15,0]=-inf,input[0,0,0]=-0] "
        "break=[weight.absent,layout=\"tnd\"]}");
    EXPECT_EQ(spec.number("beyond"), 3);
    EXPECT_EQ(spec.seed, std::numeric_limits<std::uint64_t>::max());
    EXPECT_THAT(spec.layouts, ElementsAre(Layout::broadcast, Layout::dense, Layout::gap));
    ASSERT_EQ(spec.overrides.size(), 3u);
    EXPECT_TRUE(std::isnan(spec.overrides.at({0, {4, 1, 31, 0}})));
    EXPECT_EQ(spec.overrides.at({1, {15, 0, 0, 0}}), -std::numeric_limits<double>::infinity());
    EXPECT_TRUE(std::signbit(spec.overrides.at({0, {0, 0, 0, 0}})));
    EXPECT_THAT(spec.edits, ElementsAre(Edit("weight.absent"), Edit("layout=\"tnd\"")));
}

// A Spec differs from one that differs in any single part.
TEST(Spec, EqualityLooksAtEveryPart) {
    const Spec plain = spec_of(kPlainLine);
    const auto changed = [&](auto&& change) {
        Spec other = plain;
        change(other);
        return other;
    };
    EXPECT_EQ(plain, spec_of(kPlainLine));
    EXPECT_FALSE(plain == changed([](Spec& s) { s.numbers[1] = 2; }));
    EXPECT_FALSE(plain == changed([](Spec& s) { s.lists[0] = {17}; }));
    EXPECT_FALSE(plain == changed([](Spec& s) { s.layouts[2] = Layout::gap; }));
    EXPECT_FALSE(plain == changed([](Spec& s) { s.recipe = Recipe::ones; }));
    EXPECT_FALSE(plain == changed([](Spec& s) { s.seed = 1; }));
    EXPECT_FALSE(plain == changed([](Spec& s) { s.overrides[{}] = 0; }));
    EXPECT_FALSE(plain == changed([](Spec& s) { s.edits = {"weight.absent"}; }));
    const Spec zero = changed([](Spec& s) { s.overrides[{}] = 0.0; });
    EXPECT_FALSE(zero == changed([](Spec& s) { s.overrides[{}] = -0.0; }));
    const Spec nan = changed([](Spec& s) { s.overrides[{}] = std::nan(""); });
    EXPECT_EQ(nan, changed([](Spec& s) { s.overrides[{}] = std::nan("1"); }));
}

// The shortest text of a number reads back as the number.
TEST(Spec, ValuesPrintAsShortAsTheyCan) {
    EXPECT_EQ(print_value(0.0), "0");
    EXPECT_EQ(print_value(-0.0), "-0");
    EXPECT_EQ(print_value(1.0), "1");
    EXPECT_EQ(print_value(0.1), "0.1");
    EXPECT_EQ(print_value(std::nan("")), "nan");
    EXPECT_EQ(print_value(std::numeric_limits<double>::infinity()), "inf");
    EXPECT_EQ(print_value(-std::numeric_limits<double>::infinity()), "-inf");
}

// People count 1 as simpler than 3, small numbers as simpler than fractions, NaN as hardest.
TEST(Spec, ValueComplexityOrdersAsPeopleWould) {
    const double simplest_first[] = {0.0, -0.0, 1,   -1,       2,         -2,
                                     3,   0.5,  0.1, HUGE_VAL, -HUGE_VAL, std::nan("")};
    for (std::size_t i = 1; i < std::size(simplest_first); ++i)
        EXPECT_LT(value_complexity(simplest_first[i - 1]), value_complexity(simplest_first[i]))
            << simplest_first[i - 1] << " " << simplest_first[i];
}

// Each part alone makes a Spec more complex.
TEST(Spec, ComplexityGrowsWithEveryPart) {
    const Spec plain = spec_of(kPlainLine);
    const auto grows = [&](auto&& change) {
        Spec other = plain;
        change(other);
        return complexity(plain) < complexity(other);
    };
    EXPECT_TRUE(grows([](Spec& s) { s.numbers[0] = 1; }));
    EXPECT_TRUE(grows([](Spec& s) { s.set("heads", 2); }));
    EXPECT_TRUE(grows([](Spec& s) { s.lists[0] = {17}; }));
    EXPECT_TRUE(grows([](Spec& s) { s.lists[0] = {0, 16}; }));
    EXPECT_TRUE(grows([](Spec& s) { s.layouts[0] = Layout::unit; }));
    EXPECT_TRUE(grows([](Spec& s) { s.recipe = Recipe::ones; }));
    EXPECT_TRUE(grows([](Spec& s) { s.seed = 1; }));
    EXPECT_TRUE(grows([](Spec& s) { s.seed = ~std::uint64_t{0}; }));
    EXPECT_TRUE(grows([](Spec& s) { s.overrides[{}] = 1; }));
    EXPECT_TRUE(grows([](Spec& s) { s.edits = {"weight.absent"}; }));
    EXPECT_FALSE(complexity(plain) < complexity(plain));
}

}  // namespace
}  // namespace attncheck::properties
