"""OpenVINO on the CPU: Attention of ONNX, opset 23, and a query that is NaN. One key of value 1. No attncheck."""

import numpy as np
import openvino
from onnx import TensorProto, helper

print(openvino.__version__)
for causal in (0, 1):
    node = helper.make_node("Attention", ["Q", "K", "V"], ["Y"], is_causal=causal)
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info(n, TensorProto.FLOAT, [None, 1, None, 1]) for n in "QKV"],
                              [helper.make_tensor_value_info("Y", TensorProto.FLOAT, None)])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    core = openvino.Core()
    model = core.compile_model(core.read_model(made.SerializeToString()), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    one = np.ones((1, 1, 1, 1), np.float32)
    print("is_causal", causal, "query 1:", model([one, one, one])[0].ravel(), "query NaN:", model([one * np.nan, one, one])[0].ravel())
