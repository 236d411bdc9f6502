"""Transformers on the CPU: sdpa_attention_forward in fp16 with a position_bias of 0, two queries, two keys, causal. No attncheck."""

from types import SimpleNamespace

import torch
import transformers
from transformers.integrations.sdpa_attention import sdpa_attention_forward

print("transformers", transformers.__version__, "torch", torch.__version__)
module = SimpleNamespace(num_key_value_groups=1)
for dtype in (torch.float16, torch.bfloat16, torch.float32):
    for score in (1.0, 60000.0):
        query = torch.full((1, 1, 2, 1), score, dtype=dtype)
        key = torch.tensor([-1.0, 1.0], dtype=dtype).reshape(1, 1, 2, 1)  # the first query sees the first key alone
        value = torch.tensor([1.0, 2.0], dtype=dtype).reshape(1, 1, 2, 1)
        bias = torch.zeros(1, 1, 2, 2, dtype=dtype)
        for name, given in (("without", None), ("with", bias)):
            out = sdpa_attention_forward(module, query, key, value, None, scaling=1.0, is_causal=True, position_bias=given)[0]
            print(f"{dtype}, scores -{score:g} and {score:g}, {name} position_bias: the first query gives {out[0, 0, 0, 0].item():g}, exact 1")
