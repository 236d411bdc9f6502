"""PyTorch on the CPU: torch.nn.MultiheadAttention with unit matrices as projections, with and without need_weights, and its fast path.

Declared from the documentation: embed_dim = num_heads * head dim, the scale is 1 / sqrt(head dim); attn_mask [L, S] or
[N * num_heads, L, S], of bool, True = may NOT attend; key_padding_mask [N, S], True = ignored, which is kv_length; is_causal is a
hint that needs attn_mask as well. Products with unit matrices are exact for finite numbers; NaN and infinity would spread over the
channels, so that such calls are declined. Nothing is said of a row that sees no key: declined, but in `fast_path_any_row`.
The fast path is for self-attention: its input has the channels of query, key and value side by side (and as many zeros, for an even
number of heads), and the projections choose among them.
"""

import functools
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
import attncheck
from pairs import has_empty_row, window_mask

ZOO = {"title": "PyTorch nn.MultiheadAttention", "environments": ["torch-2.13"], "distribution": "torch",
       "kernels": ["output_alone", "with_weights", "fast_path", "fast_path_any_row", "gradient"],
       "properties": {"fast_path_any_row": ["agreement"]},
       "control": ["output_alone"],
       "source": "https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html"}
torch.set_num_threads(1)
FEATURES = ("dtype=fp32 layout=bshd,bhsd,sbhd group=1 value_dim=dim dim=1..96 scale=rsqrt window_left=-1 window_right=-1,0 "
            "align=top_left softcap=0 bias=none mask=none,full,shared sink=none outputs=out")
# exp_u20 of aten/src/ATen/cpu/vec, see torch_sdpa.py.
PRECISION = "p=fp32 exp=20 hidden=times_zero"


@functools.lru_cache(maxsize=64)
def module(heads, dim):
    made = torch.nn.MultiheadAttention(heads * dim, heads, bias=False, batch_first=True).eval()
    unit = torch.eye(heads * dim)
    with torch.no_grad():
        made.in_proj_weight.copy_(torch.cat([unit] * 3))
        made.out_proj.weight.copy_(unit)
    return made


@functools.lru_cache(maxsize=64)
def self_attention(heads, dim):
    part = heads * dim
    made = torch.nn.MultiheadAttention(4 * part, 4 * heads, batch_first=True).eval()
    with torch.no_grad():
        made.in_proj_weight.zero_()
        for i in range(3):
            made.in_proj_weight[i * 4 * part:i * 4 * part + part, i * part:(i + 1) * part] = torch.eye(part)
        made.out_proj.weight.copy_(torch.eye(4 * part))
        made.in_proj_bias.zero_()
        made.out_proj.bias.zero_()
    return made


def attend(query, key, value, kv_length, mask, window_right, need_weights, fast=False, any_row=False, grad=False):
    if mask is not None and window_right == 0:
        raise attncheck.Declined("one mask")
    if query.numel() == 0 or key.numel() == 0 or not all(t.isfinite().all() for t in (query, key, value)):
        raise attncheck.Declined("an empty tensor, or numbers that are not finite")
    if value.abs().max() > 1e30:
        raise attncheck.Declined("an output that overflows spreads in the projection")
    if query.shape[2] * query.shape[3] > 512:
        raise attncheck.Declined("unit matrices as large as that cost too much")
    if not any_row and has_empty_row(query, key, None, mask, kv_length, right=window_right):
        raise attncheck.Declined("a row without keys")
    (batch, queries, heads, dim), keys = query.shape, key.shape[1]
    hidden = None
    if window_right == 0:
        hidden = ~torch.from_numpy(window_mask(queries, keys, -1, 0, 0))
    elif mask is not None:
        hidden = ~mask[0, 0] if mask.shape[:2] == (1, 1) and batch * heads > 1 else ~mask.reshape(-1, queries, keys)
    padding = None if kv_length is None else torch.arange(keys) >= torch.tensor(kv_length)[:, None]
    if fast:
        x = torch.cat([*(t.reshape(batch, -1, heads * dim) for t in (query, key, value)), query.new_zeros(batch, queries, heads * dim)], dim=2)
        if hidden is not None and hidden.ndim == 3:
            hidden = hidden.reshape(batch, -1, queries, keys).repeat_interleave(4 * heads // (len(hidden) // batch), dim=1).flatten(0, 1)
        with torch.no_grad():
            out = self_attention(heads, dim)(x, x, x, attn_mask=hidden, key_padding_mask=padding, is_causal=window_right == 0,
                                             need_weights=False)[0]
        return out[..., :heads * dim].reshape(query.shape)
    with torch.set_grad_enabled(grad):
        out, _ = module(heads, dim)(*(t.reshape(batch, -1, heads * dim) for t in (query, key, value)), attn_mask=hidden,
                                    key_padding_mask=padding, is_causal=window_right == 0, need_weights=need_weights)
    return out.reshape(query.shape)


@attncheck.kernel("attention", tensors="torch", features=FEATURES, precision=PRECISION)
def output_alone(query, key, value, kv_length, mask, window_right):
    return attend(query, key, value, kv_length, mask, window_right, False)


@attncheck.kernel("attention", tensors="torch", features=FEATURES, precision=PRECISION + " scale=half")
def with_weights(query, key, value, kv_length, mask, window_right):
    return attend(query, key, value, kv_length, mask, window_right, True)


@attncheck.kernel("attention", tensors="torch", features=FEATURES.replace("dim=1..96", "q=kv dim=1..32"), precision=PRECISION + " scale=half")
def fast_path(query, key, value, kv_length, mask, window_right):
    return attend(query, key, value, kv_length, mask, window_right, False, fast=True)


@attncheck.kernel("attention", tensors="torch", features=FEATURES.replace("dim=1..96", "q=kv dim=1..32"), precision=PRECISION + " scale=half")
def fast_path_any_row(query, key, value, kv_length, mask, window_right):
    return attend(query, key, value, kv_length, mask, window_right, False, fast=True, any_row=True)


# Autograd goes by the output of its own forward.
@attncheck.kernel("attention_grad", tensors="torch", features=FEATURES.replace("outputs=out", "lse=absent out=reference"), precision=PRECISION + " scale=fp32 forward=own")
def gradient(dout, query, key, value, kv_length, mask, window_right):
    leaves = [t.detach().clone().requires_grad_() for t in (query, key, value)]
    out = attend(*leaves, kv_length, mask, window_right, False, grad=True)
    return dict(zip(("dq", "dk", "dv"), torch.autograd.grad(out, leaves, dout)))
