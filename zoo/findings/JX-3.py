"""JAX: Pallas mha in interpret mode, lengths that are not whole blocks. No attncheck; all values are 1, expected: 1, or an error."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas.ops.gpu import attention

print(jax.__version__)
for queries, keys in ((128, 128), (64, 100), (128, 130), (130, 128), (130, 130)):
    q, k = (jnp.ones((1, n, 1, 16)) for n in (queries, keys))
    try:
        out = np.asarray(attention.mha(q, k, k, None, 1.0, False, interpret=True))
        print(f"{queries} queries, {keys} keys: from {out.min()} to {out.max()}", flush=True)
    except Exception as error:
        print(f"{queries} queries, {keys} keys: {type(error).__name__}: {error}"[:120], flush=True)
