"""ONNX Runtime on the CPU: Attention (opset 23) with is_causal, one query and two keys. No attncheck; expected: 1."""

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [None] * 4) for n in "QKV"]
graph = helper.make_graph([helper.make_node("Attention", ["Q", "K", "V"], ["Y"], is_causal=1)], "g", inputs,
                          [helper.make_tensor_value_info("Y", TensorProto.FLOAT, [None] * 4)])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
zeros = lambda keys: np.zeros((1, 1, keys, 1), np.float32)
v = np.array([1, 0], np.float32).reshape(1, 1, 2, 1)
# "lower triangular from the upper left corner": the query sees key 0 alone. With both keys the result is 0.5.
print(onnxruntime.__version__, session.run(None, {"Q": zeros(1), "K": zeros(2), "V": v})[0].item())
