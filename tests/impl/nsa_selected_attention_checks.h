#ifndef ATTNCHECK_TESTS_IMPL_NSA_SELECTED_ATTENTION_CHECKS_H
#define ATTNCHECK_TESTS_IMPL_NSA_SELECTED_ATTENTION_CHECKS_H

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <tuple>
#include <vector>

#include "impl/operators/nsa_selected_attention/nsa_selected_attention.h"
#include "nsa_selected_attention_problem.h"

// Calls of selected attention on a problem and what is demanded of their results.
namespace attncheck::impl {

inline constexpr float kFloatMax = std::numeric_limits<float>::max();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

// fp32 sums of some hundred terms and an exponential: a few hundred times 2^-24 of the sum of the
// absolute terms. Far below anything that a wrong pair, weight or statistic would change.
inline constexpr double kSumError = 4e-5;

// One rounding to the output format, as a part of the result.
inline double rounding(HalfFormat format) {
    return format == HalfFormat::kFp16 ? 0x1p-11 * 1.01 : 0x1p-8 * 1.01;
}

// Of a weight: products of bf16 pairs take P and dS rounded to bf16 (the class of rounding that the
// implementation declares, p=half ds=half).
inline double weight_roundoff(HalfFormat format, const AttentionKernels& kernels) {
    return kernels.bf16_dot != nullptr && format == HalfFormat::kBf16 ? 0x1p-8 : 0.0;
}

// Written so that NaN fails.
inline void expect_near(SelectedProblem& p, HalfTensor& actual, SumTensor& wanted, const char* name,
                        const AttentionKernels& kernels = default_attention_kernels()) {
    for (std::int64_t i = 0; i < actual.shape[0]; ++i) {
        for (std::int64_t j = 0; j < actual.shape[1]; ++j) {
            for (std::int64_t k = 0; k < actual.shape[2]; ++k) {
                const Sum& sum = wanted.at(i, j, k);
                const double got = p.number(actual, i, j, k);
                // 2^-24: a subnormal fp16 result is a multiple of it.
                const double allowed = rounding(p.format) * std::abs(sum.value) +
                                       kSumError * sum.size +
                                       weight_roundoff(p.format, kernels) * sum.weighted +
                                       (p.format == HalfFormat::kFp16 ? 0x1p-24 : 0.0);
                ASSERT_TRUE(std::abs(got - sum.value) <= allowed)
                    << name << "[" << i << "," << j << "," << k << "]: " << got << ", expected "
                    << sum.value << " within " << allowed;
                if (sum.size == 0) {
                    ASSERT_EQ(actual.at(i, j, k), 0) << name << ": not +0";
                }
            }
        }
    }
}

inline void expect_statistics(SelectedProblem& p, const ExpectedForward& e) {
    for (std::int64_t t = 0; t < p.shape.queries(); ++t) {
        for (std::int64_t head = 0; head < p.shape.heads(); ++head) {
            const auto row = static_cast<std::size_t>(t * p.shape.heads() + head);
            const bool in_sequence = t < p.query_ends.back();
            for (std::int64_t copy = 0; copy < 8; ++copy) {
                const float row_max = p.row_max.at(t, head, copy),
                            row_sum = p.row_sum.at(t, head, copy);
                if (e.row_sum[row] == 0) {
                    ASSERT_EQ(row_max, in_sequence ? -kFloatMax : 0.0f) << t;
                    ASSERT_EQ(row_sum, in_sequence ? kFloatMax : 0.0f) << t;
                    continue;
                }
                ASSERT_TRUE(std::abs(row_max - e.row_max[row]) <=
                            1e-5 * (1 + std::abs(e.row_max[row])))
                    << row_max << " " << e.row_max[row];
                ASSERT_TRUE(std::abs(row_sum - e.row_sum[row]) <= kSumError * e.row_sum[row])
                    << row_sum << " " << e.row_sum[row];
            }
        }
    }
}

inline void forward(SelectedProblem& p) {
    const auto args = p.forward_args();
    ASSERT_EQ(attncheck_nsa_selected_attention(&args), ATTNCHECK_OK);
}

inline void gradient(SelectedProblem& p) {
    const auto args = p.gradient_args();
    ASSERT_EQ(attncheck_nsa_selected_attention_grad(&args), ATTNCHECK_OK);
}

inline void run(SelectedProblem& p) {
    forward(p);
    gradient(p);
}

inline void run_with(SelectedProblem& p, const AttentionKernels& kernels) {
    nsa_selected_attention(p.forward_args(), kernels);
    nsa_selected_attention_grad(p.gradient_args(), kernels);
}

inline void expect_right(SelectedProblem& p,
                         const AttentionKernels& kernels = default_attention_kernels()) {
    ExpectedForward e = expected_forward(p);
    expect_near(p, p.output, e.output, "attention_out", kernels);
    expect_statistics(p, e);
    ExpectedGradient g = expected_gradient(p);
    expect_near(p, p.dq, g.dq, "dq", kernels);
    expect_near(p, p.dk, g.dk, "dk", kernels);
    expect_near(p, p.dv, g.dv, "dv", kernels);
}

struct Bits {
    std::vector<std::uint16_t> output, dq, dk, dv;
    std::vector<std::uint32_t> row_max, row_sum;
    bool operator==(const Bits&) const = default;

    explicit Bits(SelectedProblem& p)
        : output(p.output.logical()), dq(p.dq.logical()), dk(p.dk.logical()), dv(p.dv.logical()) {
        for (const float value : p.row_max.logical())
            row_max.push_back(std::bit_cast<std::uint32_t>(value));
        for (const float value : p.row_sum.logical())
            row_sum.push_back(std::bit_cast<std::uint32_t>(value));
    }
};

// The visible pairs as sets, so that a test can ask what depends on what.
struct Pairs {
    std::set<std::tuple<std::int64_t, std::int64_t, std::int64_t>> all;
    explicit Pairs(SelectedProblem& p) {
        p.for_each_pair(
            [&](std::int64_t t, std::int64_t n, std::int64_t key) { all.insert({t, n, key}); });
    }
    bool sees(std::int64_t t, std::int64_t n, std::int64_t key) const {
        return all.contains({t, n, key});
    }
    // Some query that sees `key` sees `other` too.
    bool share_query(std::int64_t n, std::int64_t key, std::int64_t other) const {
        return std::any_of(all.begin(), all.end(), [&](const auto& pair) {
            return std::get<1>(pair) == n && std::get<2>(pair) == key &&
                   sees(std::get<0>(pair), n, other);
        });
    }
};

}  // namespace attncheck::impl

#endif  // ATTNCHECK_TESTS_IMPL_NSA_SELECTED_ATTENTION_CHECKS_H
