"""Arguments of `attention` in the forms that libraries take, positions of sequences, masks, repeated heads, and kernels that are asked for
everything beside those that are judged.
"""

import functools

import numpy as np


def sequences(query, key, cu_seqlens_q, cu_seqlens_kv):
    """Pairs of slices, one for each sequence: (b or rows of query, b or rows of key)."""
    if cu_seqlens_q is None:
        return [(b, b) for b in range(query.shape[0])]
    return [(slice(q0, q1), slice(k0, k1)) for q0, q1, k0, k1 in
            zip(cu_seqlens_q, cu_seqlens_q[1:], cu_seqlens_kv, cu_seqlens_kv[1:])]


def window_mask(queries, keys, left, right, align):
    """[queries, keys] of bool: key j is visible to query i iff i + off - left <= j <= i + off + right; -1 is no limit."""
    ahead = np.arange(keys)[None] - np.arange(queries)[:, None] - (keys - queries if align else 0)
    seen = np.ones((queries, keys), bool)
    if left >= 0:
        seen &= -ahead <= left
    if right >= 0:
        seen &= ahead <= right
    return seen


def is_full(left, right):
    return left < 0 and right < 0


def has_empty_row(query, key, bias=None, mask=None, kv_length=None, left=-1, right=-1, align=0):
    """Whether a row of a padded call sees no key: libraries that say nothing of such rows are asked apart."""
    seen = window_mask(query.shape[1], key.shape[1], left, right, align)[None, None]
    if kv_length is not None:
        seen = seen & (np.arange(key.shape[1]) < np.asarray(kv_length)[:, None, None, None])
    if mask is not None:
        seen = seen & np.asarray(mask, bool)
    if bias is not None:
        seen = seen & ~np.isneginf(np.asarray(bias, np.float32))
    return not seen.any(axis=-1).all()


def judged_and_any(call, decline, **mark):
    """The kernel that `decline` keeps from what the documentation leaves open, and the one that takes every call."""
    import attncheck

    @functools.wraps(call)
    def judged(**given):
        decline(**given)
        return call(**given)

    marked = attncheck.kernel("attention", **mark)
    return marked(judged), marked(call)


def decline_unsaid(query, key, bias, mask, window_right):
    """Declines rows without keys, and a causal mask of which no corner is named."""
    import attncheck
    if has_empty_row(query, key, bias, mask, right=window_right) or window_right == 0 and query.shape[1] != key.shape[1]:
        raise attncheck.Declined("a row without keys, or causal with other queries than keys")
