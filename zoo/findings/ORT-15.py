"""ONNX Runtime on the CPU: Attention (opset 23), inputs of rank 3, 2 query heads and 1 key head. No attncheck; expected: 1 and 1.

Scores are 0 and all values are 1. Keys are 0, so that a result that is not 1 comes from memory beyond key or value.
"""

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

for heads in ({}, {"q_num_heads": 2, "kv_num_heads": 1}):
    rank = 3 if heads else 4
    graph = helper.make_graph([helper.make_node("Attention", list("QKV"), ["Y"], **heads)], "g",
                              [helper.make_tensor_value_info(n, TensorProto.FLOAT, [None] * rank) for n in "QKV"],
                              [helper.make_tensor_value_info("Y", TensorProto.FLOAT, [None] * rank)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    room = np.full(64, np.nan, np.float32)  # value lies in front of numbers that are not its own
    room[:4] = 1
    value = room[:4].reshape(1, 4, 1) if heads else room[:4].reshape(1, 1, 4, 1)
    zeros = lambda shape: np.zeros(shape, np.float32)
    shapes = ((1, 4, 2), (1, 4, 1)) if heads else ((1, 2, 4, 1), (1, 1, 4, 1))
    out = session.run(None, {"Q": zeros(shapes[0]), "K": zeros(shapes[1]), "V": value})[0]
    print(onnxruntime.__version__, f"rank {rank}:", *(out[0].T if heads else out[0, :, :, 0]).tolist())
