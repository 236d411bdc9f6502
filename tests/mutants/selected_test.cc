#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "active_mutant.h"
#include "mutant_table.h"
#include "selected_case.h"

namespace attncheck::mutants {
namespace {

std::vector<SelectedCase> legal_cases() {
    std::vector<SelectedCase> cases;
    for (const bool fp16 : {true, false})
        for (const bool strided : {true, false}) {
            cases.push_back({.fp16 = fp16,
                             .strided = strided,
                             .query_ends = {3, 3, 9},
                             .key_ends = {64, 112, 192},
                             .query_tokens = 11,
                             .key_tokens = 197,
                             .kv_heads = 2,
                             .group = 2,
                             .head_dim = 192,
                             .count = 3});
            cases.push_back({.fp16 = fp16,
                             .strided = strided,
                             .query_ends = {0, 9, 13, 16},
                             .key_ends = {0, 128, 128, 192},
                             .query_tokens = 16,
                             .key_tokens = 192,
                             .group = 3,
                             .block = 32,
                             .count = 2,
                             .mask = MaskKind::mode_2,
                             .scale = -0.0625});
            cases.push_back({.fp16 = fp16,
                             .strided = strided,
                             .query_ends = {4, 10},
                             .key_ends = {48, 192},
                             .query_tokens = 10,
                             .key_tokens = 192,
                             .kv_heads = 3,
                             .block = 48,
                             .mask = MaskKind::mode_0});
            cases.push_back({.fp16 = fp16,
                             .strided = strided,
                             .query_ends = {5},
                             .key_ends = {32},
                             .query_tokens = 5,
                             .key_tokens = 33,
                             .mask = MaskKind::mode_2_without_mask});
            cases.push_back({.fp16 = fp16,
                             .strided = strided,
                             .query_ends = {90},
                             .key_ends = {240},
                             .query_tokens = 90,
                             .key_tokens = 240,
                             .group = 2,
                             .head_dim = 192,
                             .value_dim = 192,
                             .block = 80,
                             .count = 2,
                             .mask = MaskKind::mode_2});
        }
    return cases;
}

class SelectedMutants : public testing::Test {
protected:
    void SetUp() override { attncheck_mutants_select(nullptr); }
    void TearDown() override { attncheck_mutants_select(nullptr); }
};

// Without a defect the forward agrees with the plain loops, statistics, rows without a visible key
// and rows beyond the last length included.
TEST_F(SelectedMutants, CorrectForwardAgreesWithPlainLoops) {
    const std::vector<SelectedCase> cases = legal_cases();
    for (std::size_t i = 0; i < cases.size(); ++i)
        EXPECT_EQ(count_selected_forward_errors(cases[i]), 0) << "case " << i;
}

// Without a defect the gradients agree with the plain loops; the output and the statistics are
// those that the call gives.
TEST_F(SelectedMutants, CorrectGradientAgreesWithPlainLoops) {
    const std::vector<SelectedCase> cases = legal_cases();
    for (std::size_t i = 0; i < cases.size(); ++i)
        EXPECT_EQ(count_selected_gradient_errors(cases[i]), 0) << "case " << i;
}

// A NaN value reaches the rows that see it and no other; a NaN query reaches its row's statistics.
TEST_F(SelectedMutants, NanReachesWhatSeesIt) {
    const SelectedCase c{.query_ends = {20},
                         .key_ends = {32},
                         .query_tokens = 20,
                         .key_tokens = 32,
                         .count = 2,
                         .mask = MaskKind::mode_2};
    SelectedCall call(c);
    for (std::int64_t t = 0; t < 20; ++t)
        for (std::int64_t i = 0; i < 2; ++i) call.topk.at(t, 0, i) = static_cast<int>(i);
    call.value.at(10, 0, 5) = call.query.at(4, 0, 0) = call.key.at(31, 0, 0) = 0x7e00;
    const auto args = call.forward_args();
    ASSERT_EQ(attncheck_nsa_selected_attention(&args), ATTNCHECK_OK);
    for (std::int64_t t = 0; t < 20; ++t) {
        const auto is_nan = [&](std::int64_t channel) {
            return (call.output.at(t, 0, channel) & 0x7fff) > 0x7c00;
        };
        EXPECT_EQ(is_nan(5), t == 4 || t >= 10) << t;
        EXPECT_EQ(is_nan(6), t == 4) << t;
        EXPECT_EQ(std::isnan(call.row_max.at(t, 0)), t == 4) << t;
        EXPECT_EQ(std::isnan(call.row_sum.at(t, 0)), t == 4) << t;
    }
}

// Without a defect illegal calls get the status of the contract.
TEST_F(SelectedMutants, CorrectRulings) {
    const SelectedCase c{.query_ends = {3, 7},
                         .key_ends = {32, 96},
                         .query_tokens = 7,
                         .key_tokens = 96,
                         .group = 2,
                         .count = 2,
                         .mask = MaskKind::mode_0};
    using Args = attncheck_nsa_selected_attention_grad_args;
    SelectedCall call(c);
    const auto status = [&](auto change) {
        Args args = call.gradient_args();
        change(args);
        return attncheck_nsa_selected_attention_grad(&args);
    };
    const std::vector<std::int64_t> decreasing{32, 16}, beyond{32, 112}, ragged{32, 95};
    EXPECT_EQ(status([](Args&) {}), ATTNCHECK_OK);
    EXPECT_EQ(attncheck_nsa_selected_attention_grad(nullptr), ATTNCHECK_ERR_NULLPTR);
    EXPECT_EQ(status([](Args& a) { a.attention_out.data = nullptr; }), ATTNCHECK_ERR_NULLPTR);
    EXPECT_EQ(status([](Args& a) { a.dv.data = nullptr, a.query.dtype = 0; }),
              ATTNCHECK_ERR_NULLPTR);
    EXPECT_EQ(status([](Args& a) { a.actual_seq_kv_len = {nullptr, 0}; }), ATTNCHECK_ERR_NULLPTR);
    EXPECT_EQ(status([](Args& a) { a.input_layout = nullptr; }), ATTNCHECK_ERR_NULLPTR);
    EXPECT_EQ(status([](Args& a) { a.input_layout = "tnd"; }), ATTNCHECK_ERR_INVALID);
    EXPECT_EQ(status([](Args& a) { a.query.rank = 9; }), ATTNCHECK_ERR_INVALID);
    EXPECT_EQ(status([](Args& a) { a.topk_indices.dtype = 9; }), ATTNCHECK_ERR_INVALID);
    EXPECT_EQ(status([](Args& a) { a.scale_value = 1e39; }), ATTNCHECK_ERR_INVALID);
    EXPECT_EQ(status([](Args& a) { a.scale_value = 0; }), ATTNCHECK_OK);
    EXPECT_EQ(status([](Args& a) { a.head_num = 1; }), ATTNCHECK_ERR_INVALID);
    EXPECT_EQ(status([](Args& a) { a.sparse_mode = 1; }), ATTNCHECK_ERR_INVALID);
    EXPECT_EQ(status([](Args& a) { a.selected_block_size = 0; }), ATTNCHECK_ERR_INVALID);
    EXPECT_EQ(status([](Args& a) { a.query.shape[0] = INT64_MAX; }), ATTNCHECK_ERR_INVALID);
    EXPECT_EQ(status([](Args& a) { a.actual_seq_q_len.size = 1; }), ATTNCHECK_ERR_INVALID);
    for (const auto* ends : {&decreasing, &beyond, &ragged})
        EXPECT_EQ(status([&](Args& a) { a.actual_seq_kv_len.values = ends->data(); }),
                  ATTNCHECK_ERR_INVALID);
    EXPECT_EQ(status([](Args& a) { a.atten_mask.shape[0] = 3; }), ATTNCHECK_ERR_INVALID);
    EXPECT_EQ(status([](Args& a) { a.atten_mask.shape[0] = 3, a.sparse_mode = 2; }), ATTNCHECK_OK);
    EXPECT_EQ(status([](Args& a) { a.dk.shape[2] = 192; }), ATTNCHECK_ERR_INVALID);
    for (const int entry : {-1, 2}) {  // the first sequence has two blocks, the second has four
        call.topk.at(2, 0, 1) = entry;
        EXPECT_EQ(status([](Args&) {}), ATTNCHECK_ERR_INVALID);
    }
}

// The easy defects show on the plain cases or, in the rulings, on a group of 33 heads.
TEST_F(SelectedMutants, EasyDefectsShow) {
    const SelectedCase crowded{
        .query_ends = {1}, .key_ends = {16}, .query_tokens = 1, .key_tokens = 16, .group = 33};
    EXPECT_EQ(count_selected_forward_errors(crowded), -1);
    for (const Mutant& mutant : kSelectedMutants) {
        if (mutant.difficulty != Difficulty::easy) continue;
        attncheck_mutants_select(std::string(mutant.id).c_str());
        int errors = count_selected_forward_errors(crowded) + 1;
        for (const SelectedCase& c : legal_cases())
            errors += mutant.operators.forward ? count_selected_forward_errors(c)
                                               : count_selected_gradient_errors(c);
        EXPECT_GT(errors, 0) << mutant.id;
    }
}

}  // namespace
}  // namespace attncheck::mutants
