"""OpenVINO on the CPU: Attention of ONNX and the operators of com.microsoft, through its front end of ONNX, compiled in fp32.

Declared as in onnx_attention.py and onnxruntime_contrib.py, whose functions are called: OpenVINO lists the operators as supported and
documents nothing else of them, so that the specifications of ONNX and of com.microsoft hold. Every call is a model of one node, whose
batch and lengths are open; heads and channels are open under `open_heads` only. What the front end says it cannot convert is declined.
`group_query` has batches of one, `group_query_batch` others; causal MultiHeadAttention with more keys than queries is asked apart.
"""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]
import attncheck
import onnx_attention
import one_node
import onnxruntime_contrib as contrib
from onnx_attention import opset_23, opset_23_past, opset_23_rank_3, opset_23_settled  # noqa: F401
from onnxruntime_contrib import multi_head, multi_head_any_row, multi_head_causal  # noqa: F401

ZOO = {"title": "OpenVINO, operators of ONNX", "distribution": "openvino", "environments": ["openvino-onnx-2026.4", "openvino-onnx-2025.4"],
       "kernels": ["opset_23", "opset_23_settled", "opset_23_rank_3", "opset_23_past", "open_heads", "open_heads_one_thread", "multi_head", "multi_head_any_row",
                   "multi_head_causal", "group_query", "group_query_batch", "group_query_decode"],
       "properties": {"": ["agreement", "causality", "gqa_repeat", "row_view", "repeatable"], "open_heads": ["agreement"], "open_heads_one_thread": ["agreement"],
                      "opset_23_settled": ["agreement", "non_finite"], "multi_head_causal": ["agreement"], "multi_head_any_row": ["agreement"], "group_query": ["agreement"],
                      "group_query_decode": ["agreement"], "group_query_batch": ["agreement"]},
       "source": "https://github.com/openvinotoolkit/openvino/blob/master/src/frontends/onnx/docs/supported_ops.md"}
# A model is compiled for each number of heads and channels: few are asked.
GROUPED = "layout=bshd,bhsd,sbhd outputs=out dtype=fp32 value_dim=dim q<=kv dim=8,64 kv_heads=1,2 group=1,2 window_right=0 align=bottom_right mask=none bias=none kv_length=none sink=none "


OPEN = onnx_attention.FEATURES + "mask=none bias=none kv_length=none window_right=-1"


@attncheck.kernel("attention", precision="hidden=times_zero", features=OPEN)
def open_heads_one_thread(query, key, value, scale, softcap, window_right):
    one_node.OPEN_HEADS = True
    return onnx_attention.attend(23, query, key, value, None, None, None, scale, softcap, window_right)


# OV-2: under a limit of one thread these calls do not say what is wrong.
@attncheck.kernel("attention", precision="hidden=times_zero", features=OPEN)
def open_heads(query, key, value, scale, softcap, window_right):
    one_node.SETTINGS.pop("INFERENCE_NUM_THREADS", None)
    return open_heads_one_thread(query, key, value, scale, softcap, window_right)


@attncheck.kernel("attention", precision="hidden=times_zero", features=GROUPED)
def group_query_batch(query, key, value, scale, softcap, window_left):
    one_node.SETTINGS.pop("INFERENCE_NUM_THREADS", None)
    return contrib.group_query(query, key, value, None, scale, softcap, window_left)


@attncheck.kernel("attention", precision="hidden=times_zero", features=GROUPED + "sequences=1")
def group_query(query, key, value, scale, softcap, window_left):
    return contrib.group_query(query, key, value, None, scale, softcap, window_left)


@attncheck.kernel("attention_decode", precision="hidden=times_zero", features="dtype=fp32 value_dim=dim dim=8,64 kv_heads=1,2 group=1,2 "
                  "outputs=out sequences=1 sink=none")
def group_query_decode(query, key_cache, value_cache, block_table, kv_length, scale, softcap, window_left):
    return contrib.group_query_decode(query, key_cache, value_cache, block_table, kv_length, None, scale, softcap, window_left)
