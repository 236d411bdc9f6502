// What mutation and cross-over promise: calls survive their bytes, cases stay legal, small and
// within their family, and both keep moving.
#include <gmock/gmock.h>

#include <set>
#include <string>

#include "fuzz/call_mutator.h"
#include "fuzz/fuzzed_case.h"

namespace attncheck::fuzz {
namespace {

using properties::Random;
using properties::Spec;

std::vector<std::uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

TEST(CallBytes, SurviveTheirBytes) {
    Random random(1);
    CallBytes call = sampled_call(CallBytes::kMaxChanges, 100, random);
    for (int i = 0; i < 2000; ++i) {
        call = mutated_call(call, CallBytes::kMaxChanges, random);
        const auto bytes = call.bytes();
        ASSERT_EQ(CallBytes::parse(bytes.data(), bytes.size()), call);
        ASSERT_LE(call.changes.size(), CallBytes::kMaxChanges);
    }
}

// Any bytes are a call; what is missing is 0, what is too much is left out.
TEST(CallBytes, AreReadFromAnything) {
    const std::vector<std::uint8_t> cut{200, 7, 8};
    EXPECT_EQ(CallBytes::parse(cut.data(), cut.size()).head, (std::vector<std::uint8_t>{7, 8}));
    const std::vector<std::uint8_t> partial{0, 1, 2};
    const CallBytes call = CallBytes::parse(partial.data(), partial.size());
    ASSERT_EQ(call.changes.size(), 1u);
    EXPECT_EQ(call.changes[0], (Change{1, 2, 0, 0, 0}));
    const std::vector<std::uint8_t> many(1000, 0);
    EXPECT_EQ(CallBytes::parse(many.data(), many.size()).changes.size(), CallBytes::kMaxChanges);
    EXPECT_EQ(CallBytes::parse(nullptr, 0), CallBytes());
}

TEST(CallBytes, CrossOverTakesChangesOfBoth) {
    CallBytes first, second;
    first.changes.assign(3, Change{1, 1, 1, 1, 1});
    second.changes.assign(3, Change{2, 2, 2, 2, 2});
    Random random(1);
    bool mixed = false;
    for (int i = 0; i < 50; ++i) {
        const CallBytes child = crossed_calls(first, second, 4, random);
        EXPECT_LE(child.changes.size(), 4u);
        std::set<int> parents;
        for (const Change& change : child.changes) parents.insert(change.what);
        mixed |= parents.size() == 2;
    }
    EXPECT_TRUE(mixed);
}

class CaseMutation : public testing::TestWithParam<std::string> {};

/// Operators, each with its gradient; a composition is fuzzed by its operators.
std::vector<std::string> families() {
    std::vector<std::string> names;
    for (const auto& op : properties::operators())
        if (!op->name().ends_with("_grad") && !op->is_composition())
            names.push_back(op->name());
    return names;
}

INSTANTIATE_TEST_SUITE_P(Families, CaseMutation, testing::ValuesIn(families()),
                         [](const auto& instance) { return instance.param; });

TEST_P(CaseMutation, StaysLegalSmallAndReadable) {
    Random random(1);
    Spec spec = sampled_case(GetParam(), random), other = sampled_case(GetParam(), random);
    std::set<std::string> seen, with_edits;
    for (int i = 0; i < 300; ++i) {
        spec = random.chance(80) ? mutated_case(spec, true, random)
                                 : crossed_cases(spec, other, random);
        const auto line = properties::print(spec);
        const auto bytes = bytes_of(line);
        const auto read = read_case(GetParam(), bytes.data(), bytes.size());
        ASSERT_TRUE(read && *read == spec) << line;
        ASSERT_TRUE(is_small(spec)) << line;
        seen.insert(line);
        if (!spec.edits.empty()) with_edits.insert(line);
    }
    EXPECT_GT(seen.size(), 150u);
    EXPECT_GT(with_edits.size(), 10u);
}

TEST(FuzzedCase, RefusesWhatIsNotOfItsFamily) {
    const auto bytes = bytes_of(
        "nsa_compress{dtype=fp16 seq=[32] heads=2 dim=16 block=16 stride=16 data=ones seed=0}");
    EXPECT_TRUE(read_case("nsa_compress", bytes.data(), bytes.size()).has_value());
    EXPECT_TRUE(read_case("", bytes.data(), bytes.size()).has_value());
    EXPECT_FALSE(read_case("flash_attention_score", bytes.data(), bytes.size()).has_value());
    EXPECT_FALSE(read_case("nsa_compress", bytes.data(), bytes.size() - 1).has_value());
}

// Extents of one edit are laid out, those of several multiply.
TEST(FuzzedCase, KnowsThatEditsTogetherMayBeLarge) {
    const auto may_be_large = [](const std::string& edits) {
        const auto bytes = bytes_of(
            "nsa_compress_attention{dtype=bf16 q=[7,0] cmp=[1027,2054] kv_heads=2 group=1 dim=1 "
            "value_dim=1 block=16 stride=16 select=96 count=3 data=ones seed=0 break=[" +
            edits + "]}");
        const auto spec = read_case("nsa_compress_attention", bytes.data(), bytes.size());
        return spec.has_value() && may_edits_be_large(*spec);
    };
    EXPECT_TRUE(may_be_large("all.dims=768,all.kv_heads=129"));
    EXPECT_FALSE(may_be_large("all.dims=768"));
    EXPECT_FALSE(may_be_large("all.kv_heads=129"));
    EXPECT_FALSE(may_be_large("all.dims=16,all.kv_heads=4,all.count=1024"));
}

}  // namespace
}  // namespace attncheck::fuzz
