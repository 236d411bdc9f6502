"""ONNX Runtime on the CPU: Attention (opset 23) with softcap and a hidden key. No attncheck; the specification: 0, 0 and 0."""

import numpy as np
import onnxruntime
from onnx import TensorProto, helper


def attend(mask_type, mask, causal):
    types = dict.fromkeys("QKV", TensorProto.FLOAT) | ({} if mask is None else {"M": mask_type})
    node = helper.make_node("Attention", list(types), ["Y"], softcap=1.0, is_causal=causal)
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info(n, t, [None] * 4) for n, t in types.items()],
                              [helper.make_tensor_value_info("Y", TensorProto.FLOAT, [None] * 4)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    zeros = np.zeros((1, 1, 2, 1), np.float32)  # two queries and two keys; value 1 is at the second key
    feeds = {"Q": zeros, "K": zeros, "V": np.array([0, 1], np.float32).reshape(1, 1, 2, 1)}
    return session.run(None, feeds | ({} if mask is None else {"M": mask}))[0][0, 0, 0, 0]


print(onnxruntime.__version__, "first query:",
      "mask of -inf", attend(TensorProto.FLOAT, np.array([0, -np.inf] * 2, np.float32).reshape(1, 1, 2, 2), 0),
      "mask of bool", attend(TensorProto.BOOL, np.array([True, False] * 2).reshape(1, 1, 2, 2), 0), "is_causal", attend(0, None, 1))
