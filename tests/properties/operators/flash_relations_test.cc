// What relations of flash attention hand over to a kernel.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "attncheck/candidate.h"
#include "properties/candidate/candidate.h"
#include "properties/judge/context.h"
#include "properties/operators/catalogue.h"
#include "ref/numbers/dtype.h"
#include "tests/properties/case/case_line.h"

namespace attncheck::properties {
namespace {

/// A gradient that keeps what it is given, but for calls with a written mask, which it may decline; its results are zeros.
class KeepsCalls : public Candidate {
public:
    explicit KeepsCalls(bool takes_masks) : takes_masks_(takes_masks) {}
    const CandidateInfo& info() const override { return info_; }
    CallResult run(const Call& call, const RunOptions&) override {
        CallResult result;
        if (!takes_masks_ && call.tensor("atten_mask").present) {
            result.status = ATTNCHECK_DECLINED;
            return result;
        }
        calls_.push_back(call);
        result.outputs.resize(call.tensors.size());
        for (std::size_t i = 0; i < call.tensors.size(); ++i)
            if (call.tensors[i].output) result.outputs[i].resize(call.tensors[i].elements());
        return result;
    }
    std::vector<CallResult> run_together(std::span<const Call* const>, int) override { return {}; }
    void restart() override {}
    void limit_time(std::chrono::duration<double>) override {}

    std::vector<Call> calls_;

private:
    bool takes_masks_;
    CandidateInfo info_;
};

std::vector<double> numbers_of(const Call& call, const char* name) {
    const Tensor& tensor = call.tensor(name);
    std::vector<double> out;
    for (const std::uint32_t bits : tensor.bits) out.push_back(ref::decode(tensor.type(), bits));
    return out;
}

// Without the mask of the case the maximum of a row is that of all keys.
TEST(FlashRelations, StatisticsFollowAMaskThatIsLeftOut) {
    const Operator& op = *find_operator("flash_attention_score_grad");
    const Spec spec = spec_of(
        "flash_attention_score_grad{dtype=fp16 q=[3] kv=[3] layout=BSH kv_heads=1 group=1 dim=1 value_dim=1 mask=bool "
        "sparse=2 scale=one data=zeros seed=0 set=[query[0,0,0]=1,query[1,0,0]=1,query[2,0,0]=1,key[1,0,0]=1,key[2,0,0]=2]}");
    KeepsCalls candidate(false);
    PropertyContext context{candidate, {}};
    op.property("key_permutation")->check(spec, context);
    ASSERT_EQ(candidate.calls_.size(), 2u);
    for (const Call& call : candidate.calls_) {
        const std::vector<double> query = numbers_of(call, "query"), key = numbers_of(call, "key"),
                                  row_max = numbers_of(call, "softmax_max");
        for (std::size_t row = 0; row < query.size(); ++row) {
            double largest = -INFINITY;
            for (const double k : key) largest = std::max(largest, query[row] * k);
            EXPECT_NEAR(row_max[8 * row], largest, 1e-5) << row;
        }
    }
}

// ALiBi as numbers of the input type: the maximum of a row is that of the rounded ones.
TEST(FlashRelations, StatisticsFollowABiasThatIsRounded) {
    const Operator& op = *find_operator("flash_attention_score_grad");
    const Spec spec = spec_of(
        "flash_attention_score_grad{dtype=bf16 q=[11] kv=[11] layout=BSH kv_heads=1 group=1 dim=1 value_dim=1 pse=slopes "
        "pse_type=2 data=zeros seed=0 set=[pse_shift[0]=-0.3588595390319824]}");
    KeepsCalls candidate(true);
    PropertyContext context{candidate, {}};
    op.property("expanded_bias")->check(spec, context);
    ASSERT_EQ(candidate.calls_.size(), 2u);
    const std::vector<double> bias = numbers_of(candidate.calls_[1], "pse_shift"),
                              row_max = numbers_of(candidate.calls_[1], "softmax_max");
    ASSERT_EQ(bias.size(), 121u);
    for (std::size_t row = 0; row < 11; ++row)
        EXPECT_EQ(row_max[8 * row], *std::max_element(bias.begin() + 11 * static_cast<std::ptrdiff_t>(row),
                                                      bias.begin() + 11 * static_cast<std::ptrdiff_t>(row + 1)))
            << row;
}

}  // namespace
}  // namespace attncheck::properties
