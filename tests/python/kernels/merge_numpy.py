"""attention_merge in NumPy: two outputs, the second optional."""

import numpy as np


def attention_merge(parts, lses):
    shift = lses.max(axis=0, initial=-np.inf)
    weights = np.exp(lses - np.where(np.isneginf(shift), 0, shift))  # [P,R,H], 0 for parts that count for nothing
    total = weights.sum(axis=0)
    weights = np.divide(weights, total, where=total > 0, out=np.zeros_like(weights))
    live = np.where(np.isneginf(lses)[..., None], 0, parts.astype(np.float32))
    out = (weights[..., None] * live).sum(axis=0)
    with np.errstate(divide="ignore"):
        lse = shift + np.log(total)
    return out.astype(parts.dtype), lse.astype(np.float32)
