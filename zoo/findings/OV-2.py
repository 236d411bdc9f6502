"""OpenVINO on the CPU: ScaledDotProductAttention of 4 query heads and 2 key heads, which do not fit, with and without a limit of one thread. No attncheck."""

import numpy as np
import openvino

try:
    import openvino.opset13 as ops
except ModuleNotFoundError:  # up to 2024
    import openvino.runtime.opset13 as ops

print(openvino.__version__)


def call(model, query_heads, key_heads, number):
    query, key = (np.full((1, heads, 1, 1), number, np.float32) for heads in (query_heads, key_heads))
    try:
        out = model([query, key, key])[0]  # one key: the output is its value
        return f"output of shape {out.shape}, values {out.ravel().tolist()}"
    except RuntimeError as error:
        return "error: " + str(error).strip().splitlines()[-1][:90]


for threads in ({}, {"INFERENCE_NUM_THREADS": "1"}):
    q, k, v = (ops.parameter([-1, -1, -1, -1], np.float32) for _ in range(3))
    node = ops.scaled_dot_product_attention(q, k, v, causal=False)
    model = openvino.Core().compile_model(openvino.Model([node], [q, k, v], "attention"), "CPU", {"INFERENCE_PRECISION_HINT": "f32"} | threads)
    print(threads or "as it comes")
    for heads, number in (((1, 1), 5), ((4, 2), 7)):
        print("   heads", heads, "value", number, call(model, *heads, number), flush=True)
