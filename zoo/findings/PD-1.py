"""PaddlePaddle on the CPU: what a hidden key keeps of a row, and what softmax makes of scores far apart. No attncheck."""

import numpy as np
import paddle

paddle.set_device("cpu")
tensor, functional = paddle.to_tensor, paddle.nn.functional
print(paddle.__version__)
zeros = np.zeros((1, 2, 1, 1), np.float32)
value = zeros.copy()
value[0, 1] = 2.0**100  # hidden from the first query
mask = np.tril(np.ones((2, 2), bool))[None, None]
for name, given in (("is_causal", {"is_causal": True}), ("mask of bool", {"attn_mask": tensor(mask)})):
    try:
        out = functional.scaled_dot_product_attention(tensor(zeros), tensor(zeros), tensor(value), **given).numpy()
        print(f"{name}: the first query gives {out[0, 0, 0, 0]:.4g}, which is {out[0, 0, 0, 0] / 2.0**100:.5g} of the hidden value")
    except Exception as error:
        print(f"{name}: {type(error).__name__}")
print("exp(-64) is", np.exp(-64.0))
for gap in (60, 70, 100):
    print(f"softmax of 0 and -{gap}: {functional.softmax(tensor(np.array([0, -gap], np.float32))).numpy()[1]:.5g}, exact {np.exp(-float(gap)):.5g}")
