"""PyTorch on the CPU: is_causal with a scale that is zero or negative gives NaN. No attncheck; expected: 1 and 1."""

import torch

q, k, v = torch.ones(1, 1, 1, 1), torch.ones(1, 1, 2, 1), torch.tensor([1.0, 0.0]).reshape(1, 1, 2, 1)
attend = torch.nn.functional.scaled_dot_product_attention
print(torch.__version__)
# The query sees the first key alone: whatever the scale is, the result is its value.
print("is_causal:", attend(q, k, v, is_causal=True, scale=-1.0).item())
print("the same mask, written out:", attend(q, k, v, attn_mask=torch.tensor([[True, False]]), scale=-1.0).item())
