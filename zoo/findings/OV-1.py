"""OpenVINO on the CPU: ScaledDotProductAttention of opset 13 with a mask of bool. No attncheck; prints who sees whom."""

import numpy as np
import openvino

try:
    import openvino.opset13 as ops
except ModuleNotFoundError:  # up to 2024
    import openvino.runtime.opset13 as ops

print(openvino.__version__)
mask = np.array([[True, False, True], [False, True, True]])
for kind, given in (("bool", mask), ("float", np.where(mask, 0, -np.inf).astype(np.float32))):
    q, k, v = (ops.parameter([1, 1, -1, -1], np.float32) for _ in range(3))
    m = ops.parameter([1, 1, -1, -1], given.dtype.type)
    node = ops.scaled_dot_product_attention(q, k, v, m, causal=False)
    model = openvino.Core().compile_model(openvino.Model([node], [q, k, v, m], "attention"), "CPU",
                                          {"INFERENCE_PRECISION_HINT": "f32"})
    # The values are the unit matrix: the output is the row of probabilities.
    zeros = [np.zeros((1, 1, rows, 3), np.float32) for rows in (2, 3)]
    out = model([*zeros, np.eye(3, dtype=np.float32)[None, None], given[None, None]])[0]
    print(kind, "mask", given.astype(float).tolist(), "probabilities", np.round(out[0, 0], 3).tolist())
