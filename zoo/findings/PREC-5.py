"""PyTorch on the CPU: dV where nine query heads share a key head, each row has one key, so that dV is the sum of dO over the heads. No attncheck."""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

print(torch.__version__)
heads = 9
for dtype, large in ((torch.bfloat16, 256.0), (torch.float16, 2048.0)):
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.MATH):
        for place in (0, heads - 1):
            query = torch.zeros(1, heads, 1, 1, dtype=dtype, requires_grad=True)
            key, value = (torch.zeros(1, 1, 1, 1, dtype=dtype, requires_grad=True) for _ in range(2))
            dout = torch.ones(1, heads, 1, 1, dtype=dtype)
            dout[0, place] = large
            with sdpa_kernel(backend):
                out = torch.nn.functional.scaled_dot_product_attention(query, key, value, enable_gqa=True)
            dv, = torch.autograd.grad(out, value, dout)
            print(f"{dtype} {backend.name}: dO is {large:.0f} in head {place} and 1 in the others: dV {dv.item():.0f}, exact {large + heads - 1:.0f}")
