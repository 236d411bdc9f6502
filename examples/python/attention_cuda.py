"""attention as a CUDA extension of torch: one thread for each row, an online softmax in fp32. Slow, and easy to read.

    attncheck verify --candidate python:examples/python/attention_cuda.py --no-validation

Needs a GPU, nvcc and ninja; the extension is compiled once and kept in torch's cache.
"""

import torch
from torch.utils.cpp_extension import load_inline

import attncheck

SOURCE = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

constexpr int kWidest = 256;  // channels of a value row, in the registers and the stack of its thread

template <class T>
__global__ void attend(const T* q, const T* k, const T* v, T* out, float* lse, int rows, int queries, int keys, int heads,
                       int group, int dim, int value_dim, float scale, bool causal, int diagonal) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;  // (batch * queries + i) * heads + h
    if (row >= rows) return;
    const int h = row % heads, i = row / heads % queries, b = row / heads / queries;
    float top = -INFINITY, total = 0, sums[kWidest];
    for (int c = 0; c < value_dim; ++c) sums[c] = 0;
    for (int j = 0; j < keys && (!causal || j <= i + diagonal); ++j) {
        const long kv = (long(b) * keys + j) * (heads / group) + h / group;
        float s = 0;
        for (int c = 0; c < dim; ++c) s += float(q[long(row) * dim + c]) * float(k[kv * dim + c]);
        s *= scale;
        const float higher = fmaxf(top, s), shift = higher == -INFINITY ? 0.f : higher;  // no key counted yet
        const float rescale = expf(top - shift), p = expf(s - shift);
        total = total * rescale + p;
        for (int c = 0; c < value_dim; ++c) sums[c] = sums[c] * rescale + p * float(v[kv * value_dim + c]);
        top = higher;
    }
    for (int c = 0; c < value_dim; ++c) out[long(row) * value_dim + c] = T(total == 0 ? 0.f : sums[c] / total);
    lse[(long(b) * heads + h) * queries + i] = total == 0 ? -INFINITY : top + logf(total);
}

std::vector<at::Tensor> forward(at::Tensor q, at::Tensor k, at::Tensor v, double scale, bool causal, int64_t diagonal) {
    q = q.contiguous(), k = k.contiguous(), v = v.contiguous();
    TORCH_CHECK(v.size(3) <= kWidest, "value_dim is ", v.size(3), ", allowed: 1 to ", kWidest);
    auto out = at::empty({q.size(0), q.size(1), q.size(2), v.size(3)}, q.options());
    auto lse = at::empty({q.size(0), q.size(2), q.size(1)}, q.options().dtype(at::kFloat));
    const int rows = q.size(0) * q.size(1) * q.size(2), threads = 128;
    if (rows == 0) return {out, lse};
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, q.scalar_type(), "attend", [&] {
        attend<scalar_t><<<(rows + threads - 1) / threads, threads, 0, at::cuda::getCurrentCUDAStream()>>>(
            q.data_ptr<scalar_t>(), k.data_ptr<scalar_t>(), v.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(),
            lse.data_ptr<float>(), rows, q.size(1), k.size(1), q.size(2), q.size(2) / k.size(2), q.size(3), v.size(3),
            float(scale), causal, int(diagonal));
    });
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {out, lse};
}
"""
HEADER = ("#include <torch/extension.h>\nstd::vector<at::Tensor> forward(at::Tensor q, at::Tensor k, at::Tensor v, double scale, "
          "bool causal, int64_t diagonal);")

if not torch.cuda.is_available():
    raise ImportError("attention_cuda needs a GPU")
extension = load_inline("attncheck_example_attention", cpp_sources=HEADER, cuda_sources=SOURCE, functions=["forward"])


@attncheck.kernel("attention", tensors="torch", device="cuda",
                  features="layout=bshd,bhsd,sbhd value_dim=1..256 bias=none mask=none sink=none softcap=0 kv_length=none "
                           "window_left=-1 window_right=-1,0")
def attention(query, key, value, scale, window_right, align):
    """query [B,Sq,Hq,D], key [B,Skv,Hkv,D], value [B,Skv,Hkv,Dv] -> out [B,Sq,Hq,Dv], lse [B,Hq,Sq] fp32."""
    diagonal = key.shape[1] - query.shape[1] if align else 0
    out, lse = extension.forward(query, key, value, scale, window_right == 0, diagonal)
    return {"out": out, "lse": lse}
