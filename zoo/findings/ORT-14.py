"""ONNX Runtime on the CPU: MultiHeadAttention with lengths as key_padding_mask writes beyond a buffer. No attncheck; expected: fine.

Each call runs in a process of its own, whose heap glibc checks (libc_malloc_debug.so.0, MALLOC_CHECK_=3) and which takes no arena.
"""

import os
import subprocess
import sys

PROGRAM = """
import numpy as np, onnxruntime
from onnx import TensorProto, helper
queries, keys = map(int, sys.argv[1:])
names = ["query", "key", "value", "", "key_padding_mask"]
given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [None] * 3) for n in names[:3]] + [
    helper.make_tensor_value_info(names[4], TensorProto.INT32, [None])]
graph = helper.make_graph([helper.make_node("MultiHeadAttention", names, ["out"], domain="com.microsoft", num_heads=1)], "g", given,
                          [helper.make_tensor_value_info("out", TensorProto.FLOAT, [None] * 3)])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)], ir_version=10)
options = onnxruntime.SessionOptions()
options.enable_cpu_mem_arena = False
session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
zeros = lambda rows: np.zeros((1, rows, 1), np.float32)
for _ in range(3):
    session.run(None, {"query": zeros(queries), "key": zeros(keys), "value": zeros(keys), "key_padding_mask": np.array([keys], np.int32)})
print(onnxruntime.__version__, "fine")
"""
checked = os.environ | {"LD_PRELOAD": "libc_malloc_debug.so.0", "MALLOC_CHECK_": "3"}
for queries, keys in ((1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (8, 8), (20, 3), (128, 16), (2049, 25)):
    ran = subprocess.run([sys.executable, "-c", "import sys\n" + PROGRAM, str(queries), str(keys)], capture_output=True, text=True, env=checked)
    print(f"{queries} queries, {keys} keys:", ran.stdout.strip() or f"ended by signal {-ran.returncode} {ran.stderr.strip()[-60:]}")
