"""PyTorch on the CPU: flex_attention with a NaN in one query, without and with torch.compile. No attncheck."""

import torch
from torch.nn.attention.flex_attention import flex_attention

print(torch.__version__)
torch.set_num_threads(1)
compiled = torch.compile(flex_attention, dynamic=True)
for keys in (15, 16, 63):
    query, key = torch.zeros(1, 2, 30, 32), torch.zeros(1, 2, keys, 32)
    value = torch.ones_like(key)
    query[0, 0, 0, 0] = torch.nan
    for name, form in (("eager", flex_attention), ("compiled", compiled), ("scaled_dot_product_attention", torch.nn.functional.scaled_dot_product_attention)):
        out = form(query, key, value)
        print(f"{keys} keys, {name}: row 0 gives {out[0, 0, 0, 0].item()}, row 1 gives {out[0, 0, 1, 0].item()}")
