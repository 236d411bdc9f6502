"""ONNX Runtime on the CPU: other forms of the arguments of GroupQueryAttention of com.microsoft.

Declared from the documentation: query may hold query, key and value, [B,S,(N + 2 * N_kv) * H], with key and value left out; attention_bias
"[batch_size or 1, num_heads or 1, sequence_length, total_sequence_length]", added; do_rotary with cos_cache and sin_cache
[max_sequence_length, H / 2], here 1 and 0, so that nothing turns; fp16. Causal from the bottom right corner; a batch with past and
several queries is refused, and declined here.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import attncheck
import numpy as np
from one_node import RELEASE, run

ZOO = {"title": "ONNX Runtime", "distribution": "onnxruntime",
       "environments": ["onnxruntime-1.32", "onnxruntime-1.24", "onnxruntime-1.20"],
       "kernels": ["group_query_packed", "group_query_rotary", "group_query_bias", "group_query_half"],
       "properties": {"": ["agreement", "causality", "row_view"]},
       "source": "https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md"}
FEATURES = ("layout=bshd,bhsd,sbhd outputs=out sink=none value_dim=dim q<=kv window_right=0 align=bottom_right mask=none kv_length=none ")
PRECISION = "hidden=times_zero"
# Types of the scores and of P where query is fp16; the products are of fp32 or fp16, as the processor has them.
HALF = "acc=half p=half scores=half scale=half hidden=times_zero"


def flat(t):
    return t.reshape(*t.shape[:2], t.shape[2] * t.shape[3])


def grouped(query, key, value, scale, softcap, window_left, bias=None, packed=False, rotary=False):
    past = key.shape[1] - query.shape[1]
    if scale == 0 or query.size == 0:
        raise attncheck.Declined("scale 0 means 1 / sqrt(head size), or an empty tensor")
    if len(query) > 1 and query.shape[1] > 1 and past > 0:
        raise attncheck.Declined("batch_size must be 1 when sequence_length > 1 and past context is given")
    if not all(np.isfinite(np.asarray(t, np.float32)).all() for t in (query, key)):
        raise attncheck.Declined("numbers that are not finite: see ORT-6")
    if RELEASE < (1, 24) and window_left >= 0:
        raise attncheck.Declined("a window: see ORT-8")
    name, new = query.dtype.name, [flat(t) for t in (query, key[:, past:], value[:, past:])]
    given = dict(zip(("query", "key", "value"), [np.concatenate(new, axis=2), None, None] if packed else new))
    given |= {n: t[:, :past].swapaxes(1, 2) for n, t in (("past_key", key), ("past_value", value))}
    total = key.shape[1]
    given |= {"seqlens_k": np.full(len(key), total - 1, np.int32), "total_sequence_length": np.array([total], np.int32)}
    if rotary:
        half = (total, query.shape[3] // 2)
        given |= {"cos_cache": np.ones(half, query.dtype), "sin_cache": np.zeros(half, query.dtype)}
    if bias is not None:
        given |= dict.fromkeys([n for n in ("cos_cache", "sin_cache") if n not in given]) | {"position_ids": None, "attention_bias": bias}
    extra = {"local_window_size": window_left + 1} if window_left >= 0 else {}
    outputs = [("output", name, 3), ("present_key", name, 4), ("present_value", name, 4)]
    return run("GroupQueryAttention", "com.microsoft", 21, given, outputs, num_heads=query.shape[2], kv_num_heads=key.shape[2],
               scale=float(scale), softcap=float(softcap), do_rotary=int(rotary), **extra)[0].reshape(query.shape)


@attncheck.kernel("attention", precision=PRECISION, features=FEATURES + "dtype=fp32 bias=none dim=8..128/8")
def group_query_packed(query, key, value, scale, softcap, window_left):
    return grouped(query, key, value, scale, softcap, window_left, packed=True)


@attncheck.kernel("attention", precision=PRECISION, features=FEATURES + "dtype=fp32 bias=none dim=16..128/16")
def group_query_rotary(query, key, value, scale, softcap, window_left):
    return grouped(query, key, value, scale, softcap, window_left, rotary=True)


@attncheck.kernel("attention", precision=PRECISION, features=FEATURES + "dtype=fp32 bias=none,full,one_batch,one_head,shared dim=8..64/8")
def group_query_bias(query, key, value, bias, scale, softcap, window_left):
    if RELEASE < (1, 22) and bias is not None:
        raise attncheck.Declined("attention_bias is no input of this release")
    if bias is not None and np.isneginf(bias).any():
        raise attncheck.Declined("a bias of -inf may leave a row without keys")
    return grouped(query, key, value, scale, softcap, window_left, bias=bias)


@attncheck.kernel("attention", precision=HALF, features=FEATURES + "dtype=fp16 bias=none dim=8..64/8")
def group_query_half(query, key, value, scale, softcap, window_left):
    return grouped(query, key, value, scale, softcap, window_left)
