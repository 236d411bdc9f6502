"""PyTorch on the CPU: no keys at all. No attncheck; expected: 0 and 0."""

import torch

none = torch.zeros(1, 1, 0, 1)
for x in (1.0, float("inf")):
    print(torch.__version__, x, torch.nn.functional.scaled_dot_product_attention(torch.full((1, 1, 1, 1), x), none, none).item())
