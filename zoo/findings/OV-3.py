"""OpenVINO on the CPU: Attention of ONNX, opset 23, with 4 query heads and 2 key heads, which the model declares or leaves open. No attncheck."""

import numpy as np
import openvino
from onnx import TensorProto, helper

print(openvino.__version__)
for heads in ((4, 2, 2), (None, None, None)):
    node = helper.make_node("Attention", ["Q", "K", "V"], ["Y"])
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info(n, TensorProto.FLOAT, [None, h, None, None]) for n, h in zip("QKV", heads)],
                              [helper.make_tensor_value_info("Y", TensorProto.FLOAT, None)])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    core = openvino.Core()
    model = core.compile_model(core.read_model(made.SerializeToString()), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    query, key = (np.full((1, h, 1, 1), 7, np.float32) for h in (4, 2))
    try:
        out = model([query, key, key])[0]  # one key: the output is its value
        print("heads", heads, "output of shape", out.shape, out.ravel().tolist(), flush=True)
    except RuntimeError as error:
        print("heads", heads, "error:", str(error).strip().splitlines()[-1][:120], flush=True)
