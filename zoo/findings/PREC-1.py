"""Where the scale is multiplied: two keys with the same score, 1320 * scale. No attncheck; exactly 0.5 when the product comes first."""

import importlib.util

q, keys, values, scale = [[3.0, 11.0]], [[440.0, 0.0], [0.0, 120.0]], [[1.0], [0.0]], 80**-0.5
if importlib.util.find_spec("torch"):
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    given = [torch.tensor(x)[None, None] for x in (q, keys, values)]
    for form in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION):
        with sdpa_kernel(form):
            padded = given[:2] + [given[2].expand(1, 1, 2, 2).contiguous()]
            print(torch.__version__, form, torch.nn.functional.scaled_dot_product_attention(*padded, scale=scale)[0, 0, 0, 0].item())
if importlib.util.find_spec("mlx"):
    import mlx.core as mx

    given = [mx.array(x)[None, None] for x in (q, keys, values)]
    print("mlx", mx.__version__, mx.fast.scaled_dot_product_attention(*given, scale=scale).item())
if importlib.util.find_spec("openvino"):
    import numpy
    import openvino

    try:
        import openvino.opset13 as ops
    except ModuleNotFoundError:  # until 2024
        import openvino.runtime.opset13 as ops
    given = [numpy.array(x, numpy.float32)[None, None] for x in (q, keys, values)]
    inputs = [ops.parameter([-1, -1, -1, -1], numpy.float32) for _ in given]
    mask, factor = (ops.constant(numpy.float32(x)) for x in (0, scale))
    model = openvino.Model([ops.scaled_dot_product_attention(*inputs, mask, factor, causal=False)], inputs, "attention")
    compiled = openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    print("openvino", openvino.__version__, compiled(given)[0].item())
