"""ONNX Runtime on the CPU: Attention of com.microsoft without its optional bias. No attncheck; expected: 1. It runs in a process of its own."""

import subprocess
import sys

PROGRAM = """
import numpy as np, onnxruntime
from onnx import TensorProto, helper
names = ["input", "weights"] + sys.argv[1:]
inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [None] * r) for n, r in zip(names, (3, 2, 1))]
graph = helper.make_graph([helper.make_node("Attention", names, ["out"], domain="com.microsoft", num_heads=1)], "g", inputs,
                          [helper.make_tensor_value_info("out", TensorProto.FLOAT, [None] * 3)])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)], ir_version=10)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
feeds = {"input": np.ones((1, 1, 3), np.float32), "weights": np.eye(3, dtype=np.float32), "bias": np.zeros(3, np.float32)}
print(onnxruntime.__version__, session.run(None, {n: feeds[n] for n in names})[0].ravel())
"""
for given in ([], ["bias"]):
    ran = subprocess.run([sys.executable, "-c", "import sys\n" + PROGRAM, *given], capture_output=True, text=True)
    print("with a bias:" if given else "without a bias:", ran.stdout.strip() or f"ended by signal {-ran.returncode}" if ran.returncode <= 0 else ran.stderr[-300:])
