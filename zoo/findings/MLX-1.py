"""MLX: a row whose keys are all masked. No attncheck; the operator `attention` gives 0, MLX the mean of V (0.5)."""

import mlx.core as mx

q, k, v = mx.zeros((1, 1, 1, 1)), mx.zeros((1, 1, 2, 1)), mx.array([1.0, 0.0]).reshape(1, 1, 2, 1)
print(mx.__version__, mx.fast.scaled_dot_product_attention(q, k, v, scale=1.0, mask=mx.zeros((1, 1, 1, 2), dtype=mx.bool_)).item())
