#ifndef ATTNCHECK_BENCH_PROBLEMS_H
#define ATTNCHECK_BENCH_PROBLEMS_H

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "attncheck/candidate.h"

/// The calls that are timed: an operator, its data, and how much work is useful in it.
namespace attncheck::bench {

struct Problem {
    std::string op, dtype_name, shape;
    std::int32_t dtype;
    std::int64_t copy_bytes;    ///< its ceiling is a copy of so many bytes; 0: products
    double work;                ///< operations, or bytes read once plus written once
    std::function<int()> call;  ///< status of the operator; the first call makes its data
};

struct DenseShape {
    std::int64_t heads, length, dim;
    bool causal;
    std::int64_t value_dim = dim;
};
std::string describe(const DenseShape& shape);  ///< "S=1024 D=128 causal", "S=4096 D=192 Dv=128"

/// FlashAttentionScore and its gradient on the same data. Operations per head: 2 S^2 (D + Dv)
/// forward and 2 S^2 (3 D + 2 Dv) backward, half of that if causal.
std::vector<Problem> dense_problems(std::int32_t dtype, const DenseShape& shape);

/// D = 192, Dv = 128, one key head.
struct SelectedShape {
    std::int64_t tokens = 4096, query_heads = 16, block = 64, count = 16;
};

/// NsaSelectedAttention and its gradient, causal; only visible pairs count, each with
/// 2 (D + Dv) operations forward and 2 (3 D + 2 Dv) backward.
std::vector<Problem> selected_problems(std::int32_t dtype, const SelectedShape& shape = {});

/// NsaCompress and its gradient; every byte of every argument counts once.
std::vector<Problem> compress_problems(std::int32_t dtype, std::int64_t tokens = 65536);

}  // namespace attncheck::bench

#endif  // ATTNCHECK_BENCH_PROBLEMS_H
