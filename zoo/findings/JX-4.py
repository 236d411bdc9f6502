"""JAX: gradient of Pallas mha in interpret mode, other queries than keys. No attncheck; expected: rounding alone, about 1e-5."""

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.gpu import attention

print(jax.__version__)
for queries, keys in ((128, 128), (1, 2), (1, 256), (128, 256), (256, 128)):
    q, k, v, dout = (jax.random.normal(jax.random.key(i), (1, n, 1, 16)) for i, n in enumerate((queries, keys, keys, queries)))
    plain = lambda q, k, v: jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k)), v)
    try:
        forms = [jax.vjp(f, q, k, v)[1](dout) for f in (lambda *x: attention.mha(*x, None, 1.0, False, interpret=True), plain)]
        said = [float(abs(a - b).max()) for a, b in zip(*forms)]
    except ValueError as error:
        said = [f"ValueError: {error}"[:120]]
    print(f"{queries} queries, {keys} keys: difference in dq, dk, dv", *said, flush=True)
