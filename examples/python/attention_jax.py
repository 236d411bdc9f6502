"""attention in JAX: a jitted function on arrays of JAX, made from those of NumPy and back.

    attncheck verify --candidate python:examples/python/attention_jax.py --no-validation

jit compiles once for every shape, so that a run takes long; --cases 30 is a start.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import attncheck


@functools.partial(jax.jit, static_argnames=("causal", "align"))
def attend(query, key, value, scale, *, causal, align):
    """softmax(scale q k^T) v in fp32, and the LSE of every row."""
    group = query.shape[2] // key.shape[2]
    k, v = (jnp.repeat(t.astype(jnp.float32), group, axis=2) for t in (key, value))
    highest = jax.lax.Precision.HIGHEST  # no tf32 on a GPU
    s = scale * jnp.einsum("bihd,bjhd->bhij", query.astype(jnp.float32), k, precision=highest)
    if causal:
        diagonal = key.shape[1] - query.shape[1] if align else 0
        seen = jnp.arange(key.shape[1]) <= jnp.arange(query.shape[1])[:, None] + diagonal
        s = jnp.where(seen, s, -jnp.inf)
    top = jnp.max(s, axis=-1, keepdims=True, initial=-jnp.inf)
    shift = jnp.where(jnp.isneginf(top), 0, top)
    p = jnp.exp(s - shift)
    total = p.sum(axis=-1, keepdims=True)
    out = jnp.einsum("bhij,bjhd->bihd", p / jnp.where(total == 0, 1, total), v, precision=highest)
    return out.astype(query.dtype), (shift + jnp.log(total))[..., 0]


@attncheck.kernel("attention", precision="hidden=times_zero",
                  features="layout=bshd,bhsd,sbhd bias=none mask=none sink=none softcap=0 kv_length=none "
                           "window_left=-1 window_right=-1,0")
def attention(query, key, value, scale, window_right, align):
    """query [B,Sq,Hq,D], key [B,Skv,Hkv,D], value [B,Skv,Hkv,Dv] -> out [B,Sq,Hq,Dv], lse [B,Hq,Sq] fp32."""
    out, lse = attend(*map(jnp.asarray, (query, key, value)), np.float32(scale), causal=window_right == 0, align=align)
    return {"out": np.asarray(out), "lse": np.asarray(lse)}
