// Edits that follow from a description.
#include "properties/case/edit_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "properties/case/claims.h"
#include "properties/case/derived.h"

namespace attncheck::properties {
namespace {

using testing::Contains;
using testing::ElementsAre;

Description plain_operator() {
    Description d;
    d.op = "test";
    d.numbers = {{.key = "dtype", .max = 1, .names = {"fp16", "bf16"}},
                 {.key = "heads", .min = 1, .max = 64},
                 {.key = "mode", .max = 2},
                 {.key = "unused", .max = 2},
                 {.key = "block", .min = 16, .max = 128, .step = 16},
                 {.key = "stride", .min = 16, .max = 128, .step = 16}};
    d.lists = {{"q", 0, 100, 9, "query", ""}};
    d.tensors = {{.name = "input", .logical = "q+ heads"},
                 {.name = "mask", .forms = {{"", "q"}}, .present = "mode"},
                 {.name = "bias", .forms = {{"", "q"}}, .present = "mode"}};
    d.arrays = {{.name = "ends", .ends_of = "q"},
                {.name = "others", .values = [](const Extents& e) { return e.lengths("q"); }}};
    d.texts = {{.name = "layout",
                .value = [](const Extents&) { return "TND"; },
                .tried = {"tnd", ""}}};
    d.integers = {{.name = "any", .value = "unused", .inert = true},
                  {.name = "mode", .value = "mode"},
                  {.name = "head_num", .value = "heads", .largest = 64},
                  {.name = "size", .value = "block"},
                  {.name = "kind", .value = "0"}};
    d.reals = {
        {.name = "scale", .value = [](const Extents&) { return 1.0; }, .tried = {"nan", "0"}}};
    d.claims = field_claims({"dtype", "heads", "block", "stride"}, 200);
    d.claims.push_back(row_claim("q"));
    return resolved(std::move(d));
}

std::vector<std::string> texts_of(const std::vector<Edit>& group) {
    std::vector<std::string> out;
    for (const Edit& edit : group) out.push_back(print(edit));
    return out;
}

class EditGroupsTest : public testing::Test {
protected:
    const Description description_ = plain_operator();
    const Extents extents_{description_, {0, 3, 0, 0, 32, 48}, {{2, 4}}};
    const Call call_ = outline_of(extents_);
    EditGroups groups_;
};

TEST_F(EditGroupsTest, NumbersAreTriedAtTheirLimits) {
    // A field with a largest value is a count, although it is also a field.
    add_number_edits(groups_, call_);
    ASSERT_EQ(groups_.size(), 6u);
    EXPECT_THAT(texts_of(groups_[0]), ElementsAre("scale=nan", "scale=0"));
    EXPECT_THAT(texts_of(groups_[1]),
                ElementsAre("head_num=0", "head_num=-1", "head_num=4", "head_num=2", "head_num=6",
                            "head_num=65", "head_num=4294967299", "head_num=9223372036854775807",
                            "head_num=-9223372036854775808"));
    EXPECT_THAT(texts_of(groups_[2]),
                ElementsAre("mode=-1", "mode=0", "mode=1", "mode=2", "mode=3",
                            "mode=9223372036854775807", "mode=-9223372036854775808"));
    EXPECT_THAT(texts_of(groups_[3]),
                ElementsAre("size=0", "size=-16", "size=8", "size=17", "size=40", "size=16",
                            "size=48", "size=64", "size=144", "size=288",
                            "size=9223372036854775807", "size=-9223372036854775808"));
    EXPECT_THAT(texts_of(groups_[4]),
                ElementsAre("kind=-1", "kind=0", "kind=1", "kind=9223372036854775807",
                            "kind=-9223372036854775808"));
    EXPECT_THAT(texts_of(groups_[5]), Contains("any=258"));
}

TEST_F(EditGroupsTest, TextsAreTriedAndAbsent) {
    add_text_edits(groups_, call_);
    ASSERT_EQ(groups_.size(), 3u);
    EXPECT_THAT(texts_of(groups_[0]), ElementsAre("layout=\"tnd\"", "layout=\"\""));
    EXPECT_THAT(texts_of(groups_[1]), ElementsAre("layout=\"TNDX\"", "layout=\"TNDx\"", "layout=\"TND \""));
    EXPECT_THAT(texts_of(groups_[2]), ElementsAre("layout.absent"));
}

TEST_F(EditGroupsTest, OtherSpellingsAreTriedWhereNoneAreGiven) {
    Description d = plain_operator();
    d.texts[0].tried.clear();
    add_text_edits(groups_, outline_of({d, {0, 3, 0, 0, 32, 48}, {{2, 4}}}));
    EXPECT_THAT(texts_of(groups_[0]),
                ElementsAre("layout=\"tnd\"", "layout=\"\"", "layout=\"TN\"", "layout=\" TND\"", "layout=\"BSND\""));
}

// A block is compared with a stride, which has the same range; a number of heads is not.
TEST_F(EditGroupsTest, ClaimsAreTriedAtTheirLimitsAndAroundTheirLikes) {
    add_claim_edits(groups_, extents_);
    ASSERT_EQ(groups_.size(), 8u);
    EXPECT_THAT(texts_of(groups_[0]), ElementsAre("all.dtype=0"));
    EXPECT_THAT(texts_of(groups_[1]),
                ElementsAre("all.heads=0", "all.heads=1", "all.heads=64", "all.heads=65"));
    EXPECT_THAT(texts_of(groups_[3]),
                ElementsAre("all.block=0", "all.block=16", "all.block=128", "all.block=144",
                            "all.block=8", "all.block=24", "all.block=40", "all.block=136"));
    EXPECT_THAT(texts_of(groups_[4]), ElementsAre("all.block=48", "all.block=16", "all.block=32",
                                                  "all.block=64"));
    EXPECT_THAT(texts_of(groups_[7]), Contains("rows.q=2097153"));
}

// The first value beyond each range has a group to itself.
TEST_F(EditGroupsTest, WhatHasOneRuleIsTriedAlone) {
    add_single_edits(groups_, extents_);
    std::vector<std::string> alone;
    for (const auto& group : groups_)
        if (group.size() == 1) alone.push_back(print(group.front()));
    EXPECT_THAT(alone, testing::IsSupersetOf({"mode=3", "head_num=0", "size=144", "kind=1",
                                              "all.heads=65", "all.block=144", "all.block=0",
                                              "scale=nan", "layout=\"tnd\"", "input.dtype=27"}));
    EXPECT_THAT(alone, testing::Not(Contains("any=3")));
}

TEST_F(EditGroupsTest, TensorsThatAreAbsentShareAGroup) {
    add_tensor_edits(groups_, call_);
    EXPECT_THAT(texts_of(groups_.front()), ElementsAre("input.absent"));
    EXPECT_THAT(texts_of(groups_.back()), ElementsAre("mask.present", "bias.present"));
}

TEST_F(EditGroupsTest, OnlyArraysOfEndsAreTriedAsEnds) {
    add_length_edits(groups_, extents_);
    EditGroups wanted;
    add_length_edits(wanted, "ends", {2, 4}, 6);
    EXPECT_EQ(groups_, wanted);
}

}  // namespace
}  // namespace attncheck::properties
