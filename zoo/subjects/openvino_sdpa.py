"""OpenVINO on the CPU: ScaledDotProductAttention of opset 13, each call a model of one node, compiled in fp32.

Declared from the specification: query [N, ..., L, E], key [N, ..., S, E], value [N, ..., S, Ev]; attention_mask [N, ..., L, S]
of bool, true = takes part, or of the type of query, added; a scalar scale; causal from the top left corner, in which case
the mask is ignored. There is no window, softcap, sink, kv_length and log-sum-exp. Nothing is said of a row that sees no key.
"""

import functools
import sys
from pathlib import Path

import numpy as np
import openvino

try:
    import openvino.opset13 as ops
except ModuleNotFoundError:  # until 2024
    import openvino.runtime.opset13 as ops

sys.path.insert(0, str(Path(__file__).parents[1]))
import attncheck
from pairs import has_empty_row

ZOO = {"title": "OpenVINO ScaledDotProductAttention", "environments": ["openvino-2026.4", "openvino-2025.2", "openvino-2024.6"], "distribution": "openvino",
       "kernels": ["sdpa", "sdpa_any_row"], "properties": {"sdpa_any_row": ["agreement"]},
       "source": "https://docs.openvino.ai/2026/documentation/openvino-ir-format/operation-sets/operation-specs/"
                 "sequence/scaled-dot-product-attention.html"}
CORE = openvino.Core()
SETTINGS = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": "1"}
FEATURES = ("dtype=fp32 layout=bshd,bhsd,sbhd group=1 window_left=-1 window_right=-1,0 align=top_left softcap=0 "
            "kv_length=none sink=none outputs=out")


@functools.lru_cache(maxsize=64)
def model(types, causal):
    """Of inputs with these types and dynamic shapes: query, key, value, mask if there is one, scale."""
    inputs = [ops.parameter([-1, -1, -1, -1], t) for t in types] + [ops.parameter([], np.float32)]
    mask = inputs[3] if len(types) == 4 else ops.constant(np.float32(0))
    node = ops.scaled_dot_product_attention(*inputs[:3], mask, inputs[-1], causal=causal)
    return CORE.compile_model(openvino.Model([node], inputs, "attention"), "CPU", SETTINGS)


@attncheck.kernel("attention", features=FEATURES, precision="hidden=times_zero")
def sdpa_any_row(query, key, value, bias, mask, scale, window_right):
    if bias is not None and mask is not None or window_right == 0 and (bias is not None or mask is not None):
        raise attncheck.Declined("one of bias, mask and causal")
    if query.size == 0 or key.size == 0 or value.size == 0:
        raise attncheck.Declined("an empty tensor")
    given = [np.ascontiguousarray(t.swapaxes(1, 2)) for t in (query, key, value)]
    pairs = bias if mask is None else mask
    given += [] if pairs is None else [np.ascontiguousarray(pairs)]
    types = tuple(t.dtype.type for t in given)
    out = model(types, window_right == 0)([*given, np.float32(scale)])[0]
    return out.swapaxes(1, 2)


@attncheck.kernel("attention", features=FEATURES, precision="hidden=times_zero")
def sdpa(query, key, value, bias, mask, scale, window_right):
    if has_empty_row(query, key, bias, mask, right=window_right):
        raise attncheck.Declined("a row without keys")
    return sdpa_any_row(query, key, value, bias, mask, scale, window_right)
