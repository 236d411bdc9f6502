// The example of the NsaCompressGrad document with real half-precision ones: cumulative lengths {0,
// 128, 272}, block 32, stride 16. Its results can be computed by hand and must be exact to the last
// bit.
#include <gtest/gtest.h>

#include "properties/operators/catalogue.h"
#include "properties/candidate/installation.h"
#include "properties/candidate/worker_candidate.h"

namespace attncheck::properties {
namespace {

class DocumentExample : public testing::TestWithParam<const char*> {
protected:
    CallResult run(const std::string& op) {
        const Spec spec =
            parse(op + "{dtype=" + GetParam() +
                      " seq=[0,128,144] heads=128 dim=64 block=32 stride=16 data=ones seed=0}",
                  schemas());
        call = find_operator(op)->build(spec);
        WorkerOptions worker;
        worker.library = find_builtin_library();
        return open_worker_candidate(worker)->run(call, {});
    }
    std::uint32_t bits(double value) const { return ref::encode(call.tensors[0].type(), value); }
    Call call;
};

TEST_P(DocumentExample, HasFifteenBlocksOfSumThirtyTwo) {
    const CallResult result = run("nsa_compress");
    ASSERT_TRUE(result.ok()) << result.detail;
    ASSERT_EQ(call.tensor("output").shape, (std::vector<std::int64_t>{15, 128, 64}));
    for (const auto element : result.outputs[2]) ASSERT_EQ(element, bits(32));
}

TEST_P(DocumentExample, GradientCountsTheWindowsOfEachToken) {
    const CallResult result = run("nsa_compress_grad");
    ASSERT_TRUE(result.ok()) << result.detail;
    const auto& input_grad = result.outputs[3];
    ASSERT_EQ(input_grad.size(), 272u * 128 * 64);
    for (std::size_t k = 0; k < input_grad.size(); ++k) {
        const std::size_t token = k / (128 * 64), position = token < 128 ? token : token - 128,
                          length = token < 128 ? 128 : 144;
        // One window covers the first and the last 16 tokens of a sequence, two cover the others.
        ASSERT_EQ(input_grad[k], bits(position < 16 || position >= length - 16 ? 1 : 2))
            << "token " << token;
    }
    for (const auto element : result.outputs[4]) ASSERT_EQ(element, bits(15 * 64));
}

INSTANTIATE_TEST_SUITE_P(BothTypes, DocumentExample, testing::Values("fp16", "bf16"),
                         [](const auto& parameter) {
                             return std::string(parameter.param) == "fp16" ? "Fp16" : "Bf16";
                         });

}  // namespace
}  // namespace attncheck::properties
