"""The gradient of attention as autograd forms it: from a forward of its own, not from the output it is given."""

import os

import attncheck
import numpy as np

FEATURES = "window_left=-1 window_right=-1,0 softcap=0 bias=none mask=none kv_length=none sink=none"
PRECISION = os.environ.get("GRAD_PRECISION", "forward=own p=fp32 ds=fp32 hidden=times_zero")
DELTA = float(os.environ.get("GRAD_DELTA", "1"))  # a planted defect: a factor of delta


@attncheck.kernel("attention_grad", features=FEATURES, precision=PRECISION)
def attention_grad(dout, query, key, value, scale, window_left, window_right, align, out, dq, dk, dv):
    if query.ndim != 4:
        raise attncheck.Declined("packed sequences")
    rows, keys, group = query.shape[1], key.shape[1], query.shape[2] // key.shape[2]
    corner = keys - rows if align == 1 else 0
    visible = np.ones((rows, keys), bool)
    if window_right == 0:
        visible = np.arange(keys)[None, :] <= np.arange(rows)[:, None] + corner
    dk_sum, dv_sum = np.zeros(key.shape, np.float32), np.zeros(value.shape, np.float32)
    with np.errstate(all="ignore"):
        for b, h in np.ndindex(query.shape[0], query.shape[2]):
            q, d = query[b, :, h].astype(np.float32), dout[b, :, h].astype(np.float32)
            k, v = key[b, :, h // group].astype(np.float32), value[b, :, h // group].astype(np.float32)
            s = np.where(visible, (q @ k.T) * np.float32(scale), -np.inf)
            m = s.max(axis=1, initial=-np.inf, keepdims=True)
            p = np.where(visible, np.exp(s - np.where(np.isneginf(m), 0, m)), 0)
            total = p.sum(axis=1, keepdims=True)
            p = np.where(total == 0, 0, p / total)
            own = (p @ v).astype(out.dtype).astype(np.float32)
            delta = (d * own).sum(axis=1, keepdims=True) * np.float32(DELTA)
            ds = np.where(visible, p * (d @ v.T - delta), 0) * np.float32(scale)
            dq[b, :, h] = (ds @ k).astype(dq.dtype)
            dk_sum[b, :, h // group] += ds.T @ q
            dv_sum[b, :, h // group] += p.T @ d
    dk[...], dv[...] = dk_sum.astype(dk.dtype), dv_sum.astype(dv.dtype)
