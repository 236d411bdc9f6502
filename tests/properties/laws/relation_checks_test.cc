// How relations between sums are judged and told.
#include "properties/laws/relation_checks.h"

#include <gmock/gmock.h>

namespace attncheck::properties {
namespace {

using testing::HasSubstr;

// A place has one pair of brackets, whether its name brings them or not.
TEST(Identity, BracketsAPlaceOnce) {
    for (const char* place : {"head 3", "[head 3]"}) {
        Identity sums(1);
        sums.left[0] = 1;
        sums.place[0] = place;
        EXPECT_THAT(sums.verdict("dk", "a sum").message, HasSubstr("worst:\n  [head 3]  1 against 0")) << place;
    }
}

}  // namespace
}  // namespace attncheck::properties
