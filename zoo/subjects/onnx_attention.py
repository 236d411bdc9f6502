"""ONNX Runtime on the CPU: Attention of ONNX, opset 23 and 24.

Declared from the specification: Q, K, V of four dimensions; attn_mask "broadcastable to (batch_size, q_num_heads,
q_sequence_length, total_sequence_length)", a shorter last dimension is filled up with -inf, of bool (True = takes part) or of the type of query, added; is_causal without a
cache is the lower triangle from the top left corner; softcap before the mask. Opset 24 adds nonpad_kv_seqlen = kv_length,
from which is_causal then counts (per batch, bottom right).
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import attncheck
import numpy as np
from one_node import run

ZOO = {"title": "ONNX Runtime Attention", "distribution": "onnxruntime",
       "environments": ["onnxruntime-1.32", "onnxruntime-1.24", "onnxruntime-1.23"], "kernels": ["opset_23", "opset_23_any_mask", "opset_24"],
       "properties": {"opset_23_any_mask": ["agreement"]},
       "source": "https://onnx.ai/onnx/operators/onnx__Attention.html"}
FEATURES = "dtype=fp32 layout=bshd,bhsd,sbhd outputs=out window_left=-1 align=top_left sink=none "
FORMS = "none,full,one_batch,one_head,shared"
ROWS = f"mask={FORMS} bias={FORMS} "
ANY = f"mask={FORMS},per_key,head_key bias={FORMS},per_key,head_key "
PRECISION = "hidden=times_zero"


def attend(opset, query, key, value, bias, mask, kv_length, scale, softcap, window_right):
    if bias is not None and (mask is not None or bias.dtype != query.dtype):
        raise attncheck.Declined("one attn_mask, of the type of query")
    q, k, v = (t.swapaxes(1, 2) for t in (query, key, value))
    given = {"Q": q, "K": k, "V": v, "attn_mask": bias if mask is None else mask}
    if kv_length is not None:
        given |= {"past_key": None, "past_value": None, "nonpad_kv_seqlen": np.asarray(kv_length, np.int64)}
    out = run("Attention", "", opset, given, [("Y", q.dtype.name, 4)], scale=float(scale), softcap=float(softcap),
              is_causal=int(window_right == 0))[0]
    return out.swapaxes(1, 2)


@attncheck.kernel("attention", precision=PRECISION, features=FEATURES + ANY + "kv_length=none window_right=-1,0")
def opset_23_any_mask(query, key, value, bias, mask, scale, softcap, window_right):
    return attend(23, query, key, value, bias, mask, None, scale, softcap, window_right)


@attncheck.kernel("attention", precision=PRECISION, features=FEATURES + ROWS + "kv_length=none window_right=-1,0")
def opset_23(query, key, value, bias, mask, scale, softcap, window_right):
    return opset_23_any_mask(query, key, value, bias, mask, scale, softcap, window_right)


@attncheck.kernel("attention", precision=PRECISION, features=FEATURES + ROWS + "window_right=-1")
def opset_24(query, key, value, bias, mask, kv_length, scale, softcap, window_right):
    return attend(24, query, key, value, bias, mask, kv_length, scale, softcap, window_right)
