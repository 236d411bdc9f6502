"""MLX or PyTorch on the CPU: the gradient of a causal call whose second key is hidden from the only dO, and has a large value. No attncheck."""

import importlib.util


def of_mlx(large, count):
    import mlx.core as mx
    print("mlx", mx.__version__, "fp16")
    zeros = mx.zeros((1, 1, 2, 2), mx.float16)
    value, dout = zeros + 0, zeros + 0
    value[0, 0, 1], dout[0, 0, 0] = large, count
    attend = lambda q, k, v: mx.fast.scaled_dot_product_attention(q, k, v, scale=1.0, mask="causal")  # noqa: E731
    return [t.tolist() for t in mx.vjp(attend, [zeros, zeros, value], [dout])[1]]


def of_torch(large, count):
    import torch
    print("torch", torch.__version__, "fp32")
    leaves = [torch.zeros(1, 1, 2, 2, requires_grad=True) for _ in range(3)]
    with torch.no_grad():
        leaves[2][0, 0, 1] = large
    dout = torch.zeros(1, 1, 2, 2)
    dout[0, 0, 0] = count
    out = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=True, scale=1.0)
    return [t.tolist() for t in torch.autograd.grad(out, leaves, dout)]


mlx = importlib.util.find_spec("mlx")
for large in ((16000, 32768) if mlx else (0.5e38, 1.7e38)):
    found = (of_mlx if mlx else of_torch)(large, 1.0 if mlx else 2.0)
    print(f"hidden value {large:g} in both channels:", *(f"{n} {t[0][0]}" for n, t in zip(("dq", "dk", "dv"), found)))
