// Text that others chose: what a terminal would obey and what is no UTF-8 becomes question marks.
#include "properties/case/printable.h"

#include <gmock/gmock.h>

namespace attncheck::properties {
namespace {

TEST(Printable, KeepsTextInEveryLanguage) {
    for (const char* text : {"", "plain", "two\nlines\tand a tab", "Grüße, 注意, \U0001F600"})
        EXPECT_EQ(printable(text), text);
}

TEST(Printable, ReplacesControlCharacters) {
    EXPECT_EQ(printable("\x1b[2J\x07\x7f\r"), "?[2J???");
    EXPECT_EQ(printable("\xc2\x9b" "31m"), "??31m");  // U+009B begins a command as ESC [ does
}

// "held" that is written "dleh" and turned round, and what stands on a line of its own.
TEST(Printable, ReplacesWhatTurnsTextRound) {
    for (const char* text : {"\u200E", "\u200F", "\u202A", "\u202E", "\u2066", "\u2069", "\u2028", "\u2029", "\uFEFF"})
        EXPECT_EQ(printable(text), "???") << text;
    EXPECT_EQ(printable("\u061C"), "??");
    for (const char* text : {"\u200D", "\u2026", "\u2030", "\u2070", "\u0620"}) EXPECT_EQ(printable(text), text);
}

TEST(Printable, ReplacesWhatIsNoUtf8) {
    EXPECT_EQ(printable("\xff\xfe"), "??");
    EXPECT_EQ(printable("\xc0\xaf"), "??");              // overlong
    EXPECT_EQ(printable("\xe0\x80\xaf"), "???");         // overlong
    EXPECT_EQ(printable("\xed\xa0\x80"), "???");         // a surrogate
    EXPECT_EQ(printable("\xf4\x90\x80\x80"), "????");    // beyond U+10FFFF
    EXPECT_EQ(printable("\xe6\xb3"), "??");              // cut off
}

TEST(Printable, CutsLinesBetweenCharacters) {
    EXPECT_EQ(printable_line("one\ntwo", 10), "one");
    EXPECT_EQ(printable_line("0123456789", 10), "0123456789");
    EXPECT_EQ(printable_line("0123456789a", 10), "0123456...");
    EXPECT_EQ(printable_line("012345\xe6\xb3\xa8" "789", 10), "012345...");
}

}  // namespace
}  // namespace attncheck::properties
