"""ONNX Runtime on the CPU: Attention (opset 23) with 4 query heads and 2 key heads. No attncheck; the specification: 0 0 1 1."""

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

graph = helper.make_graph([helper.make_node("Attention", list("QKV"), ["Y"])], "g",
                          [helper.make_tensor_value_info(n, TensorProto.FLOAT, [None] * 4) for n in "QKV"],
                          [helper.make_tensor_value_info("Y", TensorProto.FLOAT, [None] * 4)])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
zeros = lambda heads: np.zeros((1, heads, 1, 1), np.float32)
values = np.array([0, 1], np.float32).reshape(1, 2, 1, 1)  # the number of the key head
print(onnxruntime.__version__, "key head of each query head:", *session.run(None, {"Q": zeros(4), "K": zeros(2), "V": values})[0].ravel())
