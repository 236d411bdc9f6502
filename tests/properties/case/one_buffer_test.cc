// Query, key and value as views of one allocation: where each lies, what the candidate gets.
#include "properties/case/one_buffer.h"

#include <gmock/gmock.h>

#include <set>

#include "properties/case/case_of_call.h"
#include "properties/case/derived.h"
#include "tests/properties/case/every_operator.h"

namespace attncheck::properties {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class OneBuffer : public OperatorTest {};
INSTANTIATE_TEST_SUITE_P(Operators, OneBuffer, testing::ValuesIn(every_operator()), named_after_it);

/// Places of all elements in their allocation; no two elements share one.
void expect_no_overlap(const Spec& spec) {
    const Call call = spec.schema->build(spec);
    for (int allocation = 1; allocation <= 3; ++allocation) {
        std::set<std::int64_t> places;
        std::size_t elements = 0;
        for (const Tensor& tensor : call.tensors) {
            if (tensor.allocation != allocation) continue;
            elements += tensor.elements();
            for (const std::int64_t at : offsets_of(tensor.buffer_shape, tensor.strides))
                places.insert(tensor.offset + at);
        }
        ASSERT_EQ(places.size(), elements) << print(spec);
    }
}

TEST_P(OneBuffer, IsDrawnWhereThereAreKeysAndValues) {
    const auto& fields = op().schema().tensors;
    const bool has_keys = op().schema().entry.pack &&
                          std::ranges::count_if(fields, may_share_buffer) > 1;
    constexpr int kDraws = 1000, kMostBuilt = 30;
    int drawn = 0;
    for (int k = 0; k < kDraws; ++k) {
        Random random(static_cast<std::uint64_t>(k) * 7919 + 1);
        const Spec spec = op().sample(random, k % 50, Profile::ascend910b);
        if (!has_one_buffer(spec)) continue;
        ASSERT_EQ(illegal(spec), std::nullopt);
        if (++drawn <= kMostBuilt) expect_no_overlap(spec);
    }
    if (has_keys)
        EXPECT_GE(drawn, kDraws / 100);
    else
        EXPECT_EQ(drawn, 0);
}

/// Strides of query, key and value, and where key and value begin.
struct Laid {
    std::vector<std::int64_t> query, key, value;
    std::int64_t key_offset = 0, value_offset = 0;
};
Laid laid(const std::string& line) {
    const Spec spec = spec_of(line);
    const Call call = spec.schema->build(spec);
    return {call.tensor("query").strides, call.tensor("key").strides, call.tensor("value").strides,
            call.tensor("key").offset, call.tensor("value").offset};
}

// One sequence of 3 rows, 2 heads of keys and 4 of queries, D = 8, Dv = 5.
std::string line_of(const std::string& memory_order, const std::string& layouts) {
    return "attention{dtype=fp16 layout=" + memory_order +
           " q=[3] kv=[3] kv_heads=2 group=2 dim=8 value_dim=5 data=normal seed=1 " + layouts + "}";
}

TEST(OneBufferOf, RowsOfAFusedProjection) {
    const Laid all =
        laid(line_of("bshd", "query.layout=fused key.layout=fused value.layout=fused"));
    constexpr std::int64_t kRow = 4 * 8 + 2 * 8 + 2 * 5;
    EXPECT_THAT(all.query, ElementsAre(3 * kRow, kRow, 8, 1));
    EXPECT_THAT(all.key, ElementsAre(3 * kRow, kRow, 8, 1));
    EXPECT_THAT(all.value, ElementsAre(3 * kRow, kRow, 5, 1));
    EXPECT_EQ(all.key_offset, 4 * 8);
    EXPECT_EQ(all.value_offset, 4 * 8 + 2 * 8);
}

TEST(OneBufferOf, RowsOfEveryHead) {
    const Laid all = laid(line_of("bshd", "key.layout=woven value.layout=woven"));
    EXPECT_THAT(all.key, ElementsAre(3 * 2 * 13, 2 * 13, 13, 1));
    EXPECT_THAT(all.value, ElementsAre(3 * 2 * 13, 2 * 13, 13, 1));
    EXPECT_EQ(all.value_offset, 8);
    EXPECT_THAT(all.query, ElementsAre(3 * 4 * 8, 4 * 8, 8, 1));
}

TEST(OneBufferOf, OneBehindTheOther) {
    const Laid all = laid(line_of("bshd", "key.layout=joined value.layout=joined"));
    EXPECT_THAT(all.key, ElementsAre(3 * 2 * 8, 2 * 8, 8, 1));
    EXPECT_THAT(all.value, ElementsAre(3 * 2 * 5, 2 * 5, 5, 1));
    EXPECT_EQ(all.value_offset, 3 * 2 * 8);
}

// Heads before rows: a head of keys, then one of values.
TEST(OneBufferOf, FollowsTheOrderInMemory) {
    const Laid all = laid(line_of("bhsd", "key.layout=fused value.layout=fused"));
    EXPECT_THAT(all.key, ElementsAre(2 * 39, 8, 39, 1));
    EXPECT_THAT(all.value, ElementsAre(2 * 39, 5, 39, 1));
}

// Alone it lies dense, and no list or output is such a view.
TEST(OneBufferOf, IsOfTwoTensorsAtLeast) {
    const Laid alone = laid(line_of("bshd", "key.layout=fused"));
    EXPECT_THAT(alone.key, ElementsAre(3 * 2 * 8, 2 * 8, 8, 1));
    EXPECT_THAT(illegal(spec_of(line_of("bshd", "bias.layout=fused"))).value_or("legal"),
                HasSubstr("is for query, key and value"));
}

// More rows than needed would lie on those of the next view.
TEST(OneBufferOf, RowsThatAnEditAddsLieElsewhere) {
    const Spec spec = spec_of(
        line_of("bshd", "key.layout=joined value.layout=joined break=[key.spare=2]"));
    const Call call = spec.schema->build(spec);
    EXPECT_EQ(call.tensor("key").allocation, 0);
}

// ---- values in the keys (latent attention) ----

// Two pages of 2 slots, a head of 8 channels, the first 5 of which are the values.
std::string latent_line(const std::string& more, int value_dim = 5) {
    return "attention_decode{dtype=fp16 q=[1] kv=[3] kv_heads=1 group=2 dim=8 value_dim=" + std::to_string(value_dim) +
           " page=2 values=in_keys data=normal seed=1 " + more + "}";
}

TEST(ValuesInKeys, AreTheirFirstChannels) {
    for (const char* layout : {"", "key_cache.layout=gap", "cache=transposed", "key_cache.layout=reversed", "key_cache.layout=broadcast"}) {
        const Spec spec = spec_of(latent_line(layout));
        ASSERT_EQ(illegal(spec), std::nullopt) << layout;
        const Call call = spec.schema->build(spec);
        const Tensor &key = call.tensor("key_cache"), &value = call.tensor("value_cache");
        EXPECT_NE(value.allocation, 0);
        EXPECT_EQ(value.allocation, key.allocation);
        EXPECT_EQ(value.offset, key.offset);
        EXPECT_EQ(value.strides, key.strides) << layout;
        ASSERT_EQ(value.bits.size(), 4u * 5);
        for (std::size_t row = 0; row < 4; ++row)
            for (std::size_t c = 0; c < 5; ++c) EXPECT_EQ(value.bits[row * 5 + c], key.bits[row * 8 + c]) << layout;
    }
}

// The values of a law that changed them, or the keys, are not to be found in the keys.
TEST(ValuesInKeys, LieAloneWhereTheyDiffer) {
    const Spec spec = spec_of(latent_line(""));
    Call call = spec.schema->build(spec);
    EXPECT_EQ(case_of(call)->spec.number("values"), 1);
    Tensor& value = call.tensor("value_cache");
    value.bits.back() ^= 1;
    lay_views(call, extents_of(spec));
    EXPECT_EQ(value.allocation, 0);
    EXPECT_THAT(value.strides, ElementsAre(2 * 5, 5, 5, 1));
    EXPECT_EQ(case_of(call)->spec.number("values"), 0);  // a kernel that declares values=in_keys is not asked
}

TEST(ValuesInKeys, HaveNoLayoutAndNoElementsOfTheirOwn) {
    const auto reason = [](const std::string& line) { return illegal(spec_of(line)).value_or("legal"); };
    EXPECT_EQ(reason(latent_line("")), "legal");
    EXPECT_THAT(reason(latent_line("value_cache.layout=gap")), HasSubstr("it lies where key_cache lies"));
    EXPECT_THAT(reason(latent_line("key_cache.layout=far")), HasSubstr("value_cache lies in it"));
    EXPECT_THAT(reason(latent_line("set=[value_cache[0,0,0]=1]")), HasSubstr("whose elements are those of key_cache"));
    EXPECT_EQ(reason(latent_line("set=[key_cache[0,0,0]=1]")), "legal");
    EXPECT_THAT(reason(latent_line("", 9)), HasSubstr("values=in_keys needs value_dim <= dim"));
}

}  // namespace
}  // namespace attncheck::properties
