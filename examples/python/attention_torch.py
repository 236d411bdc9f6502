"""attention and its gradient in torch: scaled_dot_product_attention, differentiated by autograd.

    attncheck verify --candidate python:examples/python/attention_torch.py --no-validation

On a GPU where torch finds one, else on the CPU.
"""

import torch
from torch.nn.functional import scaled_dot_product_attention

import attncheck

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# SDPA takes a diagonal through the first pair, gives no LSE, and has no sink, softcap or window.
FEATURES = ("dtype=fp16,bf16,fp32 layout=bshd,bhsd,sbhd dim=1..256 value_dim=1..256 bias=none mask=none sink=none softcap=0 "
            "kv_length=none window_left=-1 window_right=-1,0 align=top_left lse=absent")
# On a GPU P, and in the gradient dS, may be rounded to the type of the tensors; dK and dV of every query head, too. Subnormal
# bf16 numbers may be zero. Autograd goes by the output of its own forward.
PRECISION = "p=half ds=half group=half hidden=times_zero ftz=bf16 forward=own"


def attend(query, key, value, scale, window_right):
    """[B,S,H,D] as the operator has them; torch has [B,H,S,D]."""
    q, k, v = (t.transpose(1, 2) for t in (query, key, value))
    return scaled_dot_product_attention(q, k, v, scale=scale, is_causal=window_right == 0, enable_gqa=True).transpose(1, 2)


@attncheck.kernel("attention", tensors="torch", device=DEVICE, features=FEATURES, precision=PRECISION)
def attention(query, key, value, scale, window_right):
    """query [B,Sq,Hq,D], key [B,Skv,Hkv,D], value [B,Skv,Hkv,Dv] -> out [B,Sq,Hq,Dv]."""
    with torch.no_grad():
        return attend(query, key, value, scale, window_right)


@attncheck.kernel("attention_grad", tensors="torch", device=DEVICE, features=FEATURES + " out=reference", precision=PRECISION)
def attention_grad(dout, query, key, value, scale, window_right):
    """dout [B,Sq,Hq,Dv] -> dq, dk, dv, of the shapes of query, key and value."""
    q, k, v = (t.clone().requires_grad_() for t in (query, key, value))
    return torch.autograd.grad(attend(q, k, v, scale, window_right), (q, k, v), dout)
