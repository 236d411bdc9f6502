"""MLX on the CPU: mlx.core.fast.scaled_dot_product_attention, and its gradient by mlx.core.vjp.

Declared from its documentation: q [B, N_q, T_q, D], k, v [B, N_kv, T_kv, D]; a mask of bool or added, broadcast to
[B, N, T_q, T_kv], or "causal" with lower-right alignment; sinks; the softmax is formed in float32. There is no window,
softcap, kv_length and log-sum-exp. Nothing is said of a row that sees no key: `fused` is not asked, `fused_any_row` is.
"""

import sys
from pathlib import Path

import ml_dtypes
import mlx.core as mx
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
import attncheck
from pairs import has_empty_row

ZOO = {"title": "MLX fast.scaled_dot_product_attention", "environments": ["mlx-0.32", "mlx-0.29"], "distribution": "mlx",
       "kernels": ["fused", "fused_any_row", "fused_grad"], "properties": {"fused_any_row": ["agreement"]},
       "source": "https://ml-explore.github.io/mlx/build/html/python/_autosummary/"
                 "mlx.core.fast.scaled_dot_product_attention.html"}


def to_mlx(array):
    array = array.copy(order="C")  # strides of 0 and below are refused
    return mx.array(array.view(np.uint16)).view(mx.bfloat16) if array.dtype == ml_dtypes.bfloat16 else mx.array(array)


def to_numpy(array):
    mx.eval(array)
    return np.array(array.view(mx.uint16)).view(ml_dtypes.bfloat16) if array.dtype == mx.bfloat16 else np.array(array)


FEATURES = "layout=bshd,bhsd,sbhd window_left=-1 window_right=-1,0 align=bottom_right softcap=0 kv_length=none "
# Measured: an exponential is off by up to 3 times the default of 4 units at logits of -60; x is multiplied by log2(e) in fp32.
PRECISION = "acc=half p=half scores=half scale=half exp=128 hidden=times_zero"


def arguments(query, key, value, bias, mask, window_right):
    """q, k, v and the mask as MLX takes them."""
    if bias is not None and mask is not None or window_right == 0 and (bias is not None or mask is not None):
        raise attncheck.Declined("one mask")
    if bias is not None and bias.dtype != query.dtype:
        raise attncheck.Declined("a mask that promotes to the type of q")
    if query.size == 0 or key.size == 0 or value.size == 0:
        raise attncheck.Declined("an empty tensor")
    q, k, v = (to_mlx(t.swapaxes(1, 2)) for t in (query, key, value))
    given = bias if mask is None else mask
    return q, k, v, "causal" if window_right == 0 else None if given is None else to_mlx(given)


@attncheck.kernel("attention", precision=PRECISION, features=FEATURES + "outputs=out")
def fused_any_row(query, key, value, bias, mask, sink, scale, window_right):
    q, k, v, given = arguments(query, key, value, bias, mask, window_right)
    out = mx.fast.scaled_dot_product_attention(q, k, v, scale=scale, mask=given,
                                               sinks=None if sink is None else to_mlx(sink).astype(q.dtype))
    return to_numpy(out).swapaxes(1, 2)


@attncheck.kernel("attention", precision=PRECISION, features=FEATURES + "outputs=out")
def fused(query, key, value, bias, mask, sink, scale, window_right):
    if has_empty_row(query, key, bias, mask, right=window_right, align=1):
        raise attncheck.Declined("a row without keys")
    return fused_any_row(query, key, value, bias, mask, sink, scale, window_right)


# The gradient goes by the output of its own forward.
@attncheck.kernel("attention_grad", precision=PRECISION + " group=half forward=own", features=FEATURES + "lse=absent out=reference sink=none bias=none")
def fused_grad(dout, query, key, value, mask, scale, window_right):
    if has_empty_row(query, key, None, mask, right=window_right, align=1):
        raise attncheck.Declined("a row without keys")
    *leaves, given = arguments(query, key, value, None, mask, window_right)
    _, found = mx.vjp(lambda *x: mx.fast.scaled_dot_product_attention(*x, scale=scale, mask=given), leaves, [to_mlx(dout.swapaxes(1, 2))])
    return {n: to_numpy(t).swapaxes(1, 2) for n, t in zip(("dq", "dk", "dv"), found)}
