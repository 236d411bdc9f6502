"""attention in Triton: the tiled online softmax of FlashAttention, one program for each tile of query rows of one head.

On a GPU:             attncheck verify --candidate python:examples/python/attention_triton.py --no-validation
On the CPU, slowly:   TRITON_INTERPRET=1 attncheck verify ... --cases 10

Dao 2023 (FlashAttention-2), algorithm 1. Any strides; lengths and widths need not be multiples of a tile.
"""

import os

import torch
import triton
import triton.language as tl

import attncheck

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
TYPES = "fp16,fp32" if INTERPRETED else "fp16,bf16,fp32"  # the interpreter (3.9) is wrong in bf16
TILE = 16 if INTERPRETED else 64  # rows of queries, and keys


@triton.jit
def _attend(q, k, v, out, lse, scale, causal, diagonal, queries, keys, group, dim, value_dim,
            q_b, q_s, q_h, q_d, k_b, k_s, k_h, k_d, v_b, v_s, v_h, v_d, o_b, o_s, o_h, o_d, l_b, l_h, l_s,
            HEADS: tl.constexpr, TILE: tl.constexpr, WIDTH: tl.constexpr, VALUE_WIDTH: tl.constexpr,
            HAS_LSE: tl.constexpr):
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    b, h = tl.program_id(1) // HEADS, tl.program_id(1) % HEADS
    c, cv = tl.arange(0, WIDTH), tl.arange(0, VALUE_WIDTH)
    q_tile = tl.load(q + b * q_b + h * q_h + rows[:, None] * q_s + c[None, :] * q_d,
                     mask=(rows[:, None] < queries) & (c[None, :] < dim), other=0.0)
    top = tl.full([TILE], float("-inf"), tl.float32)
    total = tl.zeros([TILE], tl.float32)
    sums = tl.zeros([TILE, VALUE_WIDTH], tl.float32)
    k += b * k_b + (h // group) * k_h
    v += b * v_b + (h // group) * v_h
    for first in range(0, keys, TILE):
        at = first + tl.arange(0, TILE)
        k_tile = tl.load(k + at[None, :] * k_s + c[:, None] * k_d,
                         mask=(at[None, :] < keys) & (c[:, None] < dim), other=0.0)
        s = tl.dot(q_tile, k_tile, input_precision="ieee") * scale
        seen = (at[None, :] < keys) & ((causal == 0) | (at[None, :] <= rows[:, None] + diagonal))
        s = tl.where(seen, s, float("-inf"))
        higher = tl.maximum(top, tl.max(s, 1))
        shift = tl.where(higher == float("-inf"), 0.0, higher)  # of a row that saw no key yet
        p = tl.exp(s - shift[:, None])
        rescale = tl.exp(top - shift)
        v_tile = tl.load(v + at[:, None] * v_s + cv[None, :] * v_d,
                         mask=(at[:, None] < keys) & (cv[None, :] < value_dim), other=0.0)
        total = total * rescale + tl.sum(p, 1)
        sums = sums * rescale[:, None] + tl.dot(p.to(v_tile.dtype), v_tile, input_precision="ieee")
        top = higher
    result = sums / tl.where(total == 0, 1.0, total)[:, None]
    tl.store(out + b * o_b + h * o_h + rows[:, None] * o_s + cv[None, :] * o_d, result.to(out.dtype.element_ty),
             mask=(rows[:, None] < queries) & (cv[None, :] < value_dim))
    if HAS_LSE:
        tl.store(lse + b * l_b + h * l_h + rows * l_s, top + tl.log(total), mask=rows < queries)


# A hidden key is multiplied by a probability of 0, which NaN survives; the declaration says so.
@attncheck.kernel("attention", tensors="torch", device="cpu" if INTERPRETED else "cuda",
                  features=f"dtype={TYPES} layout=bshd,bhsd,sbhd dim=1..128 value_dim=1..128 bias=none mask=none "
                           "sink=none softcap=0 kv_length=none window_left=-1 window_right=-1,0",
                  precision="hidden=times_zero")
def attention(query, key, value, scale, window_right, align, out, lse=None):
    """query [B,Sq,Hq,D], key [B,Skv,Hkv,D], value [B,Skv,Hkv,Dv]; fills out [B,Sq,Hq,Dv] and lse [B,Hq,Sq]."""
    batches, queries, heads, dim = query.shape
    keys, value_dim = key.shape[1], value.shape[3]
    if batches * queries * heads == 0:
        return
    grid = (triton.cdiv(queries, TILE), batches * heads)
    _attend[grid](query, key, value, out, out if lse is None else lse, scale, int(window_right == 0),
                  keys - queries if align else 0, queries, keys, heads // key.shape[2], dim, value_dim,
                  *query.stride(), *key.stride(), *value.stride(), *out.stride(), *(lse.stride() if lse is not None else (0, 0, 0)),
                  HEADS=heads, TILE=TILE, WIDTH=max(16, triton.next_power_of_2(dim)),
                  VALUE_WIDTH=max(16, triton.next_power_of_2(value_dim)), HAS_LSE=lse is not None)
