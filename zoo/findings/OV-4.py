"""OpenVINO on the CPU: GroupQueryAttention of com.microsoft with one, two and three sequences. No attncheck."""

import numpy as np
import openvino
from onnx import TensorProto, helper

F, I = TensorProto.FLOAT, TensorProto.INT32
flat, cache = [None, None, 8], [None, 1, None, 8]
inputs = [("query", F, flat), ("key", F, flat), ("value", F, flat), ("past_key", F, cache), ("past_value", F, cache),
          ("seqlens_k", I, [None]), ("total_sequence_length", I, [None])]
node = helper.make_node("GroupQueryAttention", [n for n, *_ in inputs], ["output", "present_key", "present_value"],
                        domain="com.microsoft", num_heads=1, kv_num_heads=1)
graph = helper.make_graph([node], "g", [helper.make_tensor_value_info(*i) for i in inputs], [helper.make_tensor_value_info("output", F, None)])
imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
made = helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()
print(openvino.__version__)
for batch in (1, 2, 3):
    core = openvino.Core()
    model = core.compile_model(core.read_model(made), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    value = np.arange(1, 8 * batch + 1, dtype=np.float32).reshape(batch, 1, 8)  # one key each: the output is the value
    past = np.zeros((batch, 1, 0, 8), np.float32)
    try:
        out = model([value, value, value, past, past, np.zeros(batch, np.int32), np.ones(1, np.int32)])[0]
        print(f"batch of {batch}: output of shape {out.shape}, {'right' if np.array_equal(out, value) else 'not the values'}", flush=True)
    except RuntimeError as error:
        print(f"batch of {batch}: error:", str(error).strip().splitlines()[-1][:120], flush=True)
