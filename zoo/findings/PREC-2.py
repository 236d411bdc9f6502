"""PyTorch on the CPU: dV of the flash form in bf16, for longer and longer causal sequences. No attncheck."""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

print(torch.__version__)
for length in (32, 128, 512, 4096):
    q, k, v = (torch.zeros(1, 1, length, 1, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    dv, = torch.autograd.grad(out, v, torch.ones_like(out))
    # All scores are 0: row i has the probabilities 1 / (i + 1), and dV of key j is the sum over the rows from j on.
    exact = torch.tensor([1 / (i + 1) for i in range(length)], dtype=torch.float64).flip(0).cumsum(0).flip(0)
    error = ((dv.double().flatten() - exact) / exact).abs().max() * 2**9
    print(f"{length} queries: largest relative error of dV is {float(error):.1f} times 2^-9, the rounding of one number")
