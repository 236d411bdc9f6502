"""ONNX Runtime on the CPU: MultiHeadAttention and GroupQueryAttention of com.microsoft.

Declared from the documentation: MultiHeadAttention: fp32 on the CPU, attention_bias [1 or B, 1 or N, S, T],
unidirectional: "every token can only attend to previous tokens", where the queries are the last tokens.
GroupQueryAttention: always causal from the bottom right corner; seqlens_k = total length - 1 of each sequence; past and new
keys; local_window_size keys with the query's own; softcap; head_sink of the type of query; head size a multiple of 8.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import attncheck
import numpy as np
from one_node import RELEASE, run
from pairs import has_empty_row

ZOO = {"title": "ONNX Runtime", "distribution": "onnxruntime",
       "environments": ["onnxruntime-1.32", "onnxruntime-1.24", "onnxruntime-1.20"],
       "kernels": ["multi_head", "multi_head_any_row", "multi_head_causal", "group_query", "group_query_decode"],
       "properties": {"multi_head_causal": ["agreement"], "multi_head_any_row": ["agreement"]},
       "source": "https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md"}
COMMON = "layout=bshd,bhsd,sbhd outputs=out "


def all_heads(query, key, value, bias, scale, window_right):
    if scale == 0:
        raise attncheck.Declined("scale 0 means 1 / sqrt(head size)")
    q, k, v = (t.reshape(t.shape[:2] + (t.shape[2] * t.shape[3],)) for t in (query, key, value))
    given = {"query": q, "key": k, "value": v, "bias": None, "key_padding_mask": None, "attention_bias": bias}
    out = run("MultiHeadAttention", "com.microsoft", 21, given, [("output", q.dtype.name, 3)],
              num_heads=query.shape[2], scale=float(scale), unidirectional=int(window_right == 0))[0]
    return out.reshape(query.shape[:3] + value.shape[3:])


HEADS = COMMON + ("dtype=fp32 group=1 window_left=-1 softcap=0 mask=none kv_length=none bias=none,full,one_batch,one_head,shared "
                  "sink=none ")


@attncheck.kernel("attention", precision="hidden=times_zero", features=HEADS + "window_right=-1")
def multi_head_any_row(query, key, value, bias, scale, window_right):
    return all_heads(query, key, value, bias, scale, window_right)


@attncheck.kernel("attention", precision="hidden=times_zero", features=HEADS + "window_right=-1")
def multi_head(query, key, value, bias, scale, window_right):
    if has_empty_row(query, key, bias):
        raise attncheck.Declined("a row without keys")
    return all_heads(query, key, value, bias, scale, window_right)


@attncheck.kernel("attention", precision="hidden=times_zero", features=HEADS + "window_right=0 align=bottom_right q<=kv")
def multi_head_causal(query, key, value, bias, scale, window_right):
    return all_heads(query, key, value, bias, scale, window_right)


def grouped(q, new, old, total, longest, sink, scale, softcap, window_left):
    """new and old: [k, v] as [B,S,Hkv,D] and as [B,Hkv,past,D]."""
    if scale == 0:
        raise attncheck.Declined("scale 0 means 1 / sqrt(head size)")
    if sink is not None and RELEASE < (1, 23):
        raise attncheck.Declined("head_sink is no input of this release")
    (k, v), name = new, q.dtype.name
    if len(q) > 1 and q.shape[1] > 1 and max(total) > q.shape[1]:
        raise attncheck.Declined("batch_size must be 1 when sequence_length > 1 and past context is given")
    flat = [t.reshape(t.shape[:2] + (t.shape[2] * t.shape[3],)) for t in (q, k, v)]
    given = dict(zip(("query", "key", "value", "past_key", "past_value"), flat + old))
    given |= {"seqlens_k": np.asarray(total, np.int32) - 1, "total_sequence_length": np.array([longest], np.int32)}
    if sink is not None:
        given |= dict.fromkeys(("cos", "sin", "position_ids", "attention_bias")) | {"head_sink": sink.astype(q.dtype)}
    extra = {"local_window_size": window_left + 1} if window_left >= 0 else {}
    out = run("GroupQueryAttention", "com.microsoft", 21, given,
              [("output", name, 3), ("present_key", name, 4), ("present_value", name, 4)], num_heads=q.shape[2],
              kv_num_heads=k.shape[2], scale=float(scale), softcap=float(softcap), **extra)[0]
    return out.reshape(q.shape)


@attncheck.kernel("attention", precision="hidden=times_zero", features=COMMON +
                  "dtype=fp32 value_dim=dim q<=kv dim=8..512/8 window_right=0 align=bottom_right mask=none bias=none kv_length=none")
def group_query(query, key, value, sink, scale, softcap, window_left):
    past = key.shape[1] - query.shape[1]
    if query.size == 0:
        raise attncheck.Declined("an empty tensor")
    old = [t[:, :past].swapaxes(1, 2) for t in (key, value)]
    return grouped(query, [key[:, past:], value[:, past:]], old, [key.shape[1]] * len(key), key.shape[1], sink, scale,
                   softcap, window_left)


@attncheck.kernel("attention_decode", precision="hidden=times_zero", features="dtype=fp32 value_dim=dim dim=8..512/8 outputs=out")
def group_query_decode(query, key_cache, value_cache, block_table, kv_length, sink, scale, softcap, window_left):
    new = query.shape[1]
    if query.size == 0 or min(kv_length) < new:
        raise attncheck.Declined("an empty tensor")
    longest, page = max(kv_length), key_cache.shape[1]
    given = []
    for cache in (key_cache, value_cache):  # [B, longest, Hkv, D], what is behind a sequence is 0
        rows = np.zeros((len(kv_length), longest) + cache.shape[2:], cache.dtype)
        for b, length in enumerate(kv_length):
            at = np.arange(length)
            rows[b, :length] = cache[block_table[b, at // page], at % page]
        given.append(rows)
    latest = [np.stack([rows[b, length - new:length] for b, length in enumerate(kv_length)]) for rows in given]
    old = [rows[:, :longest - new].swapaxes(1, 2) for rows in given]
    return grouped(query, latest, old, kv_length, longest, sink, scale, softcap, window_left)
