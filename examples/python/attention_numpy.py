"""attention in NumPy: softmax(scale q k^T + bias) v in fp32, with everything that the operator may ask for.

    attncheck verify --candidate python:examples/python/attention_numpy.py --no-validation
"""

import numpy as np

import attncheck


# A hidden key is multiplied by a probability of 0, which NaN survives; the declaration says so.
@attncheck.kernel("attention", features="layout=bshd,bhsd,sbhd hidden_keys=numbers", precision="hidden=times_zero")
def attention(query, key, value, kv_length, bias, mask, sink, scale, softcap, window_left, window_right, align):
    """query [B,Sq,Hq,D], key [B,Skv,Hkv,D], value [B,Skv,Hkv,Dv] -> out [B,Sq,Hq,Dv], lse [B,Hq,Sq] fp32."""
    group = query.shape[2] // key.shape[2]
    q = query.transpose(0, 2, 1, 3).astype(np.float32)
    k, v = (np.repeat(t.transpose(0, 2, 1, 3).astype(np.float32), group, axis=1) for t in (key, value))
    queries, keys = q.shape[2], k.shape[2]

    s = np.float32(scale) * (q @ k.transpose(0, 1, 3, 2))
    if softcap > 0:
        s = np.float32(softcap) * np.tanh(s / np.float32(softcap))
    if bias is not None:
        s = s + bias.astype(np.float32)

    # Positions behind the diagonal are negative.
    ahead = np.arange(keys) - np.arange(queries)[:, None] - (keys - queries if align else 0)
    seen = (ahead <= window_right) | (window_right < 0)
    seen = seen & ((-ahead <= window_left) | (window_left < 0))
    if kv_length is not None:
        seen = seen & (np.arange(keys) < np.array(kv_length)[:, None, None, None])
    if mask is not None:
        seen = seen & mask
    if bias is not None:
        seen = seen & ~np.isneginf(bias)  # hides its key, whatever the logit is
    s = np.where(seen, s, -np.inf)

    top = s.max(axis=-1, keepdims=True, initial=-np.inf)
    sinks = np.full(q.shape[1], -np.inf, np.float32) if sink is None else sink
    top = np.maximum(top, sinks[:, None, None])
    shift = np.where(np.isneginf(top), np.float32(0), top)
    p = np.exp(s - shift)
    total = p.sum(axis=-1, keepdims=True) + np.exp(sinks[:, None, None] - shift)
    with np.errstate(divide="ignore"):
        lse = (shift + np.log(total))[..., 0]  # -inf where nothing is seen
    out = (p @ v) / np.where(total == 0, 1, total)
    return {"out": out.transpose(0, 2, 1, 3).astype(query.dtype), "lse": lse.astype(np.float32)}
