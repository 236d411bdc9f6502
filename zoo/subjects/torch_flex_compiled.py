"""PyTorch on the CPU: flex_attention under torch.compile, dynamic=True.

Declared as in torch_flex.py. A kernel is compiled for each kind of call, in 3 to 85 s, and takes any lengths from 2 on: few kinds are asked.
"torch.compile on CPU only supports inference and `return_lse` is not supported yet." `compiled` has a mask_mod without variables from outside,
`compiled_closure` the one of torch_flex.py.
"""

import functools
import sys
from pathlib import Path

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

sys.path.insert(0, str(Path(__file__).parent))
import attncheck
from torch_flex import mask_of

ZOO = {"title": "PyTorch flex_attention, compiled", "environments": ["torch-2.13"], "distribution": "torch",
       "kernels": ["compiled", "compiled_closure"], "properties": {"": ["agreement"]}, "timeout": 300,
       "source": "https://docs.pytorch.org/docs/stable/nn.attention.flex_attention.html"}
PRECISION = "acc=fp32 p=half exp=20 hidden=times_zero"
FEW = ("layout=bshd dtype=fp32 sequences=1 q=2..300 kv=2..300 kv_heads=2 group=2 dim=32 value_dim=32 scale=rsqrt softcap=0 align=top_left "
       "window_left=-1 kv_length=none bias=none mask=none sink=none outputs=out ")


@functools.cache
def form():
    return torch.compile(flex_attention, dynamic=True)


def causal(b, h, i, j):
    return j <= i


def attend(query, key, value, scale, mask_mod):
    q, k, v = (t.transpose(1, 2) for t in (query, key, value))
    blocks = create_block_mask(mask_mod, None, None, q.shape[2], k.shape[2], device="cpu") if mask_mod else None
    return form()(q, k, v, None, blocks, scale, q.shape[1] != k.shape[1]).transpose(1, 2)


@attncheck.kernel("attention", tensors="torch", precision=PRECISION, features=FEW + "window_right=-1,0")
def compiled(query, key, value, scale, window_right):
    return attend(query, key, value, scale, causal if window_right == 0 else None)


@attncheck.kernel("attention", tensors="torch", precision=PRECISION, features=FEW + "window_right=0")
def compiled_closure(query, key, value, scale, window_right):
    return attend(query, key, value, scale, mask_of(-1, window_right, 0, None, None))
