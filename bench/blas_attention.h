#ifndef ATTNCHECK_BENCH_BLAS_ATTENTION_H
#define ATTNCHECK_BENCH_BLAS_ATTENTION_H

#include <vector>

#include "bench/problems.h"

/// The straightforward competitor: attention composed of a BLAS library's matrix products and a
/// softmax over whole rows of logits, fp32, on a matrix of S x S logits per head.
namespace attncheck::bench {

/// Forward and gradient; nothing when the program was built without a BLAS library. Causal
/// visibility saves it no products, for it multiplies whole matrices.
std::vector<Problem> blas_problems(const DenseShape& shape);

/// Of the library's own threads.
void set_blas_threads(int threads);

}  // namespace attncheck::bench

#endif  // ATTNCHECK_BENCH_BLAS_ATTENTION_H
