"""The reference evaluator of the package onnx: Attention of opset 23, 24 and 25 in NumPy.

Declared as in onnx_attention.py, whose functions are called: the specification is the same, and the evaluator is its second text. As
the pattern of the specification has it, the root of the scale is multiplied into Q and K: a negative scale has none, and is declined.
"""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]
import attncheck
import onnx_attention as spec
from onnx_attention import attend

ZOO = {"title": "ONNX reference evaluator, Attention", "distribution": "onnx", "environments": ["onnx-1.23", "onnx-1.20", "onnx-1.18"],
       "kernels": ["opset_23", "opset_23_past", "opset_23_rank_3", "opset_23_half", "opset_24", "opset_25"],
       "properties": {"": ["agreement", "exact_lattice", "non_finite", "causality", "row_view", "written_mask", "gqa_repeat"]},
       "source": "https://onnx.ai/onnx/operators/onnx__Attention.html"}
PRECISION = "acc=fp32 p=half scale=half hidden=times_zero"
POSITIVE = "scale=one,rsqrt,eighth,zero,tenth,large "


@attncheck.kernel("attention", precision=PRECISION, features=spec.FEATURES + spec.ANY + POSITIVE + "kv_length=none window_right=-1,0")
def opset_23(query, key, value, bias, mask, scale, softcap, window_right):
    return attend(23, query, key, value, bias, mask, None, scale, softcap, window_right)


@attncheck.kernel("attention", precision=PRECISION, features=spec.FEATURES + spec.ANY + POSITIVE + "kv_length=none window_right=-1,0")
def opset_23_rank_3(query, key, value, bias, mask, scale, softcap, window_right):
    return attend(23, query, key, value, bias, mask, None, scale, softcap, window_right, rank=3)


# The keys before the last queries are the past.
@attncheck.kernel("attention", precision=PRECISION, features=spec.COMMON + spec.ANY + POSITIVE + "dtype=fp32 align=bottom_right kv_length=none window_right=-1,0 q<=kv")
def opset_23_past(query, key, value, bias, mask, scale, softcap, window_right):
    return attend(23, query, key, value, bias, mask, None, scale, softcap, window_right, past=key.shape[1] - query.shape[1])


@attncheck.kernel("attention", precision=spec.HALF, features=spec.COMMON + spec.ANY + POSITIVE + "dtype=fp16 align=top_left kv_length=none window_right=-1,0")
def opset_23_half(query, key, value, bias, mask, scale, softcap, window_right):
    return attend(23, query, key, value, bias, mask, None, scale, softcap, window_right)


# No causal calls with kv_length, see onnx_attention.py.
@attncheck.kernel("attention", precision=PRECISION, features=spec.FEATURES + spec.ANY + POSITIVE + "window_right=-1")
def opset_24(query, key, value, bias, mask, kv_length, scale, softcap, window_right):
    return attend(24, query, key, value, bias, mask, kv_length, scale, softcap, window_right)


@attncheck.kernel("attention", precision=PRECISION, features=spec.ANY_WINDOW + spec.ANY + POSITIVE + "dtype=fp32 align=top_left kv_length=none")
def opset_25(query, key, value, bias, mask, scale, softcap, window_left, window_right):
    return attend(25, query, key, value, bias, mask, None, scale, softcap, window_right, window_left=window_left)
