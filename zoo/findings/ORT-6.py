"""ONNX Runtime on the CPU: GroupQueryAttention, the only key that a query sees holds NaN. No attncheck; expected: nan nan."""

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

F, I = TensorProto.FLOAT, TensorProto.INT32
inputs = {"query": (F, 3), "key": (F, 3), "value": (F, 3), "past_key": (F, 4), "past_value": (F, 4), "seqlens_k": (I, 1), "total": (I, 1)}
outputs = {"out": 3, "present_key": 4, "present_value": 4}
node = helper.make_node("GroupQueryAttention", list(inputs), list(outputs), domain="com.microsoft", num_heads=1, kv_num_heads=1)
graph = helper.make_graph([node], "g", [helper.make_tensor_value_info(n, t, [None] * r) for n, (t, r) in inputs.items()],
                          [helper.make_tensor_value_info(n, F, [None] * r) for n, r in outputs.items()])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)], ir_version=10)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
key = np.zeros((1, 2, 8), np.float32)
key[0, 0, 0] = np.nan
past = np.zeros((1, 1, 0, 8), np.float32)
out = session.run(None, {"query": np.ones((1, 2, 8), np.float32), "key": key, "value": np.ones((1, 2, 8), np.float32), "past_key": past,
                         "past_value": past, "seqlens_k": np.array([1], np.int32), "total": np.array([2], np.int32)})[0]
print(onnxruntime.__version__, out[0, :, 0])
