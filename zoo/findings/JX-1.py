"""JAX on the CPU: dot_product_attention with and without jax.jit. No attncheck; expected: 1 everywhere."""

import jax
import jax.numpy as jnp

print(jax.__version__, jax.default_backend())
for dtype, shape in ((jnp.float16, (1, 16, 2, 16)), (jnp.bfloat16, (1, 1, 1, 1)), (jnp.bfloat16, (1, 16, 2, 16))):
    x = jnp.ones(shape, dtype)
    for name, attend in (("eager", jax.nn.dot_product_attention), ("jit", jax.jit(jax.nn.dot_product_attention))):
        try:
            print(dtype.__name__, shape, name, attend(x, x, x).ravel()[0])
        except Exception as error:
            print(dtype.__name__, shape, name, f"{type(error).__name__}: {error}".splitlines()[0])
