// Oracle of the NSA module: the composition of compression, compressed attention, selected
// attention, sliding window and gates, with the selection given (frozen).
//
//   Kc = compress(K^c, Wk), Vc = compress(V^c, Wv)     blocks of one sequence, as nsa_compress.h
//   branch c   token t sees block j when j d + l - 1 <= t
//   branch s   token t sees position idx l' + r of every listed block when that is <= t
//   branch w   token t sees positions t - w + 1 .. t
//   O[t,h]  = sum_b g_b[t,h] O_b[t,h],   g_b = 1 / (1 + exp(-z[t,h,b]))
//
// Rows that see nothing have O_b = 0; where branch c sees nothing its gate has no gradient
// (indicator convention). A block listed twice counts twice. Backward, for F = <O, dO>:
//
//   dO_b = g_b dO,   dz_b = g_b (1 - g_b) <dO, O_b>
//   attention gradients of the branches, then (dK^c, dWk) = compress_grad(dKc), likewise V
//
// All tensors are row-major and unpadded; positions count from the start of their sequence. Tied
// keys are the same span three times, and their gradient the sum of three.
// Sources: Yuan et al. 2025, arXiv 2502.11089; nsa.md 10; contract.md, decisions 2, 6 and 7.
//
// Legend: T tokens, N1 query heads, N2 key/value heads, D head dim, Dv value dim, C blocks, l
// block, d stride, l' select block, K listed blocks, w window.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "ref/attention/dense_attention.h"
#include "ref/operators/nsa_compress.h"

namespace attncheck::ref {

inline constexpr int kModuleBranches = 3;  ///< compress, select, window

struct NsaModuleShape {
    std::vector<std::int64_t> lengths;  ///< per sequence, each >= 0
    std::int64_t tokens = 0;            ///< T; rows beyond the last sequence give 0
    std::int64_t query_heads = 1, kv_heads = 1, head_dim = 1, value_dim = 1;
    std::int64_t block = 16, stride = 16, select_block = 16, select_count = 1, window = 1;
    double scale = 1;  ///< narrowed to fp32

    CompressShape compress(std::int64_t dim) const {
        return {lengths, tokens, kv_heads, dim, block, stride};
    }
    std::int64_t blocks() const { return compress(1).total_blocks(); }
    /// Rows of K and V of a branch: C or T.
    std::int64_t key_rows(int branch) const { return branch == 0 ? blocks() : tokens; }
    AttentionShape dense(int branch) const {
        return {tokens, key_rows(branch), query_heads, kv_heads, head_dim, value_dim};
    }
};

/// The columns of every row of a branch. topk [T,N2,K] must outlive the lister; the other branches
/// do not depend on it.
ColumnLister module_columns(const NsaModuleShape& shape, int branch,
                            std::span<const std::int64_t> topk);

template <class Scalar>
struct NsaModuleInputs {
    std::span<const Scalar> query;                      ///< [T,N1,D]
    std::array<std::span<const Scalar>, 3> key, value;  ///< [T,N2,D], [T,N2,Dv] by branch
    std::span<const Scalar> key_weight, value_weight;   ///< [l,N2]
    std::span<const Scalar> gate_logits;                ///< [T,N1,3]
};

/// What the attention of a branch takes; the keys and values of branch 0 are blocks.
template <class Scalar>
AttentionInputs<Scalar> inputs_of_branch(const NsaModuleShape& shape,
                                         const NsaModuleInputs<Scalar>& in, std::size_t branch,
                                         std::span<const Scalar> key_blocks,
                                         std::span<const Scalar> value_blocks) {
    return {in.query, branch == 0 ? key_blocks : in.key[branch],
            branch == 0 ? value_blocks : in.value[branch], shape.scale};
}

template <class Scalar>
Scalar sigmoid(const Scalar& z) {
    using std::exp;
    return Scalar(1.0) / (Scalar(1.0) + exp(Scalar(0.0) - z));
}

/// Everything the forward knows.
template <class Scalar>
struct NsaModuleForward {
    std::vector<Scalar> key_blocks, value_blocks;  ///< [C,N2,D], [C,N2,Dv]
    struct Branch {
        std::vector<Scalar> output, row_max, row_sum;  ///< [T,N1,Dv], [T,N1]
    };
    std::array<Branch, kModuleBranches> branch;
    std::vector<Scalar> output;  ///< [T,N1,Dv]
};

/// The forward over double, std::complex<double> or Dual, so that it can be differentiated exactly.
template <class Scalar>
NsaModuleForward<Scalar> nsa_module(const NsaModuleShape& shape, const NsaModuleInputs<Scalar>& in,
                                    std::span<const std::int64_t> topk) {
    NsaModuleForward<Scalar> out;
    out.key_blocks.resize(
        static_cast<std::size_t>(shape.blocks() * shape.kv_heads * shape.head_dim));
    out.value_blocks.resize(
        static_cast<std::size_t>(shape.blocks() * shape.kv_heads * shape.value_dim));
    nsa_compress<Scalar>(shape.compress(shape.head_dim), in.key[0], in.key_weight, out.key_blocks);
    nsa_compress<Scalar>(shape.compress(shape.value_dim), in.value[0], in.value_weight,
                         out.value_blocks);
    const auto rows = static_cast<std::size_t>(shape.tokens * shape.query_heads),
               width = static_cast<std::size_t>(shape.value_dim);
    out.output.assign(rows * width, Scalar{});
    for (std::size_t b = 0; b < kModuleBranches; ++b) {
        auto& branch = out.branch[b];
        branch.output.resize(rows * width);
        branch.row_max.resize(rows);
        branch.row_sum.resize(rows);
        const auto attention =
            inputs_of_branch<Scalar>(shape, in, b, out.key_blocks, out.value_blocks);
        const ColumnLister columns = module_columns(shape, static_cast<int>(b), topk);
        dense_attention<Scalar>({shape.dense(static_cast<int>(b)), columns, attention},
                                branch.output, branch.row_max, branch.row_sum);
        for (std::size_t row = 0; row < rows; ++row) {
            const Scalar gate = sigmoid(in.gate_logits[row * 3 + b]);
            for (std::size_t c = 0; c < width; ++c)
                out.output[row * width + c] += gate * branch.output[row * width + c];
        }
    }
    return out;
}

/// The gradient of <O, dO>, chained by hand from the operators' gradients.
struct NsaModuleGrad {
    std::vector<double> query;                      ///< [T,N1,D]
    std::array<std::vector<double>, 3> key, value;  ///< by branch; compress: of the tokens
    std::vector<double> key_weight, value_weight;
    std::vector<double> gate_logits;
    std::vector<double> key_blocks, value_blocks;  ///< of Kc and Vc
    std::array<std::vector<double>, 3> branch_query;
};

NsaModuleGrad nsa_module_grad(const NsaModuleShape& shape, const NsaModuleInputs<double>& in,
                              std::span<const std::int64_t> topk,
                              const NsaModuleForward<double>& forward,
                              std::span<const double> output_grad);

}  // namespace attncheck::ref
