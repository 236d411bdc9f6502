"""ONNX Runtime on the CPU: Attention (opset 23), a row whose keys are all masked. No attncheck; the specification: 0."""

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

types = dict.fromkeys("QKVM", TensorProto.FLOAT)
graph = helper.make_graph([helper.make_node("Attention", list(types), ["Y"])], "g",
                          [helper.make_tensor_value_info(n, t, [None] * 4) for n, t in types.items()],
                          [helper.make_tensor_value_info("Y", TensorProto.FLOAT, [None] * 4)])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
zeros = lambda rows: np.zeros((1, 1, rows, 1), np.float32)
v = np.array([1, 0], np.float32).reshape(1, 1, 2, 1)
hidden = np.full((1, 1, 1, 2), -np.inf, np.float32)
print(onnxruntime.__version__, session.run(None, {"Q": zeros(1), "K": zeros(2), "V": v, "M": hidden})[0].item())
