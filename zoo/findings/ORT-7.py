"""ONNX Runtime on the CPU: MultiHeadAttention, attention_bias [B, 1, S, T] for two heads. No attncheck; the two lines must agree."""

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

inputs = {"query": 3, "key": 3, "value": 3, "attention_bias": 4}
names = ["query", "key", "value", "", "", "attention_bias"]
node = helper.make_node("MultiHeadAttention", names, ["out"], domain="com.microsoft", num_heads=2)
graph = helper.make_graph([node], "g", [helper.make_tensor_value_info(n, TensorProto.FLOAT, [None] * r) for n, r in inputs.items()],
                          [helper.make_tensor_value_info("out", TensorProto.FLOAT, [None] * 3)])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)], ir_version=10)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
given = {"query": np.zeros((2, 1, 2), np.float32), "key": np.zeros((2, 2, 2), np.float32),
         "value": np.array([[1, 1], [0, 0]] * 2, np.float32).reshape(2, 2, 2)}
bias = np.array([0, -100, -100, 0], np.float32).reshape(2, 1, 1, 2)  # batch 0 sees key 0, batch 1 sees key 1
print(onnxruntime.__version__, "one bias for both heads:", session.run(None, given | {"attention_bias": bias})[0].ravel())
print("the same bias for each head:", session.run(None, given | {"attention_bias": np.repeat(bias, 2, axis=1)})[0].ravel())
