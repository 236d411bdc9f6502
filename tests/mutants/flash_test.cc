#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "active_mutant.h"
#include "flash_case.h"
#include "mutant_table.h"

namespace attncheck::mutants {
namespace {

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

/// Every layout with every mode, bias and both dropout states somewhere.
std::vector<FlashCase> plain_cases(std::int32_t dtype, bool strided) {
    std::vector<FlashCase> cases;
    const auto add = [&](FlashCase c) {
        c.dtype = dtype;
        c.strided = strided;
        cases.push_back(c);
    };
    const auto dense = [](std::string layout, std::int64_t batches, std::int64_t q,
                          std::int64_t k) {
        FlashCase c;
        c.layout = std::move(layout);
        c.query_lens.assign(static_cast<std::size_t>(batches), q);
        c.kv_lens.assign(static_cast<std::size_t>(batches), k);
        c.kv_heads = 2, c.group = 2, c.head_dim = 20, c.value_dim = 9;
        return c;
    };
    FlashCase c = dense("BSH", 2, 5, 7);
    add(c);
    c.mode = 3, c.masked = true, c.bias = Bias::row, c.pse_type = 0;
    add(c);
    c = dense("SBH", 3, 9, 6);
    c.mode = 3, c.masked = true, c.dropped = true, c.keep_prob = 0.75, c.bias = Bias::plain;
    add(c);
    c.mode = 1, c.group = 3, c.scale = -0.125;
    add(c);
    c = dense("BSND", 2, 7, 7);
    c.mode = 4, c.masked = true, c.pre = kUnlimited, c.next = -2;
    c.bias = Bias::slopes, c.pse_type = 2, c.query_start = 3, c.key_start = -1;
    add(c);
    c.pse_type = 3, c.mode = 0, c.pre = 3, c.next = 1;
    add(c);
    c = dense("BNSD", 2, 21, 75);
    c.mode = 2, c.masked = true, c.head_dim = 16, c.value_dim = 1;
    add(c);
    c.mode = 6, c.prefix = {54, 70};
    add(c);
    c.mode = 5, c.prefix = {};
    add(c);
    return cases;
}

std::vector<FlashCase> packed_cases(std::int32_t dtype, bool strided) {
    std::vector<FlashCase> cases;
    FlashCase c;
    const auto add = [&] { cases.push_back(c); };
    c.dtype = dtype, c.strided = strided, c.layout = "TND", c.rows_beyond = 2;
    c.query_lens = {3, 0, 5, 2}, c.kv_lens = {4, 3, 6, 0};
    c.kv_heads = 2, c.group = 2, c.head_dim = 24, c.value_dim = 16;
    c.dropped = true, c.keep_prob = 0.5, c.bias = Bias::pairs;
    add();
    c.as_input = true, c.mode = 1, c.masked = true, c.pse_type = 0;
    add();
    c.bias = Bias::none, c.pse_type = 1, c.dropped = false, c.keep_prob = 1;
    c.query_lens = {3, 5}, c.kv_lens = {3, 9}, c.mode = 7, c.pre = 9, c.next = -2;
    add();
    c.query_lens = {3, 5, 4}, c.kv_lens = {4, 5, 4}, c.mode = 8, c.pre = 4, c.next = 1;
    add();
    c.pre = 2, c.next = -1, c.mode = 4, c.as_input = false;
    add();
    c.mode = 3;
    if (dtype == ATTNCHECK_BFLOAT16) c.rope_dim = 8;
    add();
    return cases;
}

std::vector<FlashCase> legal_flash_cases() {
    std::vector<FlashCase> cases;
    for (const std::int32_t dtype : {ATTNCHECK_FLOAT16, ATTNCHECK_BFLOAT16, ATTNCHECK_FLOAT32})
        for (const bool strided : {false, true})
            for (const auto& some : {plain_cases(dtype, strided), packed_cases(dtype, strided)})
                cases.insert(cases.end(), some.begin(), some.end());
    return cases;
}

class FlashMutants : public testing::Test {
protected:
    void SetUp() override { attncheck_mutants_select(nullptr); }
    void TearDown() override { attncheck_mutants_select(nullptr); }
};

// Without a defect the forward agrees with the plain loops, statistics, rows without a visible key
// and rows beyond the last length included.
TEST_F(FlashMutants, CorrectForwardAgreesWithPlainLoops) {
    const std::vector<FlashCase> cases = legal_flash_cases();
    for (std::size_t k = 0; k < cases.size(); ++k)
        EXPECT_EQ(count_flash_forward_errors(cases[k]), 0) << "case " << k;
}

// Without a defect the gradients agree with the plain loops; the output and the statistics are
// those that the call gives.
TEST_F(FlashMutants, CorrectGradientAgreesWithPlainLoops) {
    const std::vector<FlashCase> cases = legal_flash_cases();
    for (std::size_t k = 0; k < cases.size(); ++k)
        EXPECT_EQ(count_flash_gradient_errors(cases[k]), 0) << "case " << k;
}

// The 1024-row form of a bias that depends on i - j only gives what the full one gives.
TEST_F(FlashMutants, CompressedBiasEqualsTheFullOne) {
    constexpr std::int64_t kLength = 1500, kRows = 1024;
    FlashCase c{.dtype = ATTNCHECK_FLOAT32, .query_lens = {kLength}, .kv_lens = {kLength}};
    c.head_dim = c.value_dim = 1, c.mode = 2, c.masked = true;
    FlashCall compressed(c), full(c);
    const auto fill = [&](FlashCall& call, std::int64_t rows) {
        call.pse = {{1, 1, rows, kLength}, ATTNCHECK_FLOAT32, false};
        for (std::int64_t m = 0; m < rows; ++m)
            for (std::int64_t k = 0; k < kLength; ++k)
                call.pse.set(m * kLength + k,
                             static_cast<int>((m + kLength - rows - k) * 37 % 101));
    };
    fill(compressed, kRows);
    fill(full, kLength);
    for (FlashCall* call : {&compressed, &full}) {
        const auto args = call->forward_args();
        ASSERT_EQ(attncheck_flash_attention_score(&args), ATTNCHECK_OK);
    }
    for (std::int64_t i = 0; i < kLength; ++i)
        ASSERT_EQ(compressed.output.get(i), full.output.get(i)) << i;
}

// A NaN value reaches the rows that see it and no other, and a dropped one reaches none.
TEST_F(FlashMutants, NanReachesWhatSeesIt) {
    FlashCase c{.dtype = ATTNCHECK_FLOAT32, .query_lens = {8}, .kv_lens = {8}};
    c.mode = 2, c.masked = true, c.dropped = true;
    FlashCall call(c);
    auto args = call.forward_args();
    static_cast<float*>(args.value.data)[3 * c.value_dim] = std::nanf("");
    ASSERT_EQ(attncheck_flash_attention_score(&args), ATTNCHECK_OK);
    int seen = 0;
    for (std::int64_t i = 0; i < 8; ++i) {
        const int byte = static_cast<int>(call.drop.get(i));  // 8 keys, a byte for each row
        const bool reaches = i >= 3 && (byte >> 3 & 1) != 0;
        EXPECT_EQ(std::isnan(call.output.get(i * c.value_dim)), reaches) << i;
        EXPECT_FALSE(std::isnan(call.output.get(i * c.value_dim + 1))) << i;
        seen += reaches;
    }
    EXPECT_GT(seen, 0);
}

// Without a defect illegal calls get the status of the contract.
TEST_F(FlashMutants, CorrectRulings) {
    FlashCase c{.layout = "TND", .query_lens = {3, 5}, .kv_lens = {4, 6}, .group = 2};
    c.mode = 4, c.masked = true, c.bias = Bias::pairs, c.dropped = true, c.keep_prob = 0.5;
    const auto status = [&](auto change) {
        FlashCall call(c);
        call.prepare_gradient();
        auto args = call.gradient_args();
        change(args);
        return attncheck_flash_attention_score_grad(&args);
    };
    using Args = attncheck_flash_attention_score_grad_args;
    constexpr int kAbsent = ATTNCHECK_ERR_NULLPTR, kInvalid = ATTNCHECK_ERR_INVALID;
    EXPECT_EQ(attncheck_flash_attention_score_grad(nullptr), kAbsent);
    EXPECT_EQ(status([](Args&) {}), ATTNCHECK_OK);
    EXPECT_EQ(status([](Args& a) { a.attention_in.data = nullptr; }), kAbsent);
    EXPECT_EQ(status([](Args& a) { a.dv.data = nullptr, a.query.dtype = 3; }), kAbsent);
    EXPECT_EQ(status([](Args& a) { a.actual_seq_kv_len.values = nullptr; }), kAbsent);
    EXPECT_EQ(status([](Args& a) { a.drop_mask.data = nullptr; }), kAbsent);
    EXPECT_EQ(status([](Args& a) { a.softmax_in_layout = nullptr; }), kAbsent);
    EXPECT_EQ(status([](Args& a) { a.softmax_in_layout = "TND"; }), kInvalid);
    EXPECT_EQ(status([](Args& a) { a.head_num += std::int64_t{1} << 32; }), kInvalid);
    EXPECT_EQ(status([](Args& a) { a.keep_prob = 1e-50; }), kInvalid);
    EXPECT_EQ(status([](Args& a) { a.keep_prob = std::nan(""); }), kInvalid);
    EXPECT_EQ(status([](Args& a) { a.scale_value = std::nan(""); }), ATTNCHECK_OK);
    EXPECT_EQ(status([](Args& a) { a.sparse_mode = 5; }), kInvalid);
    EXPECT_EQ(status([](Args& a) { a.query.shape[0] = INT64_MAX; }), kInvalid);
    EXPECT_EQ(status([](Args& a) { a.pre_tokens = INT64_MIN, a.next_tokens = INT64_MAX; }),
              kInvalid);
    EXPECT_EQ(status([](Args& a) { a.pre_tokens = -3, a.next_tokens = 3; }), ATTNCHECK_OK);
    EXPECT_EQ(status([](Args& a) { a.drop_mask.shape[0] -= 1; }), kInvalid);
    EXPECT_EQ(status([](Args& a) { a.atten_mask.shape[0] = 3072; }), kInvalid);
    EXPECT_EQ(status([](Args& a) { a.pse_shift.shape[0] = 20; }), ATTNCHECK_OK);
    EXPECT_EQ(status([](Args& a) { a.pse_shift.shape[0] = 21; }), kInvalid);
    EXPECT_EQ(status([](Args& a) { a.padding_mask = a.drop_mask; }), kInvalid);
    EXPECT_EQ(status([](Args& a) { a.dk.shape[0] += 1; }), kInvalid);
    EXPECT_EQ(status([](Args& a) { a.query_rope = a.query; }), kAbsent);
}

// The easy defects show on the plain cases or, in the rulings, as an illegal call that is accepted.
TEST_F(FlashMutants, EasyDefectsShow) {
    std::vector<FlashCase> cases = plain_cases(ATTNCHECK_FLOAT16, false);
    const std::vector<FlashCase> packed = packed_cases(ATTNCHECK_FLOAT16, false);
    cases.insert(cases.end(), packed.begin(), packed.end());
    FlashCall mixed((FlashCase{}));
    auto args = mixed.forward_args();
    args.value.dtype = ATTNCHECK_BFLOAT16;
    ASSERT_NE(attncheck_flash_attention_score(&args), ATTNCHECK_OK);
    for (const Mutant& mutant : kFlashMutants) {
        if (mutant.difficulty != Difficulty::easy) continue;
        attncheck_mutants_select(std::string(mutant.id).c_str());
        bool shows = attncheck_flash_attention_score(&args) == ATTNCHECK_OK;
        for (const FlashCase& c : cases)
            shows = shows || (mutant.operators.forward ? count_flash_forward_errors(c)
                                                       : count_flash_gradient_errors(c)) != 0;
        EXPECT_TRUE(shows) << mutant.id;
    }
}

}  // namespace
}  // namespace attncheck::mutants
