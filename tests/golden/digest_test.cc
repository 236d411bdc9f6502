// The golden digests can fail: every change of a kind that they watch gives another hash.
#include "digest.h"

#include <gmock/gmock.h>

#include <functional>

#include "digest_file.h"
#include "properties/case/spec.h"

namespace attncheck::golden {
namespace {

using namespace properties;
using testing::ElementsAre;
using testing::IsEmpty;

const Operator& forward() { return *find_operator("nsa_compress"); }

Call small_call() {
    return forward().build(parse(
        "nsa_compress{dtype=bf16 seq=[33] heads=2 dim=16 block=32 stride=16 data=normal seed=7}",
        schemas()));
}

std::uint64_t of_arguments(const Call& call) {
    Digest digest;
    add_arguments(digest, call);
    return digest.value();
}

std::uint64_t of_elements(const Call& call) {
    Digest digest;
    add_elements(digest, call);
    return digest.value();
}

std::uint64_t packed(const Call& call) {
    Digest digest;
    add_packed(digest, call);
    return digest.value();
}

Call changed(const std::function<void(Call&)>& change) {
    Call call = small_call();
    change(call);
    return call;
}

TEST(GoldenDigest, AnEqualCallHasTheSameHashes) {
    EXPECT_EQ(of_arguments(small_call()), of_arguments(small_call()));
    EXPECT_EQ(of_elements(small_call()), of_elements(small_call()));
    EXPECT_EQ(packed(small_call()), packed(small_call()));
}

TEST(GoldenDigest, OneChangedBitOfAnElementShows) {
    const Call other = changed([](Call& call) { call.tensor("input").bits.back() ^= 1; });
    EXPECT_NE(of_elements(other), of_elements(small_call()));
    EXPECT_EQ(of_arguments(other), of_arguments(small_call()));
}

TEST(GoldenDigest, EveryNanCountsAsTheSame) {
    const auto with = [](std::uint32_t bits) {
        return of_elements(changed([&](Call& call) { call.tensor("input").bits[0] = bits; }));
    };
    EXPECT_EQ(with(0x7FC0), with(0xFFC0));
    EXPECT_NE(with(0x7FC0), with(0x7F80));  // infinity
    EXPECT_NE(with(0x7F80), with(0xFF80));
}

TEST(GoldenDigest, AChangedArgumentShowsInTheCallAndInTheStruct) {
    const std::function<void(Call&)> changes[] = {
        [](Call& call) { ++call.tensor("weight").strides[0]; },
        [](Call& call) { --call.tensor("output").shape[0]; },
        [](Call& call) { call.tensor("input").dtype = ATTNCHECK_FLOAT32; },
        [](Call& call) { call.tensor("input").present = false; },
        [](Call& call) { call.arrays[0].size = -1; },
        [](Call& call) { call.texts[0].value.reset(); },
        [](Call& call) { ++call.numbers[0].value; },
    };
    for (const auto& change : changes) {
        EXPECT_NE(of_arguments(changed(change)), of_arguments(small_call()));
        EXPECT_NE(packed(changed(change)), packed(small_call()));
    }
}

TEST(GoldenDigest, ExchangedTensorsShowInTheStruct) {
    const Call other = changed([](Call& call) { std::swap(call.tensors[0], call.tensors[1]); });
    EXPECT_NE(packed(other), packed(small_call()));
}

TEST(GoldenDigest, OrderAndBoundariesOfTextsShow) {
    const auto of = [](const std::vector<std::string>& texts) {
        Digest digest;
        for (const std::string& text : texts) digest.add(text);
        return digest.value();
    };
    EXPECT_NE(of({"seq=0", "gap"}), of({"gap", "seq=0"}));
    EXPECT_NE(of({"a", "bc"}), of({"ab", "c"}));
    EXPECT_NE(of({""}), of({}));
}

TEST(GoldenDigest, TheStatusAndTheMessageOfARulingShow) {
    const auto of = [](const ref::Ruling& ruling) {
        Digest digest;
        add_ruling(digest, ruling);
        return digest.value();
    };
    EXPECT_NE(of({161001, "input", "input is absent", {}}),
              of({161002, "input", "input is absent", {}}));
    EXPECT_NE(of({161001, "input", "input is absent", {}}), of({161001, "input", "no input", {}}));
}

TEST(GoldenDigest, OneCaseChangesTheSummaryOfItsKindAlone) {
    std::vector<CaseHashes> cases(3);
    for (auto& one : cases) one.hashes[kCase] = one.hashes[kLabels] = 5;
    const std::string before = text_of(summary(cases));
    cases[1].hashes[kLabels] = 6;
    EXPECT_THAT(differing_kinds(before, text_of(summary(cases))), ElementsAre("labels"));
    EXPECT_THAT(differing_kinds(before, before), IsEmpty());
}

TEST(GoldenDigest, TheSameCasesAreDrawnAgain) {
    const Property& property = *forward().property("validation");
    EXPECT_EQ(text_of(summary(hash_cases(forward(), property, false))),
              text_of(summary(hash_cases(forward(), property, false))));
}

}  // namespace
}  // namespace attncheck::golden
