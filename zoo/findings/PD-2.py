"""PaddlePaddle on the CPU: rows of a softmax whose result is not a number, for several lengths. No attncheck."""

import numpy as np
import paddle

paddle.set_device("cpu")
tensor, functional = paddle.to_tensor, paddle.nn.functional
print(paddle.__version__)
for keys in (1, 7, 8, 9, 16, 17):
    row = np.zeros(keys, np.float32)
    row[0] = np.nan
    hidden = np.full(keys, -np.inf, np.float32)
    key = np.zeros((1, keys, 1, 1), np.float32)
    key[0, 0] = np.inf  # 0 times infinity is not a number
    out = functional.scaled_dot_product_attention(tensor(np.zeros((1, 1, 1, 1), np.float32)), tensor(key), tensor(np.ones_like(key)))
    print(f"{keys} keys: softmax with one NaN {functional.softmax(tensor(row)).numpy()[1 if keys > 1 else 0]}, softmax of -inf alone "
          f"{functional.softmax(tensor(hidden)).numpy()[0]}, attention with a score of NaN {out.numpy().ravel()[0]}")
