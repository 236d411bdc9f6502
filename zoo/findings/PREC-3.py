"""JAX on the CPU: dQ of dot_product_attention in bf16 against a gradient whose dP is exact, or rounded to bf16. No attncheck."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

bf16, rounded = ml_dtypes.bfloat16, lambda x: x.astype(ml_dtypes.bfloat16).astype(float)
random = np.random.default_rng(0)
length, dim = 48, 32
q, k, v, dout = (random.standard_normal((1, length, 1, dim)).astype(bf16) for _ in range(4))
_, back = jax.vjp(lambda *x: jax.nn.dot_product_attention(*x, implementation="xla", is_causal=True), *map(jnp.asarray, (q, k, v)))
dq = np.asarray(back(jnp.asarray(dout))[0]).astype(float)[0, :, 0]
q, k, v, dout = (x[0, :, 0].astype(float) for x in (q, k, v, dout))
scores = q @ k.T / np.sqrt(dim)
scores[np.triu_indices(length, 1)] = -np.inf
p = np.exp(scores - scores.max(1, keepdims=True))
p /= p.sum(1, keepdims=True)
print(jax.__version__)
for name, dp in (("exact", dout @ v.T), ("rounded to bf16", rounded(dout @ v.T))):
    ds = p * (dp - (p * dp).sum(1, keepdims=True))
    print(f"dP {name}: dQ differs from JAX's by up to {np.abs(dq - rounded(ds @ k / np.sqrt(dim))).max()}")
