// The built-in AttentionMerge against plain loops in binary64, in dense and odd strides.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "attncheck/candidate.h"
#include "impl/arguments/rejection.h"

namespace attncheck::impl {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// [P,R,H,Dv] = [3,2,2,5], with the strides a test asks for; part 1 of row 0, head 0 is dead.
struct MergeCall {
    static constexpr std::int64_t kP = 3, kR = 2, kH = 2, kD = 5;
    std::vector<float> parts = std::vector<float>(200, NAN), lses = std::vector<float>(40, NAN);
    std::vector<float> out = std::vector<float>(80, 7), lse = std::vector<float>(20, 7);
    attncheck_attention_merge_args args{};

    explicit MergeCall(std::int64_t step) {
        args.parts = {parts.data(), ATTNCHECK_FLOAT32, 4, {kP, kR, kH, kD},
                      {kR * kH * kD * step, kH * kD * step, kD * step, step}};
        args.lses = {lses.data(), ATTNCHECK_FLOAT32, 3, {kP, kR, kH},
                     {kR * kH * step, kH * step, step}};
        args.out = {out.data(), ATTNCHECK_FLOAT32, 3, {kR, kH, kD},
                    {kH * kD * step, kD * step, step}};
        args.lse = {lse.data(), ATTNCHECK_FLOAT32, 2, {kR, kH}, {kH * step, step}};
        for (std::int64_t p = 0; p < kP; ++p)
            for (std::int64_t row = 0; row < kR * kH; ++row) {
                lse_at(p, row) = p == 1 && row == 0 ? -kInfinity : static_cast<float>(p - row);
                for (std::int64_t d = 0; d < kD; ++d)
                    part_at(p, row, d) =
                        p == 1 && row == 0 ? NAN : static_cast<float>(d + 10 * p - row);
            }
    }
    float& lse_at(std::int64_t p, std::int64_t row) {
        return lses[static_cast<std::size_t>((p * kR * kH + row) * args.lses.strides[2])];
    }
    float& part_at(std::int64_t p, std::int64_t row, std::int64_t d) {
        return parts[static_cast<std::size_t>(((p * kR * kH + row) * kD + d) *
                                              args.parts.strides[3])];
    }
};

TEST(AttentionMergeKernel, AgreesWithPlainLoops) {
    for (const std::int64_t step : {1, 2}) {
        MergeCall call(step);
        ASSERT_EQ(attncheck_attention_merge(&call.args), ATTNCHECK_OK);
        for (std::int64_t row = 0; row < 4; ++row) {
            double sum = 0;
            for (std::int64_t p = 0; p < 3; ++p) sum += std::exp(double{call.lse_at(p, row)});
            EXPECT_NEAR(call.lse[static_cast<std::size_t>(row * step)], std::log(sum), 1e-5);
            for (std::int64_t d = 0; d < 5; ++d) {
                double wanted = 0;
                for (std::int64_t p = 0; p < 3; ++p)
                    if (call.lse_at(p, row) != -kInfinity)
                        wanted += std::exp(double{call.lse_at(p, row)}) / sum *
                                  call.part_at(p, row, d);
                EXPECT_NEAR(call.out[static_cast<std::size_t>((row * 5 + d) * step)], wanted, 1e-4)
                    << row << " " << d;
            }
        }
        if (step == 2) {
            EXPECT_EQ(call.out[1], 7);  // between the elements
        }
    }
}

TEST(AttentionMergeKernel, RowWithoutPartsAndAbsentLse) {
    MergeCall call(1);
    for (std::int64_t p = 0; p < 3; ++p) call.lse_at(p, 2) = -kInfinity;
    ASSERT_EQ(attncheck_attention_merge(&call.args), ATTNCHECK_OK);
    EXPECT_EQ(call.lse[2], -kInfinity);
    EXPECT_EQ(call.out[10], 0);
    call.args.lse = {};
    EXPECT_EQ(attncheck_attention_merge(&call.args), ATTNCHECK_OK);
}

TEST(AttentionMergeKernel, RejectionsNameTheParameter) {
    const auto rejected = [](auto change) {
        MergeCall call(1);
        change(call.args);
        EXPECT_NE(attncheck_attention_merge(&call.args), ATTNCHECK_OK);
        EXPECT_EQ(call.out[0], 7);
        return last_error_message().substr(0, last_error_message().find(' '));
    };
    EXPECT_EQ(rejected([](auto& a) { a.parts.data = nullptr; }), "parts");
    EXPECT_EQ(rejected([](auto& a) { a.lses.dtype = ATTNCHECK_FLOAT16; }), "lses");
    EXPECT_EQ(rejected([](auto& a) { a.out.shape[2] = 4; }), "out");
    EXPECT_EQ(rejected([](auto& a) { a.lse.rank = -1; }), "lse");
    EXPECT_EQ(attncheck_attention_merge(nullptr), ATTNCHECK_ERR_NULLPTR);
}

}  // namespace
}  // namespace attncheck::impl
