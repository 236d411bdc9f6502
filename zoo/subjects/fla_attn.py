"""flash-linear-attention: parallel_attn, Triton kernels of FlashAttention's kind, under Triton's interpreter on the CPU.

Declared from its docstrings: q [B, T, HQ, K], k [B, T, H, K], v [B, T, H, V], causal, as many queries as keys; window_size: keys in
[i - window_size + 1, i]; cu_seqlens for packed sequences with B = 1; sink_bias [HQ]. There is no mask, bias, softcap, and the
log-sum-exp is not returned. P is rounded to the type of v before the product. No bf16: "It does not support operations on bfloat16
numeric types", https://triton-lang.org/main/programming-guide/chapter-3/debugging.html on the interpreter.
"""

import torch
from fla.ops.attn import parallel_attn

import attncheck

ZOO = {"title": "fla parallel_attn, Triton interpreter", "environments": ["fla-0.6"], "distribution": "flash-linear-attention",
       "kernels": ["forward", "backward"], "properties": {"forward": ["agreement"], "backward": ["agreement"]},
       "env": {"TRITON_INTERPRET": "1"},
       "source": "https://github.com/fla-org/flash-linear-attention/blob/main/fla/ops/attn/parallel.py"}
torch.set_num_threads(1)
FEATURES = ("layout=bshd,bhsd,packed q=kv dim=1..64 value_dim=1..64 kv_heads=1..2 group=1..2 sequences=1 window_right=0 align=top_left softcap=0 kv_length=none bias=none "
            "mask=none ")
PRECISION = "p=half ds=half hidden=times_zero"


def attend(q, k, v, cu_seqlens, sink, scale, window_left):
    if q.numel() == 0 or scale == 0 or q.shape[-3] > (70 if q.device.type == "cpu" else 5000):
        raise attncheck.Declined("an empty tensor, scale 0 (which means none is given), or slow in the interpreter")
    packed = q.ndim == 3
    q, k, v = (t.contiguous()[None] if packed else t.contiguous() for t in (q, k, v))
    offsets = torch.tensor(cu_seqlens, dtype=torch.long, device=q.device) if packed else None
    out = parallel_attn(q, k, v, scale=scale, window_size=None if window_left < 0 else window_left + 1, cu_seqlens=offsets,
                        sink_bias=sink)
    return out[0] if packed else out


@attncheck.kernel("attention", tensors="torch", features=FEATURES + "dtype=fp16,fp32 outputs=out", precision=PRECISION)
def forward(query, key, value, cu_seqlens_q, cu_seqlens_kv, sink, scale, window_left):
    return attend(query, key, value, cu_seqlens_q, sink, scale, window_left)


def differentiate(dout, query, key, value, cu_seqlens_q, sink, scale, window_left, dsink):
    leaves = {n: t.detach().clone().requires_grad_() for n, t in (("dq", query), ("dk", key), ("dv", value))}
    given = {"dsink": sink.detach().clone().requires_grad_()} if sink is not None else {}
    with torch.enable_grad():
        out = attend(*leaves.values(), cu_seqlens_q, given.get("dsink"), scale, window_left)
        wanted = leaves | (given if dsink is not None else {})
        return dict(zip(wanted, torch.autograd.grad(out, list(wanted.values()), dout.contiguous())))


# fp32: the operator's delta is <dO, O> with the O that is given; autograd takes the O that it formed itself.
@attncheck.kernel("attention_grad", tensors="torch", features=FEATURES + "dtype=fp32 lse=absent out=reference", precision=PRECISION + " forward=own")
def backward(dout, query, key, value, cu_seqlens_q, cu_seqlens_kv, sink, scale, window_left, dsink):
    return differentiate(dout, query, key, value, cu_seqlens_q, sink, scale, window_left, dsink)
