"""ONNX Runtime on the CPU: MultiHeadAttention, unidirectional, two queries and three keys. No attncheck; prints who sees whom."""

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

names = ["query", "key", "value"]
node = helper.make_node("MultiHeadAttention", names, ["out"], domain="com.microsoft", num_heads=1, unidirectional=1)
graph = helper.make_graph([node], "g", [helper.make_tensor_value_info(n, TensorProto.FLOAT, [None] * 3) for n in names],
                          [helper.make_tensor_value_info("out", TensorProto.FLOAT, [None] * 3)])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)], ir_version=10)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
print(onnxruntime.__version__)
for queries, keys in ((3, 3), (2, 3), (1, 3)):
    zeros = lambda rows: np.zeros((1, rows, keys), np.float32)
    # The values are the unit matrix: the output is the row of probabilities.
    out = session.run(None, {"query": zeros(queries), "key": zeros(keys), "value": np.eye(keys, dtype=np.float32)[None]})[0]
    print(queries, "queries,", keys, "keys:", (out[0] > 0).astype(int).tolist())
