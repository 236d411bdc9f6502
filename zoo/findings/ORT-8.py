"""ONNX Runtime on the CPU: GroupQueryAttention with a local window. No attncheck; prints who sees whom."""

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

names = ["query", "key", "value", "past_key", "past_value", "seqlens_k", "total_sequence_length"]
types = [TensorProto.FLOAT] * 5 + [TensorProto.INT32] * 2
ranks = [3, 3, 3, 4, 4, 1, 1]
outs = ["out", "present_key", "present_value"]
print(onnxruntime.__version__)
for window in (1, 2):
    node = helper.make_node("GroupQueryAttention", names, outs, domain="com.microsoft", num_heads=1, kv_num_heads=1,
                            local_window_size=window)
    graph = helper.make_graph([node], "g",
                              [helper.make_tensor_value_info(n, t, [None] * r) for n, t, r in zip(names, types, ranks)],
                              [helper.make_tensor_value_info(o, TensorProto.FLOAT, [None] * r) for o, r in zip(outs, (3, 4, 4))])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)],
                              ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for past, queries in ((0, 4), (3, 1)):
        zeros = np.zeros((1, queries, 8), np.float32)
        # The values are the unit matrix: the output is the row of probabilities.
        values = np.eye(4, 8, dtype=np.float32)[None]
        given = {"query": zeros, "key": zeros, "value": values[:, past:], "past_key": np.zeros((1, 1, past, 8), np.float32),
                 "past_value": values[:, None, :past], "seqlens_k": np.array([3], np.int32),
                 "total_sequence_length": np.array([4], np.int32)}
        seen = (session.run(None, given)[0][0, :, :4] > 0).astype(int).tolist()
        print(f"local_window_size {window}, {past} past keys, {queries} queries: {seen}")
