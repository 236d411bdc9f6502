// Neighbours of a Spec: legal, strictly simpler, and with the data they promise to keep.
#include "properties/search/shrink.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "properties/case/call.h"
#include "properties/operators/catalogue.h"
#include "properties/search/explain.h"
#include "tests/properties/case/every_operator.h"

namespace attncheck::properties {
namespace {

const std::function<bool(const Spec&)> kEverywhere;

class Shrinking : public OperatorTest {};

INSTANTIATE_TEST_SUITE_P(Operators, Shrinking, testing::ValuesIn(every_operator()), named_after_it);

/// Their tensors and keys stand in the tests.
class ShrinkingCompress : public OperatorTest {};

INSTANTIATE_TEST_SUITE_P(Operators, ShrinkingCompress, testing::Values(&forward(), &gradient()),
                         named_after_it);

// Walks down at random from generated Specs; every neighbour on the way has both properties.
TEST_P(Shrinking, EveryNeighbourIsLegalAndSimpler) {
    constexpr std::uint64_t kWalks = 30;  // sizes 0 to 29
    std::size_t seen = 0;
    for (std::uint64_t walk = 0; walk < kWalks; ++walk) {
        Random random(walk);
        Spec spec = sampled(op(), walk);
        if (walk % 5 == 0)
            spec.edits = {op().schema().tensors[0].name + ".absent", "compress_stride=0"};
        for (int depth = 0; depth < 12; ++depth) {
            const auto key = complexity(spec);
            std::optional<Spec> next;
            const auto list = neighbours(spec, op(), kEverywhere);
            for (std::size_t look = 0; look < 24 && !list.empty(); ++look) {
                const auto at = static_cast<std::size_t>(random.between(0, std::ssize(list) - 1));
                const std::optional<Spec> neighbour = list[at]();
                if (!neighbour) continue;
                ++seen;
                ASSERT_EQ(op().illegal(*neighbour), std::nullopt) << print(spec) << "\n"
                                                                  << print(*neighbour);
                ASSERT_LT(complexity(*neighbour), key) << print(spec) << "\n" << print(*neighbour);
                ASSERT_EQ(spec_of(print(*neighbour)), *neighbour);
                if (!next || random.chance(20)) next = neighbour;
            }
            if (!next) break;
            spec = *next;
        }
    }
    EXPECT_GT(seen, 2'000u);
}

// A defect of whole tiles: what is between two multiples of 256 holds.
TEST(ShrinkingLongRows, KeepsThePlaceInATile) {
    const Operator& op = *find_operator("attention");
    Spec spec = spec_of("attention{dtype=fp16 q=[1] kv=[33024] layout=bshd kv_heads=1 group=1 dim=1 value_dim=1 seed=1}");
    const auto fails = [](const Spec& one) { return one.lists[1][0] >= 512 && one.lists[1][0] % 256 == 0; };
    int steps = 0;
    for (bool found = true; found; ++steps) {
        found = false;
        for (const Neighbour& neighbour : neighbours(spec, op, kEverywhere))
            if (const auto simpler = neighbour(); simpler && fails(*simpler)) {
                spec = *simpler, found = true;
                break;
            }
        ASSERT_LT(steps, 100);
    }
    EXPECT_EQ(spec.lists[1][0], 512);
    EXPECT_LT(steps, 20);
}

// What a property cannot take is not offered to it.
TEST_P(Shrinking, NeighboursStayInTheDomain) {
    // An operator without sequences has two of what its first extent counts.
    const std::function<bool(const Spec&)> two_sequences = [](const Spec& spec) {
        return spec.lists.empty() ? spec.numbers[1] >= 2 : spec.lists[0].size() >= 2;
    };
    std::size_t offered = 0;
    for (std::uint64_t number = 0; number < 60; ++number) {
        const Spec spec = sampled(op(), number);
        for (const Neighbour& neighbour : neighbours(spec, op(), two_sequences))
            if (const auto next = neighbour()) {
                ++offered;
                ASSERT_TRUE(two_sequences(*next)) << print(*next);
            }
    }
    EXPECT_GT(offered, 500u);
}

/// Where taking the first neighbour until there is none ends.
Spec simplest_below(Spec spec, const Operator& op) {
    for (;;) {
        std::optional<Spec> next;
        for (const Neighbour& neighbour : neighbours(spec, op, kEverywhere))
            if ((next = neighbour())) break;
        if (!next) return spec;
        spec = std::move(*next);
    }
}

// Nothing holds a walk back: each ends, and in the one Spec that is simpler than all others.
TEST_P(Shrinking, EveryWalkEndsInTheSimplestSpec) {
    const Spec simplest = simplest_below(sampled(op(), 0), op());
    for (std::uint64_t number = 1; number < 100; ++number) {
        const Spec spec = sampled(op(), number);
        ASSERT_EQ(print(simplest_below(spec, op())), print(simplest)) << "from " << print(spec);
    }
}

std::vector<std::vector<std::uint32_t>> input_bits(const Call& call) {
    std::vector<std::vector<std::uint32_t>> bits;
    for (const Tensor& tensor : call.tensors) bits.push_back(tensor.bits);
    return bits;
}

bool all_numbers(const Call& call) {
    for (const Tensor& tensor : call.tensors)
        for (const double value : tensor.values())
            if (std::isnan(value)) return false;
    return true;
}

// Writing every element out changes the text of a case, not its data.
TEST_P(Shrinking, WrittenOutGivesTheSameData) {
    constexpr std::size_t kMostElements = 20'000;
    int written = 0;
    for (std::uint64_t number = 0; number < 400 && written < 50; ++number) {
        const Spec spec = sampled(op(), number);
        const std::optional<Spec> out = written_out(spec, op(), kMostElements);
        if (!out) continue;
        ++written;
        EXPECT_EQ(out->recipe, Recipe::zeros);
        const Call from = op().build(spec), to = op().build(*out);
        if (all_numbers(from)) {
            ASSERT_EQ(input_bits(from), input_bits(to)) << print(spec);
        }
        const Call again = op().build(spec_of(print(*out)));
        ASSERT_EQ(input_bits(to), input_bits(again)) << print(spec);
    }
    EXPECT_GE(written, 40);
}

// Beyond the limit there is no written form.
TEST_P(ShrinkingCompress, WrittenOutKeepsToItsLimit) {
    Spec spec(op().schema());
    spec.lists[0] = {40};
    spec.set("heads", 2);
    spec.recipe = Recipe::normal;
    std::size_t elements = 0;
    const auto shapes = op().shapes(spec);
    for (std::size_t i = 0; i < op().schema().tensors.size(); ++i) {
        std::size_t count = op().schema().tensors[i].output ? 0 : 1;
        for (const auto extent : shapes[i]) count *= static_cast<std::size_t>(extent);
        elements += count;
    }
    EXPECT_TRUE(written_out(spec, op(), elements));
    EXPECT_FALSE(written_out(spec, op(), elements - 1));
}

ElementRef at(const Operator& op, const char* tensor, std::int64_t i, std::int64_t j,
              std::int64_t k) {
    return {op.schema().tensor(tensor), {i, j, k, 0}};
}

// Elements stay with their sequence and position when other sequences go.
TEST_P(ShrinkingCompress, CarriedOverridesKeepSequenceAndPosition) {
    Spec from(op().schema());
    from.lists[0] = {40, 50, 60};
    from.set("heads", 2);
    from.set("beyond", 5);
    from.overrides = {{at(op(), "input", 39, 0, 1), 1},  {at(op(), "input", 40, 1, 2), 2},
                      {at(op(), "input", 89, 0, 3), 3},  {at(op(), "input", 90, 1, 15), 4},
                      {at(op(), "input", 154, 0, 0), 5}, {at(op(), "weight", 15, 1, 0), 6},
                      {at(op(), "input", 149, 1, 15), 7}};
    Spec to = from;
    to.lists[0] = {40, 30};  // the first and the last, which is shorter now
    op().carry_overrides(from, to, {0, 2});
    const std::map<ElementRef, double> expected{{at(op(), "input", 39, 0, 1), 1},
                                                {at(op(), "input", 40, 1, 15), 4},
                                                {at(op(), "input", 74, 0, 0), 5},
                                                {at(op(), "weight", 15, 1, 0), 6}};
    EXPECT_EQ(to.overrides, expected);
    EXPECT_EQ(op().illegal(to), std::nullopt);
}

// Heads, channels and window positions that are gone take their elements with them.
TEST_P(ShrinkingCompress, CarriedOverridesDropWhatIsOutside) {
    Spec from(op().schema());
    from.lists[0] = {64};
    from.set("heads", 3);
    from.set("dim", 32);
    from.set("block", 48);
    from.overrides = {{at(op(), "input", 0, 2, 0), 1},
                      {at(op(), "input", 0, 0, 16), 2},
                      {at(op(), "input", 3, 1, 15), 3},
                      {at(op(), "weight", 40, 0, 0), 4},
                      {at(op(), "weight", 2, 1, 0), 5}};
    Spec to = from;
    to.set("heads", 2);
    to.set("dim", 16);
    to.set("block", 32);
    op().carry_overrides(from, to, {0});
    const std::map<ElementRef, double> expected{{at(op(), "input", 3, 1, 15), 3},
                                                {at(op(), "weight", 2, 1, 0), 5}};
    EXPECT_EQ(to.overrides, expected);
}

// The compressed tensor's rows are blocks: they move with the blocks of their sequence.
TEST(ShrinkingTheGradient, CarriesOutputGradByBlocks) {
    Spec from(gradient().schema());
    from.lists[0] = {48, 64};  // two blocks of 32 by 16, then three
    from.overrides = {{at(gradient(), "output_grad", 1, 0, 0), 1},
                      {at(gradient(), "output_grad", 3, 0, 7), 2},
                      {at(gradient(), "output_grad", 4, 0, 7), 3}};
    Spec to = from;
    to.lists[0] = {50};
    gradient().carry_overrides(from, to, {1});
    const std::map<ElementRef, double> expected{{at(gradient(), "output_grad", 1, 0, 7), 2}};
    EXPECT_EQ(to.overrides, expected);
}

// A mask counts its elements in one number: each keeps its row and key where the shape changes.
TEST(ShrinkingPairs, NumbersOfElementsFollowTheShape) {
    const Operator& op = *find_operator("attention");
    Spec from = spec_of("attention{dtype=fp32 q=[3] kv=[5] layout=bshd kv_heads=2 group=1 dim=8 value_dim=8 mask=full data=zeros seed=0}");
    const auto element = [&](std::int64_t head, std::int64_t row, std::int64_t key, std::int64_t rows, std::int64_t keys) {
        return at(op, "mask", (head * rows + row) * keys + key, 0, 0);
    };
    from.overrides = {{element(0, 0, 0, 3, 5), 1}, {element(0, 1, 2, 3, 5), 1}, {element(0, 2, 4, 3, 5), 1}, {element(1, 1, 0, 3, 5), 1}};
    Spec to = from;
    to.lists = {{2}, {4}};
    op.carry_overrides(from, to, {0});
    const std::map<ElementRef, double> fewer{{element(0, 0, 0, 2, 4), 1}, {element(0, 1, 2, 2, 4), 1}, {element(1, 1, 0, 2, 4), 1}};
    EXPECT_EQ(to.overrides, fewer);
    to = from;
    to.set("kv_heads", 1);
    op.carry_overrides(from, to, {0});
    const std::map<ElementRef, double> one_head{{element(0, 0, 0, 3, 5), 1}, {element(0, 1, 2, 3, 5), 1}, {element(0, 2, 4, 3, 5), 1}};
    EXPECT_EQ(to.overrides, one_head);
    to = from;
    to.numbers[static_cast<std::size_t>(op.schema().number("mask"))] += 2;  // one_head: of another form
    op.carry_overrides(from, to, {0});
    EXPECT_EQ(to.overrides.size(), 1u);
}

// Other values of a field may make a tensor absent or smaller, whose elements the case has set: those go with it.
TEST(Explanation, ElementsFollowTheirTensors) {
    const Operator& module = *find_operator("nsa_module");
    Spec smallest = spec_of(
        "nsa_module{dtype=fp16 seq=[16] kv_heads=1 group=1 dim=128 value_dim=128 block=16 stride=16 select=16 count=1 window=1 "
        "data=zeros seed=0 set=[key_window[3,0,1]=1,query[1,0,0]=2]}");
    std::size_t tied = 0, elements = 0;
    const auto outcome = [&](const Spec& spec) {
        EXPECT_EQ(module.illegal(spec), std::nullopt) << print(spec);
        if (spec.number("tied") != 0) ++tied, elements += spec.overrides.size();
        return Varied::fails;
    };
    const std::string text = explanation_of(
        smallest, smallest, module, "attention_out", [&](const Spec& spec) { return !module.illegal(spec); }, outcome, [] { return false; });
    EXPECT_THAT(text, testing::HasSubstr("tied"));
    EXPECT_EQ(tied, 1u);
    EXPECT_EQ(elements, 1u);  // of query
}

// What is left of a tile of 32 keys: a length a whole number of tiles further fails, too.
TEST(Explanation, LengthsBehindOtherTilesAreTried) {
    const Operator& op = *find_operator("attention");
    const Spec smallest = spec_of("attention{dtype=fp16 q=[1] kv=[31] layout=bshd kv_heads=1 group=1 dim=1 value_dim=1 data=ones seed=0}");
    const auto fails = [](const Spec& spec) { return spec.lists[1][0] % 32 == 31 ? Varied::fails : Varied::holds; };
    const auto text = [&](const std::function<bool()>& is_over) {
        return explanation_of(smallest, smallest, op, "out", [&](const Spec& spec) { return !op.illegal(spec); }, fails, is_over);
    };
    EXPECT_THAT(text([] { return false; }), testing::HasSubstr("kv=159, not 32,62,69"));
    int calls = 0;
    const std::string cut = text([&] { return ++calls > 20; });
    EXPECT_THAT(cut, testing::HasSubstr("no time for all values of "));
    EXPECT_THAT(cut, testing::HasSubstr("dim"));
}

}  // namespace
}  // namespace attncheck::properties
