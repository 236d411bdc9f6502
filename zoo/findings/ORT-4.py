"""ONNX Runtime on the CPU: Attention (opset 23), two query heads, one key head, a mask for each query head. No attncheck."""

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

types = dict.fromkeys("QKVM", TensorProto.FLOAT)
graph = helper.make_graph([helper.make_node("Attention", list(types), ["Y"])], "g",
                          [helper.make_tensor_value_info(n, t, [None] * 4) for n, t in types.items()],
                          [helper.make_tensor_value_info("Y", TensorProto.FLOAT, [None] * 4)])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
zeros = lambda heads: np.zeros((1, heads, 1, 1), np.float32)
print(onnxruntime.__version__)
print(session.run(None, {"Q": zeros(2), "K": zeros(1), "V": zeros(1), "M": zeros(2)})[0].ravel())  # expected: 0, 0
