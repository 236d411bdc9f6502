"""OpenVINO on the CPU: ScaledDotProductAttention, a row whose keys are all masked. No attncheck; the operator `attention` gives 0."""

import numpy as np
import openvino
import openvino.opset13 as ops

inputs = [ops.parameter([-1] * 4, np.float32) for _ in range(3)] + [ops.parameter([-1] * 4, np.bool_)]
model = openvino.Model([ops.scaled_dot_product_attention(*inputs)], inputs, "attention")
compiled = openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
q, k = np.zeros((1, 1, 1, 1), np.float32), np.zeros((1, 1, 2, 1), np.float32)
v = np.array([1, 0], np.float32).reshape(1, 1, 2, 1)
print(openvino.__version__, compiled([q, k, v, np.zeros((1, 1, 1, 2), bool)])[0].item())
