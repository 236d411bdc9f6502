"""flash_attention_score in NumPy: layouts BSND and BNSD, a full mask, no bias and no dropout."""

import numpy as np

import attncheck


@attncheck.kernel("flash_attention_score",
                  features="layout=BSND,BNSD sparse=0,1 mask_form=batch,one,head pse=absent drop=absent rope=0 "
                           "tokens=given,unlimited", precision="hidden=times_zero")
def flash(query, key, value, atten_mask=None, *, input_layout, scale_value, sparse_mode, pre_tokens, next_tokens,
          head_num):
    if input_layout not in ("BSND", "BNSD"):
        raise attncheck.Declined(f"layout {input_layout}")
    heads_last = input_layout == "BSND"
    q, k, v = (np.asarray(t, np.float32).transpose(0, 2, 1, 3) if heads_last else np.asarray(t, np.float32)
               for t in (query, key, value))
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    queries, keys = q.shape[2], k.shape[2]
    seen = np.ones((queries, keys), bool)
    if atten_mask is not None:
        if sparse_mode == 0:
            ahead = np.arange(keys)[None] - np.arange(queries)[:, None]
            seen = (ahead <= next_tokens) & (-ahead <= pre_tokens)
        seen = seen & (np.asarray(atten_mask) == 0)
    seen = np.broadcast_to(seen, q.shape[:2] + (queries, keys))
    s = np.where(seen, np.float32(scale_value) * (q @ k.transpose(0, 1, 3, 2)), -np.inf)
    top = s.max(axis=-1, keepdims=True, initial=-np.inf)
    p = np.exp(s - np.where(np.isneginf(top), 0, top))
    total = p.sum(axis=-1, keepdims=True)
    empty = ~seen.any(axis=-1, keepdims=True)
    out = (p @ v) / np.where(empty, 1, total)
    limit = np.finfo(np.float32).max
    lanes = q.shape[:3] + (8,)
    softmax_max = np.broadcast_to(np.where(empty, -limit, top), lanes)
    softmax_sum = np.broadcast_to(np.where(empty, limit, total), lanes)
    out = out.astype(query.dtype)
    return softmax_max.astype(np.float32), softmax_sum.astype(np.float32), \
        out.transpose(0, 2, 1, 3) if heads_last else out
