// Lengths around tile and block boundaries, and the range of the logits, as the generators of
// flash attention draw them.
#include <cmath>

#include "properties/operators/flash_attention/problem.h"
#include "tests/properties/operators/flash_draws.h"

namespace attncheck::properties {
namespace {

class FlashExtents : public Flash {};

INSTANTIATE_TEST_SUITE_P(Operators, FlashExtents, testing::ValuesIn(flash_operators()),
                         named_after_it);

// Lengths around the boundaries of tiles, lanes and 1024-column blocks, for queries and keys.
TEST_P(FlashExtents, LengthsAroundEveryBoundaryAreReached) {
    std::set<Int> lengths[2];
    for (const Spec& spec : draw(op(), nullptr, default_draws(op()), kCornerSeed))
        for (std::size_t b = 0; b < spec.lists[0].size(); ++b)
            for (const std::size_t list : {0, 1})
                if (spec.lists[1 - list][b] > 0) lengths[list].insert(spec.lists[list][b]);
    for (const Int boundary : {1, 16, 64, 128, 1024, 2048})
        for (const Int length : {boundary - 1, boundary, boundary + 1}) {
            EXPECT_TRUE(lengths[0].contains(length)) << length << " queries";
            EXPECT_TRUE(lengths[1].contains(length)) << length << " keys";
        }
}

// Few cases are long on both sides: they cost a second each.
TEST_P(FlashExtents, LongSquaresAreRare) {
    const auto specs = draw(op(), nullptr, default_draws(op()), kCornerSeed);
    const auto is_long = [](const Spec& spec) {
        for (std::size_t b = 0; b < spec.lists[0].size(); ++b)
            if (spec.lists[0][b] > 512 && spec.lists[1][b] > 512) return true;
        return false;
    };
    const auto squares = std::count_if(specs.begin(), specs.end(), is_long);
    EXPECT_LE(static_cast<double>(squares), 0.01 * static_cast<double>(specs.size()));
}

// Positions of queries and keys lie apart by more than bf16 tells, and no more than 16 bits hold.
TEST_P(FlashExtents, StartsLieApart) {
    int apart = 0;
    for (const Spec& spec : draw(op(), nullptr, 8000, kCornerSeed)) {
        if (spec.number("start") == 0) continue;
        std::map<std::string, Int> starts;
        for (const HostArray& array : op().outline(spec).arrays)
            if (array.present && array.name.ends_with("start_idx") && !array.values.empty()) starts[array.name] = array.values[0];
        const Int distance = std::abs(starts["q_start_idx"] - starts["kv_start_idx"]);
        apart += distance > 256 && distance < 4000;
    }
    EXPECT_GE(apart, 20);
}

// The largest logits of rows lie in every hundred from -300 to 300, and beyond.
TEST(FlashLogits, LogitsReachFromMinusThreeHundredToThreeHundred) {
    const Operator& op = *find_operator("flash_attention_score");
    std::map<int, int> hundreds;
    int cases = 0;
    for (const Spec& spec : draw(op, nullptr, 2000, kCornerSeed)) {
        Int pairs = 0;
        for (std::size_t b = 0; b < spec.lists[0].size(); ++b)
            pairs += spec.lists[0][b] * spec.lists[1][b];
        if (pairs * spec.number("dim") * spec.number("group") * spec.number("kv_heads") > 100'000 ||
            spec.recipe == Recipe::specials)
            continue;
        if (++cases > 600) break;
        AttentionProblem problem = flash_attention_operator().problem(spec);
        give_reference_forward(problem);
        std::set<int> seen;
        for (const float row_max : problem.row_max)
            if (std::fabs(row_max) < 1e6f) seen.insert(static_cast<int>(std::floor(row_max / 100)));
        for (const int hundred : seen) ++hundreds[std::clamp(hundred, -4, 3)];
    }
    for (int hundred = -4; hundred <= 3; ++hundred)
        EXPECT_GE(hundreds[hundred], 2) << "logits from " << 100 * hundred;
}

}  // namespace
}  // namespace attncheck::properties
