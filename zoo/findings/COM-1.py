"""A hidden score that is NaN. No attncheck: PyTorch by its documented formula gives NaN, a kernel that skips hidden keys 1."""

import torch

q, k = torch.ones(1, 1, 1, 1), torch.tensor([1.0, float("nan")]).reshape(1, 1, 2, 1)
v, mask = torch.ones(1, 1, 2, 1), torch.tensor([[True, False]])
scores = (q @ k.mT).masked_fill(~mask, float("-inf"))
added = q @ k.mT + torch.zeros(1, 2).masked_fill(~mask, float("-inf"))
print("scores hidden:", scores.ravel().tolist(), "-inf added:", added.ravel().tolist())
print(torch.__version__, torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask).item())
