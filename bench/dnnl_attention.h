#ifndef ATTNCHECK_BENCH_DNNL_ATTENTION_H
#define ATTNCHECK_BENCH_DNNL_ATTENTION_H

#include <vector>

#include "bench/problems.h"

/// The competitor in bf16: attention composed of oneDNN's matrix products and softmax, with logits
/// of a whole head in fp32 and probabilities in bf16, products accumulated in fp32.
namespace attncheck::bench {

/// Forward and gradient; nothing when the program was built without oneDNN or when that has no bf16
/// products on this machine. Causal visibility saves it no products.
std::vector<Problem> dnnl_problems(const DenseShape& shape);

/// Of the library's own threads.
void set_dnnl_threads(int threads);

}  // namespace attncheck::bench

#endif  // ATTNCHECK_BENCH_DNNL_ATTENTION_H
