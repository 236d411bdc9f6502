"""ONNX Runtime on the CPU: causal Attention in fp16, a hidden key with a large score. No attncheck; the first query sees value 1 alone."""

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

graph = helper.make_graph([helper.make_node("Attention", list("QKV"), ["Y"], is_causal=1)], "g",
                          [helper.make_tensor_value_info(n, TensorProto.FLOAT16, [None] * 4) for n in "QKV"],
                          [helper.make_tensor_value_info("Y", TensorProto.FLOAT16, [None] * 4)])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
half = lambda *x: np.array(x, np.float16).reshape(1, 1, 2, 1)
for keys in ((0, 30000), (-30000, 30000), (0, 60000)):  # times the query: 0 and 60000, -60000 and 60000, 0 and more than fp16 holds
    out = session.run(None, {"Q": half(2, 0), "K": half(*keys), "V": half(1, 0)})[0].ravel()
    print(onnxruntime.__version__, "visible key", keys[0], "hidden key", keys[1], "first query", out[0])
