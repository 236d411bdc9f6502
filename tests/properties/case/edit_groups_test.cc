// Edits that follow from a description.
#include "properties/case/edit_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "properties/case/derived.h"

namespace attncheck::properties {
namespace {

using testing::Contains;
using testing::ElementsAre;

Description plain() {
    Description d;
    d.op = "test";
    d.numbers = {{.key = "dtype", .max = 1, .names = {"fp16", "bf16"}},
                 {.key = "heads", .min = 1, .max = 64},
                 {.key = "mode", .max = 2},
                 {.key = "unused", .max = 2}};
    d.lists = {{"q", 0, 100, 9, "query", ""}};
    d.tensors = {{.name = "input", .logical = "q+ heads"},
                 {.name = "mask", .forms = {{"", "q"}}, .present = "mode"},
                 {.name = "bias", .forms = {{"", "q"}}, .present = "mode"}};
    d.arrays = {{"ends", {}, ends_of("q"), "", "q"}, {"others", {}, ends_of("q"), ""}};
    d.texts = {{.name = "layout",
                .value = [](const Extents&) { return "TND"; },
                .tried = {"tnd", ""}}};
    d.integers = {{.name = "any", .value = "unused", .inert = true},
                  {.name = "mode", .value = "mode"},
                  {.name = "head_num", .value = "heads", .largest = 64}};
    d.reals = {
        {.name = "scale", .value = [](const Extents&) { return 1.0; }, .tried = {"nan", "0"}}};
    return resolved(std::move(d));
}

std::vector<std::string> texts_of(const std::vector<Edit>& group) {
    std::vector<std::string> out;
    for (const Edit& edit : group) out.push_back(print(edit));
    return out;
}

class EditGroupsTest : public testing::Test {
protected:
    const Description description_ = plain();
    const Extents extents_{description_, {0, 3, 0, 0}, {{2, 4}}};
    const Call call_ = outline_of(extents_);
    EditGroups groups_;
};

TEST_F(EditGroupsTest, NumbersAreTriedAtTheirLimits) {
    // A field with a largest value is a count, although it is also a field.
    add_number_edits(groups_, call_);
    ASSERT_EQ(groups_.size(), 4u);
    EXPECT_THAT(texts_of(groups_[0]), ElementsAre("scale=nan", "scale=0"));
    EXPECT_THAT(texts_of(groups_[1]),
                ElementsAre("head_num=0", "head_num=-1", "head_num=4", "head_num=2", "head_num=6",
                            "head_num=65", "head_num=4294967299", "head_num=9223372036854775807",
                            "head_num=-9223372036854775808"));
    EXPECT_THAT(texts_of(groups_[2]),
                ElementsAre("mode=-1", "mode=0", "mode=1", "mode=2", "mode=3",
                            "mode=9223372036854775807", "mode=-9223372036854775808"));
    EXPECT_THAT(texts_of(groups_[3]), Contains("any=258"));
}

TEST_F(EditGroupsTest, TextsAreTriedAndAbsent) {
    add_text_edits(groups_, call_);
    ASSERT_EQ(groups_.size(), 2u);
    EXPECT_THAT(texts_of(groups_[0]), ElementsAre("layout=\"tnd\"", "layout=\"\""));
    EXPECT_THAT(texts_of(groups_[1]), ElementsAre("layout.absent"));
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
