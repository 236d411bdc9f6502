// Strides that few callers use: drawn for every operator, with values that fit them.
#include "properties/case/unusual_strides.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>

#include "tests/properties/case/every_operator.h"

namespace attncheck::properties {
namespace {

class UnusualStrides : public OperatorTest {};
INSTANTIATE_TEST_SUITE_P(Operators, UnusualStrides, testing::ValuesIn(every_operator()),
                         named_after_it);

/// Elements of an input that are one in memory have one value. Returns how many tensors repeat.
int expect_one_value_per_place(const Spec& spec) {
    const Call call = spec.schema->build(spec);
    int repeated = 0;
    for (std::size_t i = 0; i < call.tensors.size(); ++i) {
        const Tensor& tensor = call.tensors[i];
        if (tensor.output || !tensor.present || !repeats(spec.layouts[i])) continue;
        const auto offsets = offsets_of(tensor.buffer_shape, tensor.strides);
        std::map<std::int64_t, std::uint32_t> first;
        for (std::size_t k = 0; k < offsets.size(); ++k) {
            const auto [at, is_new] = first.emplace(offsets[k], tensor.bits[k]);
            if (at->second == tensor.bits[k]) continue;
            ADD_FAILURE() << tensor.name << " element " << k << " of " << print(spec);
            return repeated;
        }
        ++repeated;
    }
    return repeated;
}

TEST_P(UnusualStrides, AreDrawnWithValuesThatFit) {
    if (!op().schema().entry.pack) GTEST_SKIP() << "layouts are for single operators";
    constexpr int kDraws = 3000, kMostBuilt = 40;
    int far = 0, reversed = 0, repeated = 0, built = 0;
    for (int k = 0; k < kDraws; ++k) {
        Random random(static_cast<std::uint64_t>(k) * 7919 + 1);
        const Spec spec = op().sample(random, k % 50, Profile::ascend910b);
        far += std::ranges::count(spec.layouts, Layout::far) > 0;
        reversed += std::ranges::count(spec.layouts, Layout::reversed_last) > 0;
        const bool repeats_now = std::ranges::any_of(spec.layouts, repeats);
        if (!repeats_now || built == kMostBuilt) continue;
        ++built;
        repeated += expect_one_value_per_place(spec);
    }
    EXPECT_GE(far, kDraws / 300);
    EXPECT_GE(reversed, kDraws / 1000);
    if (op().schema().repeats_anywhere) {
        EXPECT_GE(repeated, 5);
    }
}

// An element that `set` names through one of its copies is changed at all of them.
TEST(Repeated, ElementsThatAreSetAreSetEverywhere) {
    const Spec spec = spec_of(
        "flash_attention_score{dtype=fp32 layout=SBH q=[2,2] kv=[3,3] kv_heads=1 group=1 dim=2 "
        "value_dim=2 data=normal seed=7 key.layout=broadcast value.layout=one_row "
        "set=[key[4,0,1]=9,value[2,0,0]=8]}");
    const Call call = spec.schema->build(spec);
    EXPECT_EQ(expect_one_value_per_place(spec), 2);
    EXPECT_THAT(call.tensor("key").values(), testing::Contains(9).Times(2));    // both batches
    EXPECT_THAT(call.tensor("value").values(), testing::Contains(8).Times(3));  // all positions
}

}  // namespace
}  // namespace attncheck::properties
