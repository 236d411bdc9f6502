#include <gtest/gtest.h>

#include <string>

#include "active_mutant.h"
#include "mutant_table.h"
#include "plain_case.h"

namespace attncheck::mutants {
namespace {

struct ForwardCall {
    Tensor input, weight, output;
    attncheck_nsa_compress_args args{};

    ForwardCall(const PlainCase& c, std::mt19937 random = std::mt19937(7))
        : input(c, {c.tokens, c.heads, c.head_dim}, &random),
          weight(c, {c.block, c.heads}, &random),
          output(c, {c.blocks(), c.heads, c.head_dim}, nullptr) {
        args = {input.view(),
                weight.view(),
                {c.ends.data(), static_cast<std::int64_t>(c.ends.size())},
                "TND",
                c.block,
                c.stride,
                0,
                output.view()};
    }
};

struct GradientCall {
    Tensor output_grad, input, weight, input_grad, weight_grad;
    attncheck_nsa_compress_grad_args args{};

    GradientCall(const PlainCase& c, std::mt19937 random = std::mt19937(7))
        : output_grad(c, {c.blocks(), c.heads, c.head_dim}, &random),
          input(c, {c.tokens, c.heads, c.head_dim}, &random),
          weight(c, {c.block, c.heads}, &random),
          input_grad(c, {c.tokens, c.heads, c.head_dim}, nullptr),
          weight_grad(c, {c.block, c.heads}, nullptr) {
        args = {output_grad.view(),
                input.view(),
                weight.view(),
                {c.ends.data(), static_cast<std::int64_t>(c.ends.size())},
                c.block,
                c.stride,
                0,
                "TND",
                input_grad.view(),
                weight_grad.view()};
    }
};

/// Elements of Y, dX and dW that differ from the plain loops; -1 if a call is rejected.
int count_forward_errors(const PlainCase& c) {
    ForwardCall call(c);
    if (attncheck_nsa_compress(&call.args) != ATTNCHECK_OK) return -1;
    int errors = 0;
    for_each_block(c, [&](std::int64_t row, std::int64_t first) {
        for (std::int64_t n = 0; n < c.heads; ++n)
            for (std::int64_t k = 0; k < c.head_dim; ++k) {
                double sum = 0;
                for (std::int64_t r = 0; r < c.block; ++r)
                    sum += call.input.at(first + r, n, k) * call.weight.at(r, n);
                errors +=
                    !is_close(c.fp16, sum, call.output.at(row, n, k), static_cast<double>(c.block));
            }
    });
    return errors;
}

int count_gradient_errors(const PlainCase& c) {
    GradientCall call(c);
    if (attncheck_nsa_compress_grad(&call.args) != ATTNCHECK_OK) return -1;
    std::vector<double> dx(static_cast<std::size_t>(c.tokens * c.heads * c.head_dim));
    std::vector<double> dw(static_cast<std::size_t>(c.block * c.heads));
    for_each_block(c, [&](std::int64_t row, std::int64_t first) {
        for (std::int64_t r = 0; r < c.block; ++r)
            for (std::int64_t n = 0; n < c.heads; ++n)
                for (std::int64_t k = 0; k < c.head_dim; ++k) {
                    const double dy = call.output_grad.at(row, n, k);
                    dx[static_cast<std::size_t>(((first + r) * c.heads + n) * c.head_dim + k)] +=
                        dy * call.weight.at(r, n);
                    dw[static_cast<std::size_t>(r * c.heads + n)] +=
                        dy * call.input.at(first + r, n, k);
                }
    });
    int errors = 0;
    const double terms = static_cast<double>(c.blocks() * c.head_dim);
    for (std::int64_t n = 0; n < c.heads; ++n) {
        for (std::int64_t t = 0; t < c.tokens; ++t)
            for (std::int64_t k = 0; k < c.head_dim; ++k)
                errors += !is_close(
                    c.fp16, dx[static_cast<std::size_t>((t * c.heads + n) * c.head_dim + k)],
                    call.input_grad.at(t, n, k), 8);
        for (std::int64_t r = 0; r < c.block; ++r)
            errors += !is_close(c.fp16, dw[static_cast<std::size_t>(r * c.heads + n)],
                                call.weight_grad.at(r, n), terms);
    }
    return errors;
}

std::vector<PlainCase> legal_cases() {
    std::vector<PlainCase> cases;
    for (const bool fp16 : {true, false})
        for (const bool strided : {true, false}) {
            cases.push_back({fp16, {64}, 64, 2, 32, 32, 16, strided});
            cases.push_back({fp16, {100, 260}, 260, 3, 80, 48, 32, strided});
            cases.push_back({fp16, {0, 40, 40, 60, 200, 200}, 230, 5, 16, 32, 16, strided});
            cases.push_back({fp16, {300, 310, 320, 700}, 700, 1, 192, 128, 16, strided});
            cases.push_back({fp16, {7, 20}, 25, 2, 16, 32, 16, strided});
        }
    return cases;
}

class Mutants : public testing::Test {
protected:
    void SetUp() override { attncheck_mutants_select(nullptr); }
    void TearDown() override { attncheck_mutants_select(nullptr); }
};

// Without a defect the forward agrees with the plain loops; block == stride is legal there.
TEST_F(Mutants, CorrectForwardAgreesWithPlainLoops) {
    std::vector<PlainCase> cases = legal_cases();
    cases.push_back({true, {64, 129}, 130, 2, 64, 16, 16, false});
    for (std::size_t i = 0; i < cases.size(); ++i)
        EXPECT_EQ(count_forward_errors(cases[i]), 0) << "case " << i;
}

// Without a defect both gradients agree with the plain loops, rows that no block covers included.
TEST_F(Mutants, CorrectGradientAgreesWithPlainLoops) {
    const std::vector<PlainCase> cases = legal_cases();
    for (std::size_t i = 0; i < cases.size(); ++i)
        EXPECT_EQ(count_gradient_errors(cases[i]), 0) << "case " << i;
}

// The gradient takes absent lengths as one sequence and an absent layout as "TND"; the forward
// rejects both.
TEST_F(Mutants, AbsentLengthsAndLayout) {
    const PlainCase c{true, {64}, 64, 2, 32, 32, 16, false};
    GradientCall gradient(c);
    gradient.args.act_seq_len = {nullptr, 0};
    gradient.args.layout = nullptr;
    EXPECT_EQ(attncheck_nsa_compress_grad(&gradient.args), ATTNCHECK_OK);
    ForwardCall forward(c);
    forward.args.act_seq_len = {nullptr, 0};
    EXPECT_EQ(attncheck_nsa_compress(&forward.args), ATTNCHECK_ERR_NULLPTR);
    forward = ForwardCall(c);
    forward.args.layout = nullptr;
    EXPECT_EQ(attncheck_nsa_compress(&forward.args), ATTNCHECK_ERR_NULLPTR);
}

// Without a defect illegal calls get the status of the contract.
TEST_F(Mutants, CorrectRulings) {
    const PlainCase c{true, {40, 64}, 64, 2, 32, 32, 16, false};
    const auto status = [&](auto change) {
        GradientCall call(c);
        change(call.args);
        return attncheck_nsa_compress_grad(&call.args);
    };
    using Args = attncheck_nsa_compress_grad_args;
    EXPECT_EQ(attncheck_nsa_compress_grad(nullptr), ATTNCHECK_ERR_NULLPTR);
    EXPECT_EQ(status([](Args& a) { a.weight.data = nullptr; }), ATTNCHECK_ERR_NULLPTR);
    EXPECT_EQ(status([](Args& a) {
                  a.weight_grad.data = nullptr;
                  a.input.dtype = 0;
              }),
              ATTNCHECK_ERR_NULLPTR);
    EXPECT_EQ(status([](Args& a) { a.act_seq_len.values = nullptr; }), ATTNCHECK_ERR_NULLPTR);
    EXPECT_EQ(status([](Args& a) { a.act_seq_len.size = 0; }), ATTNCHECK_ERR_INVALID);
    EXPECT_EQ(status([](Args& a) { a.act_seq_len.size = -1; }), ATTNCHECK_ERR_INVALID);
    EXPECT_EQ(status([](Args& a) { a.compress_stride = 32; }), ATTNCHECK_ERR_INVALID);
    EXPECT_EQ(status([](Args& a) { a.compress_stride = 0; }), ATTNCHECK_ERR_INVALID);
    EXPECT_EQ(status([](Args& a) { a.layout = "tnd"; }), ATTNCHECK_ERR_INVALID);
    EXPECT_EQ(status([](Args& a) { a.act_seq_len_type = 1; }), ATTNCHECK_ERR_INVALID);
    EXPECT_EQ(status([](Args& a) { a.input.shape[0] = INT64_MAX; }), ATTNCHECK_ERR_INVALID);
    for (const std::vector<std::int64_t>& ends :
         {std::vector<std::int64_t>{-2, 64}, {64, 40}, {40, 65}})
        EXPECT_EQ(status([&](Args& a) { a.act_seq_len.values = ends.data(); }),
                  ATTNCHECK_ERR_INVALID);
}

// Every line of the table is asked for by the code; the converse is checked when the code is
// compiled.
TEST_F(Mutants, EveryIdOfTheTableIsUsed) {
    for (int i = 0; i < kMutantCount; ++i)
        EXPECT_TRUE(attncheck_mutants_is_used(i)) << kMutants[static_cast<std::size_t>(i)].id;
}

// The choice shows in the name; an unknown id makes the library unusable.
TEST_F(Mutants, ChoiceShowsInTheName) {
    EXPECT_EQ(attncheck_abi_version(), static_cast<std::uint32_t>(ATTNCHECK_ABI_VERSION));
    attncheck_mutants_select("NCG-05");
    EXPECT_STREQ(attncheck_candidate_name(), "attncheck mutant NCG-05");
    EXPECT_EQ(attncheck_abi_version(), static_cast<std::uint32_t>(ATTNCHECK_ABI_VERSION));
    attncheck_mutants_select("NC-99");
    EXPECT_STREQ(attncheck_candidate_name(), "unknown mutant NC-99");
    EXPECT_EQ(attncheck_abi_version(), 0u);
}

// The easy defects show on the plain cases, so the switch does reach the computations.
TEST_F(Mutants, EasyDefectsShow) {
    for (const Mutant& mutant : kCompressMutants) {
        if (mutant.difficulty != Difficulty::easy) continue;
        attncheck_mutants_select(std::string(mutant.id).c_str());
        int errors = 0;
        for (const PlainCase& c : legal_cases())
            errors += mutant.operators.forward ? count_forward_errors(c) : count_gradient_errors(c);
        EXPECT_GT(errors, 0) << mutant.id;
    }
}

}  // namespace
}  // namespace attncheck::mutants
