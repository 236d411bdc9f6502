"""flash-linear-attention: parallel_nsa, the selected attention of NSA in Triton, under Triton's interpreter on the CPU.

Declared from its docstrings: q [B, TQ, HQ, K], k [B, T, H, K], v [B, T, H, V], HQ / H a power of 2 and at least 16,
block_indices [B, TQ, H, S], cu_seqlens for packed sequences with B = 1. It is always causal: key j is seen by query i where
j <= i, so that it is compared with sparse_mode 2, and with as many queries as keys. The scale is multiplied into q, which is rounded to its type
again. "The key dimension can not be larger than 256"; on a device without 228 KiB of shared memory the limit is 128.
No bf16: the interpreter has none. Nothing is said of a row whose blocks all lie ahead of it: `selected` declines it, `selected_any_row` does not.
"""

import os

import torch
import triton.runtime.driver
from fla.ops.nsa import parallel_nsa

import attncheck


class NoDevice:
    """The autotuner asks a driver for a stop watch, and the interpreter has no driver: every configuration is called once."""

    def get_benchmarker(self):
        return lambda call, quantiles=None, **_: (call(), [1.0, 1.0, 1.0])[1]


if os.environ.get("TRITON_INTERPRET") == "1":
    triton.runtime.driver.set_active(NoDevice())

ZOO = {"title": "fla parallel_nsa, Triton interpreter", "environments": ["fla-0.6"], "distribution": "flash-linear-attention",
       "kernels": ["selected", "selected_any_row", "selected_grad"],
       "properties": {"": ["agreement"]},
       "env": {"TRITON_INTERPRET": "1"},
       "source": "https://github.com/fla-org/flash-linear-attention/blob/main/fla/ops/nsa/parallel.py"}
torch.set_num_threads(1)
# The shortest that it takes: a call of 32 rows and two blocks of 16 takes a second under the interpreter, with four of 64 it takes 18.
FEATURES = ("q=kv q=1..33 dtype=fp16 dim=128 value_dim=128 group=16 kv_heads=1,2 block=16 count=1,2 sparse=2 mask=bool,uint8 "
            "beyond_q=0 beyond_kv=0 ")
# A gradient takes three times as long.
SHORTEST = FEATURES.replace("q=1..33", "q=1..16").replace("kv_heads=1,2", "kv_heads=1").replace("count=1,2", "count=1")
PRECISION = "p=half ds=half scale=half hidden=times_zero"


def attend(q, k, v, blocks, lengths, kv_lengths, scale, block_size, any_row=False):
    row = torch.cat([torch.arange(b - a, device=q.device) for a, b in zip([0, *lengths], lengths)])[:, None, None]
    seen = (blocks >= 0) & (blocks * block_size <= row)
    if not any_row and not seen.any(dim=2).all():
        raise attncheck.Declined("a row without keys, see FLA-1")
    if lengths != kv_lengths or scale == 0:
        raise attncheck.Declined("other queries than keys, or scale 0")
    starts = [0, *(n for n in lengths if n > 0)]
    if any(a == b for a, b in zip(starts, starts[1:])):
        raise attncheck.Declined("an empty sequence")
    several = {"cu_seqlens": torch.tensor(starts, dtype=torch.long, device=q.device)} if len(starts) > 2 else {}
    return parallel_nsa(*(t.contiguous()[None] for t in (q, k, v)), g_slc=torch.ones((1, *q.shape[:2]), dtype=q.dtype, device=q.device),
                        block_indices=blocks.long().contiguous()[None], block_counts=blocks.shape[-1], block_size=block_size,
                        scale=scale, **several)[0]


@attncheck.kernel("nsa_selected_attention", tensors="torch", features=FEATURES + "outputs=attention_out", precision=PRECISION)
def selected(query, key, value, topk_indices, atten_mask, actual_seq_q_len, actual_seq_kv_len, scale_value, selected_block_size):
    return {"attention_out": attend(query, key, value, topk_indices, list(actual_seq_q_len), list(actual_seq_kv_len), scale_value,
                                    selected_block_size)}


@attncheck.kernel("nsa_selected_attention", tensors="torch", features=FEATURES + "outputs=attention_out", precision=PRECISION)
def selected_any_row(query, key, value, topk_indices, atten_mask, actual_seq_q_len, actual_seq_kv_len, scale_value, selected_block_size):
    return {"attention_out": attend(query, key, value, topk_indices, list(actual_seq_q_len), list(actual_seq_kv_len), scale_value,
                                    selected_block_size, any_row=True)}


def differentiate(query, key, value, dout, blocks, lengths, kv_lengths, scale, block_size):
    leaves = [t.detach().clone().requires_grad_() for t in (query, key, value)]
    with torch.enable_grad():
        out = attend(*leaves, blocks, lengths, kv_lengths, scale, block_size)
        return dict(zip(("dq", "dk", "dv"), torch.autograd.grad(out, leaves, dout.contiguous())))


# Autograd goes by the output of its own forward.
@attncheck.kernel("nsa_selected_attention_grad", tensors="torch", features=SHORTEST, precision=PRECISION + " forward=own")
def selected_grad(query, key, value, attention_out_grad, topk_indices, atten_mask, actual_seq_q_len, actual_seq_kv_len, scale_value,
                  selected_block_size):
    return differentiate(query, key, value, attention_out_grad, topk_indices, list(actual_seq_q_len), list(actual_seq_kv_len), scale_value,
                         selected_block_size)
