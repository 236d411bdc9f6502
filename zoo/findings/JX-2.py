"""JAX on the CPU: dot_product_attention with local_window_size alone. No attncheck; expected: each row sees itself and the key before."""

import jax
import jax.numpy as jnp

zeros, values = jnp.zeros((1, 4, 1, 4)), jnp.eye(4)[None, :, None]
print(jax.__version__)
for name, mask in (("no mask", None), ("a mask that is all true", jnp.ones((1, 1, 4, 4), bool))):
    out = jax.nn.dot_product_attention(zeros, zeros, values, mask=mask, local_window_size=(1, 0), implementation="xla")
    print(name, *out[0, :, 0].tolist(), sep="\n    ")
