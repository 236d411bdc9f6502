"""JAX on the CPU: jax.nn.dot_product_attention, implementation "xla", forward and through jax.grad.

Declared from its documentation: query [B, T, N, H], key and value [B, S, K, H], N a multiple of K; bias and bool mask,
broadcast to [B, N, T, S]; is_causal from the top left corner; key_value_seq_lengths = kv_length; local_window_size (left,
right). There is no softcap and no sink. A jitted function for each shape, which costs about a second.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import attncheck

ZOO = {"title": "JAX dot_product_attention", "environments": ["jax-0.10"], "distribution": "jax",
       "kernels": ["xla", "xla_grad"],
       "source": "https://docs.jax.dev/en/latest/_autosummary/jax.nn.dot_product_attention.html"}
COMMON = "layout=bshd,bhsd,sbhd value_dim=dim align=top_left softcap=0 sink=none "
# The formula of the documentation; P has the type of the inputs, hidden scores get a large negative number.
PRECISION = "p=half ds=half hidden=times_zero"


@functools.partial(jax.jit, static_argnums=(5, 7, 8))
def attend(q, k, v, bias, mask, scale, lengths, left, right):
    # An unlimited side is a window of the whole length.
    wide = max(q.shape[1], k.shape[1])
    window = None if left < 0 else (left, wide if right < 0 else right)
    return jax.nn.dot_product_attention(q, k, v, bias=bias, mask=mask, scale=scale, is_causal=right == 0,
                                        key_value_seq_lengths=lengths, local_window_size=window, implementation="xla")


def arrays(*given):
    if any(t is not None and t.size == 0 for t in given):
        raise attncheck.Declined("an empty tensor")
    return [None if t is None else jnp.asarray(np.ascontiguousarray(t)) for t in given]


def checked(left, right, kv_length):
    if right > 0 and left < 0:
        raise attncheck.Declined("a window on the right alone")
    return None if kv_length is None else jnp.asarray(kv_length, jnp.int32)


@attncheck.kernel("attention", precision=PRECISION, features=COMMON + "outputs=out")
def xla(query, key, value, kv_length, bias, mask, scale, window_left, window_right):
    lengths = checked(window_left, window_right, kv_length)
    q, k, v, bias, mask = arrays(query, key, value, bias, mask)
    return np.asarray(attend(q, k, v, bias, mask, scale, lengths, window_left, window_right))


# fp32 alone: the operator's delta is <dO, O> with O as it was given, rounded; autodiff keeps its own O.
@attncheck.kernel("attention_grad", precision=PRECISION, features=COMMON + "dtype=fp32 lse=absent out=reference")
def xla_grad(dout, query, key, value, kv_length, bias, mask, scale, window_left, window_right, dbias):
    lengths = checked(window_left, window_right, kv_length)
    q, k, v, bias, mask, dout = arrays(query, key, value, bias, mask, dout)
    leaves = [q, k, v] + ([bias] if dbias is not None else [])
    given = [] if dbias is not None else [bias]
    _, back = jax.vjp(lambda *x: attend(*x[:3], *(*x[3:], *given), mask, scale, lengths, window_left, window_right), *leaves)
    return dict(zip(("dq", "dk", "dv", "dbias"), map(np.asarray, back(dout))))
