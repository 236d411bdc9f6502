"""OpenVINO on the CPU: GroupQueryAttention of com.microsoft with its seven required inputs, read in a process of its own. No attncheck."""

import os

import openvino
from onnx import TensorProto, helper

F, I = TensorProto.FLOAT, TensorProto.INT32
names = ["query", "key", "value", "past_key", "past_value", "seqlens_k", "total_sequence_length"]
shapes = [(1, 1, 8)] * 3 + [(1, 1, 0, 8)] * 2 + [(1,), (1,)]
inputs = [helper.make_tensor_value_info(n, t, s) for n, t, s in zip(names, [F] * 5 + [I] * 2, shapes)]
outputs = ["output", "present_key", "present_value"]
node = helper.make_node("GroupQueryAttention", names, outputs, domain="com.microsoft", num_heads=1, kv_num_heads=1)
graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info(n, F, None) for n in outputs])
imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
model = helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()

print(openvino.__version__, flush=True)
child = os.fork()
if child == 0:
    try:
        openvino.Core().read_model(model)
        print("the model is read", flush=True)
    except Exception as error:
        print("error:", str(error).strip().splitlines()[-1][:150], flush=True)
    os._exit(0)
status = os.waitpid(child, 0)[1]
print("signal", os.WTERMSIG(status) if os.WIFSIGNALED(status) else "none")
