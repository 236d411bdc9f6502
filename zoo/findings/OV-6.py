"""OpenVINO on the CPU: MultiHeadAttention of com.microsoft, unidirectional, with 2 queries and 2 to 4 keys. No attncheck; prints who sees whom."""

import numpy as np
import openvino
from onnx import TensorProto, helper

print(openvino.__version__)
node = helper.make_node("MultiHeadAttention", ["query", "key", "value"], ["output"], domain="com.microsoft", num_heads=1, unidirectional=1)
graph = helper.make_graph([node], "g", [helper.make_tensor_value_info(n, TensorProto.FLOAT, [None, None, 4]) for n in ("query", "key", "value")],
                          [helper.make_tensor_value_info("output", TensorProto.FLOAT, None)])
imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
core = openvino.Core()
model = core.compile_model(core.read_model(helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
for keys in (2, 3, 4):
    # The values are the unit matrix: the output is the row of probabilities.
    query, key = np.zeros((1, 2, 4), np.float32), np.zeros((1, keys, 4), np.float32)
    print(keys, "keys:", np.round(model([query, key, np.eye(keys, 4, dtype=np.float32)[None]])[0][0], 2).tolist())
