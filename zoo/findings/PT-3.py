"""PyTorch on the CPU: a NaN in the query gives 0 where there are fewer keys than a vector has lanes. No attncheck; expected: nan."""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

attend = torch.nn.functional.scaled_dot_product_attention
print(torch.__version__, torch.backends.cpu.get_cpu_capability())
for keys in (1, 15, 16, 17):
    q, k = torch.full((1, 1, 1, 8), float("nan")), torch.ones(1, 1, keys, 8)
    with sdpa_kernel(SDPBackend.MATH):
        math = attend(q, k, k)[0, 0, 0, 0].item()
    print(keys, "keys:", attend(q, k, k)[0, 0, 0, 0].item(), "math form:", math)
