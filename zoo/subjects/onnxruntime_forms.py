"""ONNX Runtime on the CPU: other forms of the arguments of Attention and MultiHeadAttention of com.microsoft.

Declared from the documentation: Attention: input [B,S,I] times weights [I, 3 * hidden], here the unit matrix; bias is optional; mask_index of lengths
[B], [B,T] or [B,S,T] (1: takes part); unidirectional; past [2,B,N,P,H]. MultiHeadAttention: key_padding_mask of the same three forms;
key and value [B,N,L,H]; past_key, past_value [B,N,P,H]; mask_filter_value is what a hidden score gets. Rows without keys are
declined: nothing is said of them.
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
       "properties": {"": ["agreement", "causality", "row_view"], "attention_no_bias": ["agreement"]},
       "kernels": ["attention_no_bias", "attention_lengths", "attention_rows", "attention_past", "multi_head_lengths", "multi_head_rows", "multi_head_past",
                   "multi_head_cross"],
       "source": "https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md"}
LOWEST = float(np.finfo(np.float32).min)
PRECISION = "hidden=times_zero"
HEADS = ("layout=bshd,bhsd,sbhd outputs=out sink=none dtype=fp32 group=1 window_left=-1 softcap=0 bias=none ")


def flat(t):
    return t.reshape(*t.shape[:2], t.shape[2] * t.shape[3])


def finite(scale, *tensors):
    if scale == 0 or not all(np.isfinite(np.asarray(t, np.float32)).all() and np.abs(np.asarray(t, np.float32)).max(initial=0) < 1e15 for t in tensors):
        raise attncheck.Declined("scale 0 means 1 / sqrt(head size); numbers that a product with the unit matrix or a finite hidden score would spread")


def hidden_keys(query, key, kv_length, mask, right, form, align):
    """mask_index or key_padding_mask in int32."""
    if mask is not None and kv_length is not None:
        raise attncheck.Declined("one mask")
    if has_empty_row(query, key, None, mask, kv_length, right=right, align=align):
        raise attncheck.Declined("a row without keys")
    if kv_length is not None:
        lengths = np.asarray(kv_length, np.int32)
        return lengths if form == "lengths" else (np.arange(key.shape[1]) < lengths[:, None]).astype(np.int32)
    return None if mask is None else np.broadcast_to(mask[:, 0], (len(query), query.shape[1], key.shape[1])).astype(np.int32)


def projected(query, key, value, index, scale, right, past=0, bias=True):
    """Attention: the input is query, key and value side by side, and what is before it is the past."""
    finite(scale, query, key, value)
    new = np.concatenate([flat(query), flat(key[:, past:]), flat(value[:, past:])], axis=2)
    given = {"input": new, "weights": np.eye(new.shape[2], dtype=np.float32),
             "bias": np.zeros(new.shape[2], np.float32) if bias else None, "mask_index": index, "past": None}
    outputs = [("output", "float32", 3)]
    if past:
        given["past"] = np.stack([key[:, :past].swapaxes(1, 2), value[:, :past].swapaxes(1, 2)])
        outputs.append(("present", "float32", 5))
    return run("Attention", "com.microsoft", 21, given, outputs, num_heads=query.shape[2], scale=float(scale), unidirectional=int(right == 0),
               mask_filter_value=LOWEST, qkv_hidden_sizes=tuple(flat(t).shape[2] for t in (query, key, value)))[0].reshape(query.shape[:3] + value.shape[3:])


def many_heads(query, keys, values, padding, past, scale):
    """MultiHeadAttention; keys and values as [B,L,N,H], or past and new."""
    given = {"query": flat(query), "key": keys, "value": values, "bias": None, "key_padding_mask": padding, "attention_bias": None}
    outputs = [("output", "float32", 3)]
    if past:
        given |= dict(zip(("past_key", "past_value"), past))
        outputs += [("present_key", "float32", 4), ("present_value", "float32", 4)]
    return run("MultiHeadAttention", "com.microsoft", 21, given, outputs, num_heads=query.shape[2], scale=float(scale), mask_filter_value=LOWEST)[0]


@attncheck.kernel("attention", precision=PRECISION, features=HEADS + "q=kv dim=1..32 kv_heads=1..4 window_right=-1,0 align=top_left mask=none")
def attention_lengths(query, key, value, kv_length, scale, window_right):
    return projected(query, key, value, hidden_keys(query, key, kv_length, None, window_right, "lengths", 0), scale, window_right)


@attncheck.kernel("attention", precision=PRECISION, features=HEADS + "q=kv dim=1..32 kv_heads=1..4 window_right=-1,0 align=top_left mask=none kv_length=none")
def attention_no_bias(query, key, value, scale, window_right):
    return projected(query, key, value, None, scale, window_right, bias=False)


@attncheck.kernel("attention", precision=PRECISION, features=HEADS + "q=kv dim=1..32 kv_heads=1..4 window_right=-1,0 align=top_left mask=none,one_head,shared")
def attention_rows(query, key, value, kv_length, mask, scale, window_right):
    return projected(query, key, value, hidden_keys(query, key, kv_length, mask, window_right, "keys", 0), scale, window_right)


@attncheck.kernel("attention", precision=PRECISION, features=HEADS + "q<=kv dim=1..32 value_dim=dim kv_heads=1..4 window_right=0 align=bottom_right mask=none kv_length=none")
def attention_past(query, key, value, scale):
    return projected(query, key, value, None, scale, 0, key.shape[1] - query.shape[1])


@attncheck.kernel("attention", precision=PRECISION, features=HEADS + "window_right=-1 mask=none")
def multi_head_lengths(query, key, value, kv_length, scale):
    finite(scale, query, key, value)
    padding = hidden_keys(query, key, kv_length, None, -1, "lengths", 0)
    return many_heads(query, flat(key), flat(value), padding, None, scale).reshape(query.shape[:3] + value.shape[3:])


@attncheck.kernel("attention", precision=PRECISION, features=HEADS + "window_right=-1 mask=none,one_head,shared")
def multi_head_rows(query, key, value, kv_length, mask, scale):
    finite(scale, query, key, value)
    padding = hidden_keys(query, key, kv_length, mask, -1, "keys", 0)
    return many_heads(query, flat(key), flat(value), padding, None, scale).reshape(query.shape[:3] + value.shape[3:])


@attncheck.kernel("attention", precision=PRECISION, features=HEADS + "q<=kv value_dim=dim window_right=-1 mask=none")
def multi_head_past(query, key, value, kv_length, scale):
    finite(scale, query, key, value)
    past = key.shape[1] - query.shape[1]
    padding = hidden_keys(query, key, kv_length, None, -1, "keys", 0)
    old = [t[:, :past].swapaxes(1, 2) for t in (key, value)]
    return many_heads(query, flat(key[:, past:]), flat(value[:, past:]), padding, old, scale).reshape(query.shape[:3] + value.shape[3:])


@attncheck.kernel("attention", precision=PRECISION, features=HEADS + "value_dim=dim window_right=-1 mask=none kv_length=none")
def multi_head_cross(query, key, value, scale):
    finite(scale)
    return many_heads(query, key.swapaxes(1, 2), value.swapaxes(1, 2), None, None, scale).reshape(query.shape[:3] + value.shape[3:])
