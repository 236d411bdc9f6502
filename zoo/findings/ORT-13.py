"""ONNX Runtime on the CPU: MultiHeadAttention with key_padding_mask. No attncheck; the second key is hidden, expected: 0 everywhere."""

import numpy as np
import onnxruntime
from onnx import TensorProto, helper


def attend(padding, heads=1):
    names = ["query", "key", "value", "", "key_padding_mask"]
    given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [None] * 3) for n in names[:3]]
    given.append(helper.make_tensor_value_info(names[4], TensorProto.INT32, [None] * padding.ndim))
    graph = helper.make_graph([helper.make_node("MultiHeadAttention", names, ["out"], domain="com.microsoft", num_heads=heads)], "g", given,
                              [helper.make_tensor_value_info("out", TensorProto.FLOAT, [None] * 3)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    value = np.array([0, 1], np.float32).reshape(1, 2, 1)
    return session.run(None, {"query": np.zeros((1, 1, 1), np.float32), "key": np.zeros((1, 2, 1), np.float32), "value": value,
                              "key_padding_mask": padding.astype(np.int32)})[0].item()


print(onnxruntime.__version__, "lengths [B]:", attend(np.array([1])), "keys [B,T]:", attend(np.array([[1, 0]])),
      "rows [B,S,T]:", attend(np.array([[[1, 0]]])))
