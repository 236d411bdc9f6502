"""JAX on the CPU: jax.nn.dot_product_attention, implementation "xla", forward and through jax.grad.

Declared from its documentation: query [B, T, N, H], key and value [B, S, K, H], N a multiple of K; bias and bool mask,
broadcast to [B, N, T, S]; is_causal from the top left corner; key_value_seq_lengths = kv_length; local_window_size (left,
right). There is no softcap and no sink, and nothing is said of a row that sees no key (`xla` is not asked, `xla_any_call` is). A jitted function for each
shape costs up to a second, so that few properties are asked, and `xla` of few shapes; the others are asked of all.
"""

import functools
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
import attncheck
from pairs import has_empty_row

ZOO = {"title": "JAX dot_product_attention", "environments": ["jax-0.10", "jax-0.6", "jax-0.4"], "distribution": "jax",
       "kernels": ["xla", "xla_any_call", "xla_grad"],
       "properties": {"xla_any_call": ["agreement"], "xla": ["agreement", "causality", "written_mask"], "xla_grad": ["agreement", "causality"]},
       "source": "https://docs.jax.dev/en/latest/_autosummary/jax.nn.dot_product_attention.html"}
SHAPES = "q=9,32 kv=32 sequences=1 kv_heads=2 group=1,2 dim=16 scale=rsqrt window_left=-1,4 window_right=-1,0,2 "
COMMON = "layout=bshd,bhsd,sbhd value_dim=dim align=top_left softcap=0 sink=none "
# The formula of the documentation; P has the type of the inputs, hidden scores get a large negative number.
# Subnormal numbers are 0: jnp.float32(1e-40) * 1.5 is 0 in JAX 0.10.2 on the CPU, eagerly and jitted.
PRECISION = "p=half ds=half ftz=all hidden=times_zero"


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


def checked(query, key, bias, mask, kv_length, left, right):
    if right > 0 and left < 0:
        raise attncheck.Declined("a window on the right alone")
    if has_empty_row(query, key, bias, mask, kv_length, left, right):
        raise attncheck.Declined("a row without keys")
    return lengths_of(kv_length)


def lengths_of(kv_length):
    return None if kv_length is None else jnp.asarray(kv_length, jnp.int32)


@attncheck.kernel("attention", precision=PRECISION, features=COMMON + "outputs=out")
def xla_any_call(query, key, value, kv_length, bias, mask, scale, window_left, window_right):
    q, k, v, given, seen = arrays(query, key, value, bias, mask)
    return np.asarray(attend(q, k, v, given, seen, scale, lengths_of(kv_length), window_left, window_right))


@attncheck.kernel("attention", precision=PRECISION, features=COMMON + SHAPES + "dtype=bf16,fp32 outputs=out")
def xla(query, key, value, kv_length, bias, mask, scale, window_left, window_right):
    checked(query, key, bias, mask, kv_length, window_left, window_right)
    try:
        return xla_any_call(query, key, value, kv_length, bias, mask, scale, window_left, window_right)
    except jax.errors.JaxRuntimeError as error:  # bf16 products of one element, see JX-1
        if "not supported" in str(error):
            raise attncheck.Declined(str(error)) from error
        raise


# Autodiff goes by the output of its own forward.
@attncheck.kernel("attention_grad", precision=PRECISION + " forward=own", features=COMMON + "dtype=bf16,fp32 lse=absent out=reference")
def xla_grad(dout, query, key, value, kv_length, bias, mask, scale, window_left, window_right, dbias):
    lengths = checked(query, key, bias, mask, kv_length, window_left, window_right)
    q, k, v, bias, mask, dout = arrays(query, key, value, bias, mask, dout)
    leaves = [q, k, v] + ([bias] if dbias is not None else [])
    given = [] if dbias is not None else [bias]
    _, back = jax.vjp(lambda *x: attend(*x[:3], *(*x[3:], *given), mask, scale, lengths, window_left, window_right), *leaves)
    return dict(zip(("dq", "dk", "dv", "dbias"), map(np.asarray, back(dout))))
