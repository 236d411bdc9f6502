"""Control: attention and its gradient from their definition, in NumPy and binary32. They must hold."""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
import attncheck
from pairs import sequences, window_mask

ZOO = {"title": "NumPy composition", "environments": ["numpy"], "distribution": "numpy", "control": True,
       "kernels": ["attention", "attention_grad"],
       "source": "this file"}
# A probability 0 is multiplied with a hidden value; the products are of NumPy, which sums in any order.
PRECISION = "p=fp32 ds=fp32 hidden=times_zero"


def parts(b, rows, keys, query, key, value, kv_length, bias, mask, sink, scale, softcap, left, right, align):
    """One sequence: q [Hq,Sq,D], k and v of the query heads, S, tanh(S / softcap), P [Hq,Sq,Skv], P of the sink, LSE."""
    heads = query.shape[-2]
    q, k, v = (np.asarray(t, np.float32).swapaxes(0, 1) for t in (query[rows], key[keys], value[keys]))
    k, v = (np.repeat(t, heads // t.shape[0], axis=0) for t in (k, v))
    seen = np.broadcast_to(window_mask(q.shape[1], k.shape[1], left, right, align), (heads, q.shape[1], k.shape[1]))
    if kv_length is not None:
        seen = seen & (np.arange(k.shape[1]) < kv_length[b])
        k, v = (np.where((np.arange(k.shape[1]) < kv_length[b])[:, None], t, 0) for t in (k, v))
    if mask is not None:
        seen = seen & mask[b if mask.shape[0] > 1 else 0]
    s = np.float32(scale) * (q @ k.swapaxes(1, 2))
    tanh = np.tanh(s / np.float32(softcap)) if softcap > 0 else np.zeros_like(s)
    s = np.float32(softcap) * tanh if softcap > 0 else s
    if bias is not None:
        bias = np.asarray(bias[b if bias.shape[0] > 1 else 0], np.float32)
        seen = seen & ~np.isneginf(bias)  # -inf hides a key, whatever the key holds; inf - inf would be NaN
        s = s + np.where(np.isneginf(bias), 0, bias)
    s = np.where(seen, s, -np.inf)
    top = s.max(axis=2, keepdims=True, initial=-np.inf)
    last = np.full_like(top, -np.inf) if sink is None else np.broadcast_to(sink[:, None, None], top.shape)
    top = np.maximum(top, last)
    shift = np.where(np.isneginf(top), 0, top)
    e, e_sink = np.exp(s - shift), np.exp(last - shift)
    total = e.sum(axis=2, keepdims=True) + e_sink
    with np.errstate(divide="ignore"):
        lse = (shift + np.log(total))[:, :, 0]
    total = np.where(total == 0, 1, total)
    return q, k, v, tanh, np.where(seen, e / total, 0), e_sink / total, lse, seen


@attncheck.kernel("attention", precision=PRECISION)
def attention(query, key, value, cu_seqlens_q, cu_seqlens_kv, kv_length, bias, mask, sink, scale, softcap, window_left,
              window_right, align, out, lse):
    for b, (rows, keys) in enumerate(sequences(query, key, cu_seqlens_q, cu_seqlens_kv)):
        _, _, v, _, p, _, row_lse, _ = parts(b, rows, keys, query, key, value, kv_length, bias, mask, sink, scale, softcap,
                                        window_left, window_right, align)
        out[rows] = (p @ v).swapaxes(0, 1).astype(out.dtype)
        if lse is not None:
            lse[(b,) if cu_seqlens_q is None else (slice(None), rows)] = row_lse


# It forms its own statistics.
@attncheck.kernel("attention_grad", precision=PRECISION, features="lse=absent out=reference")
def attention_grad(dout, query, key, value, out, cu_seqlens_q, cu_seqlens_kv, kv_length, bias, mask, sink, scale,
                   softcap, window_left, window_right, align, dq, dk, dv, dbias, dsink):
    of_bias, of_sink = (None if t is None else np.zeros(t.shape, np.float64) for t in (dbias, dsink))
    for b, (rows, keys) in enumerate(sequences(query, key, cu_seqlens_q, cu_seqlens_kv)):
        q, k, v, tanh, p, p_sink, _, seen = parts(b, rows, keys, query, key, value, kv_length, bias, mask, sink, scale,
                                            softcap, window_left, window_right, align)
        do, o = (np.asarray(t[rows], np.float32).swapaxes(0, 1) for t in (dout, out))
        delta = (do * o).sum(axis=2, keepdims=True)
        ds = p * np.where(seen, do @ v.swapaxes(1, 2) - delta, 0)
        if of_bias is not None:
            at = of_bias[b if of_bias.shape[0] > 1 else 0]
            at += ds.sum(axis=tuple(i for i in range(3) if at.shape[i] == 1), keepdims=True)
        if of_sink is not None:
            of_sink -= np.where(np.isneginf(sink)[:, None, None], 0, p_sink * delta).sum(axis=(1, 2))
        ds = np.where(seen, ds * (1 - tanh * tanh), 0) * np.float32(scale)
        heads = dk.shape[-2]
        sums = [t.reshape(heads, len(t) // heads, *t.shape[1:]).sum(axis=1) for t in (ds.swapaxes(1, 2) @ q, p.swapaxes(1, 2) @ do)]
        for target, at, values in ((dq, rows, ds @ k), (dk, keys, sums[0]), (dv, keys, sums[1])):
            target[at] = values.swapaxes(0, 1).astype(target.dtype)
    for target, values in ((dbias, of_bias), (dsink, of_sink)):
        if target is not None:
            target[...] = values.astype(target.dtype)
