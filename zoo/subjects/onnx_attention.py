"""ONNX Runtime on the CPU: Attention of ONNX, opset 23, 24 and 25.

Declared from the specification: Q, K, V of four dimensions, or of three with q_num_heads and kv_num_heads; attn_mask
"broadcastable to (batch_size, q_num_heads, q_sequence_length, total_sequence_length)", a shorter last dimension is filled up
with -inf, of bool (True = takes part) or of the type of query, added; is_causal without a cache is the lower triangle from
the top left corner, and counts from the end of the past where past_key is given; softcap before the mask ("scale, softcap,
add, softmax"). Opset 24 adds nonpad_kv_seqlen = kv_length, from which is_causal then counts (per batch, bottom right).
Opset 25 adds left_window_size and right_window_size, with the query's own key, -1 is none, counted as is_causal.
The `..._settled` functions decline what ORT-1, ORT-3 and ORT-4 are about, so that these do not hide the rest.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import attncheck
import numpy as np
from one_node import run
from pairs import has_empty_row

ZOO = {"title": "ONNX Runtime Attention", "distribution": "onnxruntime",
       "environments": ["onnxruntime-1.32", "onnxruntime-1.24", "onnxruntime-1.23"],
       "kernels": ["opset_23", "opset_23_any_mask", "opset_23_settled", "opset_23_rank_3", "opset_23_past", "opset_23_half",
                   "opset_24", "opset_24_settled", "opset_25"],
       "properties": {"opset_23_any_mask": ["agreement"], "opset_23_rank_3": ["agreement", "causality", "gqa_repeat"],
                      "opset_23_past": ["agreement", "causality", "gqa_repeat"], "opset_23_half": ["agreement", "causality"]},
       "source": "https://onnx.ai/onnx/operators/onnx__Attention.html"}
ANY_WINDOW = "layout=bshd,bhsd,sbhd outputs=out sink=none "
COMMON = ANY_WINDOW + "window_left=-1 "
FEATURES = COMMON + "dtype=fp32 align=top_left "
FORMS = "none,full,one_batch,one_head,shared"
ROWS = f"mask={FORMS} bias={FORMS} "
ANY = f"mask={FORMS},per_key,head_key bias={FORMS},per_key,head_key "
PRECISION = "hidden=times_zero"
# fp16: the scores are stored in it, and the softmax has its type as well (softmax_precision is not set).
HALF = "acc=half p=half scores=half scale=half hidden=times_zero"


def attend(opset, query, key, value, bias, mask, kv_length, scale, softcap, window_right, past=None, rank=4, window_left=None):
    if bias is not None and (mask is not None or bias.dtype != query.dtype):
        raise attncheck.Declined("one attn_mask, of the type of query")
    if rank == 3 and query.size * key.size == 0:
        raise attncheck.Declined("an empty tensor")
    old = [None if past is None else t[:, :past].swapaxes(1, 2) for t in (key, value)]
    new = [query] + [t[:, past or 0:] for t in (key, value)]
    heads = {"q_num_heads": query.shape[2], "kv_num_heads": key.shape[2]} if rank == 3 else {}
    q, k, v = (t.reshape(*t.shape[:2], -1) if rank == 3 else t.swapaxes(1, 2) for t in new)
    given = {"Q": q, "K": k, "V": v, "attn_mask": bias if mask is None else mask}
    if kv_length is not None or past is not None:
        given |= dict(zip(("past_key", "past_value"), old))
    if kv_length is not None:
        given |= {"nonpad_kv_seqlen": np.asarray(kv_length, np.int64)}
    if window_left is not None:
        heads |= {"left_window_size": window_left, "right_window_size": window_right}
    name = q.dtype.name
    outputs = [("Y", name, rank)] + ([] if past is None else [("present_key", name, 4), ("present_value", name, 4)])
    out = run("Attention", "", opset, given, outputs, scale=float(scale), softcap=float(softcap), is_causal=int(window_right == 0 and window_left is None), **heads)[0]
    return out.reshape(query.shape[:3] + value.shape[3:]) if rank == 3 else out.swapaxes(1, 2)


def settled(query, key, bias, mask, kv_length, right, align=0):
    if key.shape[2] < query.shape[2] and (bias is not None or mask is not None or kv_length is not None):
        raise attncheck.Declined("a mask with grouped heads, see ORT-4")
    if right == 0 and not align and query.shape[1] != key.shape[1]:
        raise attncheck.Declined("is_causal with more keys than queries, see ORT-1")
    if has_empty_row(query, key, bias, mask, kv_length, right=right, align=align):
        raise attncheck.Declined("a row without keys, see ORT-3")


@attncheck.kernel("attention", precision=PRECISION, features=FEATURES + ANY + "kv_length=none window_right=-1,0")
def opset_23_any_mask(query, key, value, bias, mask, scale, softcap, window_right):
    return attend(23, query, key, value, bias, mask, None, scale, softcap, window_right)


@attncheck.kernel("attention", precision=PRECISION, features=FEATURES + ROWS + "kv_length=none window_right=-1,0")
def opset_23(query, key, value, bias, mask, scale, softcap, window_right):
    return opset_23_any_mask(query, key, value, bias, mask, scale, softcap, window_right)


@attncheck.kernel("attention", precision=PRECISION, features=FEATURES + ROWS + "kv_length=none window_right=-1,0")
def opset_23_settled(query, key, value, bias, mask, scale, softcap, window_right):
    settled(query, key, bias, mask, None, window_right)
    return attend(23, query, key, value, bias, mask, None, scale, softcap, window_right)


@attncheck.kernel("attention", precision=PRECISION, features=FEATURES + ROWS + "kv_length=none window_right=-1,0")
def opset_23_rank_3(query, key, value, bias, mask, scale, softcap, window_right):
    settled(query, key, bias, mask, None, window_right)
    return attend(23, query, key, value, bias, mask, None, scale, softcap, window_right, rank=3)


# The keys before the last queries are the past.
@attncheck.kernel("attention", precision=PRECISION, features=COMMON + ROWS + "dtype=fp32 align=bottom_right kv_length=none window_right=-1,0 q<=kv")
def opset_23_past(query, key, value, bias, mask, scale, softcap, window_right):
    settled(query, key, bias, mask, None, window_right, align=1)
    return attend(23, query, key, value, bias, mask, None, scale, softcap, window_right, past=key.shape[1] - query.shape[1])


@attncheck.kernel("attention", precision=HALF, features=COMMON + ROWS + "dtype=fp16 align=top_left kv_length=none window_right=-1,0")
def opset_23_half(query, key, value, bias, mask, scale, softcap, window_right):
    settled(query, key, bias, mask, None, window_right)
    return attend(23, query, key, value, bias, mask, None, scale, softcap, window_right)


@attncheck.kernel("attention", precision=PRECISION, features=FEATURES + ROWS + "window_right=-1")
def opset_24(query, key, value, bias, mask, kv_length, scale, softcap, window_right):
    return attend(24, query, key, value, bias, mask, kv_length, scale, softcap, window_right)


# With nonpad_kv_seqlen is_causal counts from its end, which no field of a case says: no causal calls.
@attncheck.kernel("attention", precision=PRECISION, features=FEATURES + ROWS + "window_right=-1")
def opset_24_settled(query, key, value, bias, mask, kv_length, scale, softcap, window_right):
    settled(query, key, bias, mask, kv_length, window_right)
    return attend(24, query, key, value, bias, mask, kv_length, scale, softcap, window_right)


# No kv_length, from whose end a window would count; no negative scale: the operator is expanded as specified, with its root in Q and K.
@attncheck.kernel("attention", precision=PRECISION + " scale=half", features=ANY_WINDOW + ROWS + "dtype=fp32 align=top_left kv_length=none scale=one,rsqrt,eighth,zero,tenth,large")
def opset_25(query, key, value, bias, mask, scale, softcap, window_left, window_right):
    return attend(25, query, key, value, bias, mask, None, scale, softcap, window_right, window_left=window_left)
