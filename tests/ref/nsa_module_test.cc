// The composed forward and its chained gradient against exact differentiation, and the end-to-end
// bound against a chain that stores every intermediate tensor.
#include "ref/operators/nsa_module.h"

#include <gtest/gtest.h>

#include <complex>
#include <random>

#include "ref/numbers/dual.h"
#include "ref/operators/nsa_module_bound.h"

namespace attncheck::ref {
namespace {

using Complex = std::complex<double>;

/// A random problem with short sequences, a block listed twice and rows beyond the last sequence.
struct Problem {
    NsaModuleShape shape;
    bool tied;
    std::vector<std::int64_t> topk;
    /// query, three keys, three values, two weights, gate logits; tied keys are one tensor.
    std::array<std::vector<double>, 10> tensors;
    std::vector<double> output_grad;

    Problem(bool is_tied, unsigned seed, Dtype dtype = Dtype::fp32) : tied(is_tied) {
        shape.lengths = {9, 0, 2, 7};
        shape.tokens = 20;
        shape.query_heads = 4;
        shape.kv_heads = 2;
        shape.head_dim = 5;
        shape.value_dim = 3;
        shape.block = 3;
        shape.stride = 2;
        shape.select_block = 4;
        shape.select_count = 2;
        shape.window = 3;
        shape.scale = 0.5;
        std::mt19937 random(seed);
        std::normal_distribution<double> normal;
        const auto fill = [&](std::vector<double>& to, std::int64_t count) {
            to.resize(static_cast<std::size_t>(count));
            for (double& v : to) v = decode(dtype, encode(dtype, normal(random)));
        };
        fill(tensors[0], shape.tokens * shape.query_heads * shape.head_dim);
        for (std::size_t b = 1; b <= 3; ++b) {
            fill(tensors[b], shape.tokens * shape.kv_heads * shape.head_dim);
            fill(tensors[b + 3], shape.tokens * shape.kv_heads * shape.value_dim);
        }
        fill(tensors[7], shape.block * shape.kv_heads);
        fill(tensors[8], shape.block * shape.kv_heads);
        fill(tensors[9], shape.tokens * shape.query_heads * 3);
        fill(output_grad, shape.tokens * shape.query_heads * shape.value_dim);
        topk.resize(static_cast<std::size_t>(shape.tokens * shape.kv_heads * shape.select_count));
        for (auto& index : topk) index = static_cast<std::int64_t>(random() % 3);
        topk[0] = topk[1];
        if (tied)
            for (std::size_t b : {2u, 3u}) tensors[b] = tensors[1], tensors[b + 3] = tensors[4];
    }

    template <class Scalar>
    NsaModuleInputs<Scalar> inputs(const std::array<std::vector<Scalar>, 10>& x) const {
        return {x[0], {x[1], x[2], x[3]}, {x[4], x[5], x[6]}, x[7], x[8], x[9]};
    }

    /// <O(tensors), dO>.
    template <class Scalar>
    Scalar loss(const std::array<std::vector<Scalar>, 10>& x) const {
        const auto out = nsa_module<Scalar>(shape, inputs(x), topk).output;
        Scalar sum{};
        for (std::size_t i = 0; i < out.size(); ++i) sum += out[i] * Scalar(output_grad[i]);
        return sum;
    }

    /// All gradients in the order of `tensors`; tied: the sum in the first of three, 0 in the rest.
    std::array<std::vector<double>, 10> gradients() const {
        const auto in = inputs(tensors);
        const auto forward = nsa_module<double>(shape, in, topk);
        NsaModuleGrad g = nsa_module_grad(shape, in, topk, forward, output_grad);
        std::array<std::vector<double>, 10> out{
            g.query,    g.key[0],   g.key[1],     g.key[2],       g.value[0],
            g.value[1], g.value[2], g.key_weight, g.value_weight, g.gate_logits};
        if (tied)
            for (std::size_t first : {1u, 4u})
                for (std::size_t b = first + 1; b <= first + 2; ++b)
                    for (std::size_t i = 0; i < out[b].size(); ++i)
                        out[first][i] += std::exchange(out[b][i], 0.0);
        return out;
    }

    /// The tensors with element i of tensor k moved by `step`, in every branch when tied.
    template <class Scalar>
    std::array<std::vector<Scalar>, 10> moved(std::size_t k, std::size_t i, Scalar step) const {
        std::array<std::vector<Scalar>, 10> out;
        for (std::size_t t = 0; t < 10; ++t) out[t].assign(tensors[t].begin(), tensors[t].end());
        const bool shared = tied && (k == 1 || k == 4);
        for (std::size_t b = k; b <= (shared ? k + 2 : k); ++b) out[b][i] += step;
        return out;
    }
};

/// Every element of every gradient is the derivative along that element, by dual numbers.
TEST(NsaModule, ChainedGradientIsTheDerivativeOfTheForward) {
    for (const bool tied : {false, true}) {
        const Problem problem(tied, 7);
        const auto gradients = problem.gradients();
        for (std::size_t k = 0; k < 10; ++k) {
            if (tied && (k == 2 || k == 3 || k == 5 || k == 6)) continue;
            for (std::size_t i = 0; i < gradients[k].size(); ++i) {
                const double exact = problem.loss(problem.moved<Dual>(k, i, {0, 1})).tangent;
                ASSERT_NEAR(gradients[k][i], exact, 1e-12 * (1 + std::fabs(exact)))
                    << "tensor " << k << ", element " << i << ", tied " << tied;
            }
        }
    }
}

/// Complex step agrees with dual numbers along one direction through everything.
TEST(NsaModule, ComplexStepAgreesWithTheChainedGradient) {
    const Problem problem(false, 11);
    const auto gradients = problem.gradients();
    std::array<std::vector<Complex>, 10> x;
    double along = 0;
    std::mt19937 random(3);
    for (std::size_t k = 0; k < 10; ++k)
        for (std::size_t i = 0; i < problem.tensors[k].size(); ++i) {
            const double r = static_cast<double>(random() % 9) / 4 - 1;
            x[k].emplace_back(problem.tensors[k][i], 1e-100 * r);
            along += gradients[k][i] * r;
        }
    EXPECT_NEAR(problem.loss(x).imag() / 1e-100, along, 1e-11 * (1 + std::fabs(along)));
}

/// Rows that see nothing, tokens beyond reach: output and gradients are 0, not small.
TEST(NsaModule, WhatNothingReachesIsExactlyZero) {
    const Problem problem(false, 5);
    const auto forward =
        nsa_module<double>(problem.shape, problem.inputs(problem.tensors), problem.topk);
    const auto gradients = problem.gradients();
    const auto& s = problem.shape;
    for (std::size_t i = 0; i < 2 * 4 * 3; ++i)  // t < l - 1
        EXPECT_EQ(forward.branch[0].output[i], 0);
    for (std::int64_t row = 0; row < s.query_heads; ++row)
        EXPECT_EQ(gradients[9][static_cast<std::size_t>(row * 3)], 0);
    const auto key = static_cast<std::size_t>(s.kv_heads * s.head_dim);
    for (const std::size_t token : {9u, 10u, 18u, 19u})  // sequence of 2 tokens: no block; beyond
        for (std::size_t i = token * key; i < (token + 1) * key; ++i) EXPECT_EQ(gradients[1][i], 0);
    for (std::size_t i = 18 * 4 * 3; i < forward.output.size(); ++i)
        EXPECT_EQ(forward.output[i], 0);
}

std::vector<double> stored(std::vector<double> values, Dtype dtype) {
    for (double& v : values) v = decode(dtype, encode(dtype, v));
    return values;
}

void expect_within(const ExpectedTensor& expected, const std::vector<double>& got, const char* what,
                   double& worst) {
    ASSERT_EQ(expected.size(), got.size()) << what;
    for (std::size_t i = 0; i < got.size(); ++i) {
        const double error = std::fabs(got[i] - expected.value[i]);
        ASSERT_LE(error, expected.bound[i]) << what << " element " << i;
        if (expected.bound[i] > 0) worst = std::max(worst, error / expected.bound[i]);
    }
}

/// A chain that computes in binary64 and stores every tensor it hands on stays within the bounds of
/// the whole, and not by much more than rounding to the storage type explains.
TEST(NsaModule, StoringEveryIntermediateTensorStaysWithinTheEndToEndBound) {
    for (const Dtype dtype : {Dtype::bf16, Dtype::fp16})
        for (unsigned seed = 0; seed < 20; ++seed) {
            const Problem p(seed % 2 == 1, seed, dtype);
            const auto in = p.inputs(p.tensors);
            const auto forward = nsa_module<double>(p.shape, in, p.topk);
            const auto grad = nsa_module_grad(p.shape, in, p.topk, forward, p.output_grad);
            NsaModuleObserved seen;
            seen.key_blocks = stored(forward.key_blocks, dtype);
            seen.value_blocks = stored(forward.value_blocks, dtype);
            seen.key_blocks_grad = seen.key_blocks;  // not looked at before they are known
            seen.value_blocks_grad = seen.value_blocks;
            auto stages = expected_module_stages(p.shape, in, p.topk, seen, dtype);
            std::vector<double> output(p.output_grad.size());
            std::vector<double> gates(p.tensors[9].size());
            for (std::size_t b = 0; b < 3; ++b) {
                auto& branch = seen.branch[b];
                branch.output = stored(stages.branch[b].output.value, dtype);
                branch.row_max = stored(stages.branch[b].row_max.value, Dtype::fp32);
                branch.row_sum = stored(stages.branch[b].row_sum.value, Dtype::fp32);
                branch.output_grad.resize(output.size());
                for (std::size_t i = 0; i < output.size(); ++i) {
                    const std::size_t row = i / 3;
                    const double g = sigmoid(p.tensors[9][row * 3 + b]);
                    output[i] += g * branch.output[i];
                    branch.output_grad[i] = g * p.output_grad[i];
                    gates[row * 3 + b] += g * (1 - g) * p.output_grad[i] * branch.output[i];
                }
                branch.output_grad = stored(branch.output_grad, dtype);
            }
            stages = expected_module_stages(p.shape, in, p.topk, seen, dtype);
            seen.key_blocks_grad = stored(stages.grad[0].key_grad.value, dtype);
            seen.value_blocks_grad = stored(stages.grad[0].value_grad.value, dtype);
            stages = expected_module_stages(p.shape, in, p.topk, seen, dtype);
            const auto whole = expected_nsa_module(p.shape, in, p.topk, p.output_grad, p.tied,
                                                   forward, grad, stages, dtype);
            double worst = 0;
            expect_within(whole.output, stored(output, dtype), "output", worst);
            expect_within(whole.gate_logits_grad, stored(gates, Dtype::fp32), "gates", worst);
            std::vector<double> query(p.tensors[0].size());
            for (std::size_t b = 0; b < 3; ++b) {
                const auto part = stored(stages.grad[b].query_grad.value, dtype);
                for (std::size_t i = 0; i < part.size(); ++i) query[i] += part[i];
            }
            expect_within(whole.query_grad, stored(query, dtype), "query_grad", worst);
            auto key = stored(stages.key.input_grad.value, dtype);
            if (p.tied)
                for (std::size_t b : {1u, 2u}) {
                    const auto part = stored(stages.grad[b].key_grad.value, dtype);
                    for (std::size_t i = 0; i < part.size(); ++i) key[i] += part[i];
                }
            expect_within(whole.key_grad[0], stored(key, dtype), "key_grad", worst);
            expect_within(whole.key_weight_grad, stored(stages.key.weight_grad.value, dtype),
                          "key_weight_grad", worst);
            expect_within(whole.value_weight_grad, stored(stages.value.weight_grad.value, dtype),
                          "value_weight_grad", worst);
            EXPECT_GT(worst, 0.3) << "the bound says nothing";
        }
}

}  // namespace
}  // namespace attncheck::ref
