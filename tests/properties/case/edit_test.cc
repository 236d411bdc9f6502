// Edits: one parser, one printer.
#include "properties/case/edit.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace attncheck::properties {
namespace {

// As the validation properties write them; the printed form is part of case lines.
TEST(Edit, PrintsAsItWasWritten) {
    for (const char* text :
         {"stride=5", "scale=nan", "scale=-inf", "scale=1e300", "scale=-1e39", "scale=1e-300",
          "keep=0.999999999999", "keep=1.0000001", "keep=-0.5", "layout=\"\"", "layout=\" T,]=N\"",
          "weight.absent", "q.null", "q.size=-1", "x.rank=-2147483648", "x.dtype=0",
          "x.shape[1]=9223372036854775807", "q[0]=-9223372036854775808", "topk[0,2,1]=-5",
          "all.dim=8", "rows.q=4", "sequences=1024", "heads.uneven"})
        EXPECT_EQ(print(Edit(text)), text);
}

// Different texts of one value are one edit, so that a printed line reads back as the same case.
TEST(Edit, PrintedFormReadsBackAsTheSame) {
    for (const char* text : {"a=1.0", "a=007", "a=1e3", "a=-0.0", "a=-0", "a=1e400", "a=+1", "a=1e+300"}) {
        Edit edit;
        try {
            edit = Edit(text);
        } catch (const std::invalid_argument&) {
            continue;
        }
        EXPECT_EQ(Edit(print(edit)), edit) << text;
        EXPECT_EQ(Edit(print(edit)).value.index(), edit.value.index()) << text;
    }
}

TEST(Edit, WhatIsNoneIsRefused) {
    for (const char* text : {"", "=5", "a=", "a=five", "a.=5", ".b", "a[", "a[]=1", "a[-1]=1",
                             "a[0].b=1", "a b=1", "a=\"open", "a.b.c"})
        EXPECT_THROW(Edit{text}, std::invalid_argument) << text;
}

}  // namespace
}  // namespace attncheck::properties
