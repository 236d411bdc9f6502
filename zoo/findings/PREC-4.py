"""PyTorch on the CPU: the log-sum-exp of the flash form for equal scores, which is the logarithm of the number of keys. No attncheck."""

import math

import torch

print(torch.__version__)
flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    for keys in (15, 16, 100):
        query, key = torch.zeros(1, 1, 1, 1, dtype=dtype), torch.zeros(1, 1, keys, 1, dtype=dtype)
        lse = flash(query, key, key)[1].item()
        print(f"{dtype}, {keys} keys: {lse:.7f} of type fp32, exact {math.log(keys):.7f}, the sum of exponentials is off by {math.exp(lse) / keys - 1:+.1e}")
