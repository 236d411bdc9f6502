// The picture of where an output is wrong.
#include "properties/judge/where.h"

#include <gmock/gmock.h>

#include "tests/properties/case/case_line.h"

namespace attncheck::properties {
namespace {

constexpr const char* kTwoHeads =
    "attention{dtype=fp32 q=[40,40] kv=[3,3] layout=bshd kv_heads=2 group=1 dim=2 value_dim=2 data=zeros seed=0}";

std::string picture(const std::string& line, const std::vector<std::size_t>& wrong, const char* op = "attention",
                    const char* output = "out") {
    const Spec spec = spec_of(line);
    const Call call = find_operator(op)->build(spec);
    const Tensor& out = call.tensor(output);
    ref::ExpectedTensor expected(out.elements());
    for (double& bound : expected.bound) bound = 0.25;
    std::vector<std::uint32_t> got(out.elements(), 0);
    for (const std::size_t k : wrong) got[k] = ref::encode(out.type(), 1);
    return map_of_errors(spec, out, expected, got);
}

// Sequence by head in tiles of 32 rows, each with its worst error in units of the bound.
TEST(Where, ShowsSequenceHeadAndTile) {
    // [B,S,H,D] = [2,40,2,2]: batch 1, query 35, head 1.
    const std::size_t element = ((1 * 40 + 35) * 2 + 1) * 2;
    EXPECT_EQ(picture(kTwoHeads, {element}),
              "\n  where: worst error / bound by tile of 32 query rows"
              "\n    sequence 0   head 0         0       0"
              "\n    sequence 0   head 1         0       0"
              "\n    sequence 1   head 0         0       0"
              "\n    sequence 1   head 1         0       4");
}

// Rows behind the last sequence belong to none, and have no word.
TEST(Where, LeavesOutRowsBehindTheLastSequence) {
    EXPECT_THAT(picture("nsa_compress_grad{dtype=fp16 seq=[70] heads=2 dim=16 block=32 stride=32 beyond=3 data=zeros seed=0}", {5},
                        "nsa_compress_grad", "input_grad"),
                testing::AllOf(testing::HasSubstr("by tile of 32 token rows"), testing::Not(testing::HasSubstr("sequence -1"))));
}

// One cell has no picture.
TEST(Where, SaysNothingOfASmallCase) {
    EXPECT_EQ(picture("attention{dtype=fp32 q=[9] kv=[3] layout=bshd kv_heads=1 group=1 dim=2 value_dim=2 "
                      "data=zeros seed=0}",
                      {0}),
              "");
}

}  // namespace
}  // namespace attncheck::properties
