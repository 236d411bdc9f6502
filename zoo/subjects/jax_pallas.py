"""JAX on the CPU: jax.experimental.pallas.ops.gpu.attention.mha, a FlashAttention in Pallas, in interpret mode, forward and backward.

Declared from its source, which is its documentation: q, k, v [batch, length, heads, dim]; sm_scale; causal from the top left corner;
blocks of 128, or of the length where it is shorter; `mha_grad` asks for blocks of 16. There is no mask, bias, window and softcap, and one key head for each query
head. `mha` is asked for lengths that are whole blocks, `mha_any_length` for others as well. Each shape costs a second and more.
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas.ops.gpu import attention as gpu

sys.path.insert(0, str(Path(__file__).parents[1]))
import attncheck

ZOO = {"title": "JAX Pallas mha, interpret mode", "environments": ["jax-0.10", "jax-0.6", "jax-0.4"], "distribution": "jax",
       "kernels": ["mha", "mha_any_length", "mha_grad"], "properties": {"": ["agreement"]},
       "source": "https://github.com/jax-ml/jax/blob/main/jax/experimental/pallas/ops/gpu/attention.py"}
FEATURES = ("layout=bshd,bhsd,sbhd group=1 kv_heads=1,2 dim=1,16,64 value_dim=dim window_left=-1 window_right=-1,0 align=top_left "
            "softcap=0 kv_length=none bias=none mask=none sink=none ")
# A shape is traced and compiled for a second and more: few are asked where the length is none of the question.
FEW = FEATURES.replace("dim=1,16,64", "dim=16,64") + "sequences=1 scale=rsqrt,one "
PRECISION = "p=half ds=half ftz=all hidden=times_zero"
BLOCK, SMALL = 128, 16
if hasattr(gpu, "BlockSizes"):
    names = ("block_q", "block_k", "block_q_dkv", "block_kv_dkv", "block_q_dq", "block_kv_dq")
    SMALL_BLOCKS = {"block_sizes": gpu.BlockSizes(**dict.fromkeys(names, SMALL))}
else:  # until 0.4
    SMALL_BLOCKS = {"block_q": SMALL, "block_k": SMALL}


def attend(q, k, v, scale, causal, blocks):
    if q.shape[1] != k.shape[1] and causal:
        raise attncheck.Declined("causal with other queries than keys: its source does not say which corner")
    try:
        return gpu.mha(q, k, v, None, float(scale), causal, interpret=True, **blocks)
    except ValueError as error:
        raise refusal(error)


def refusal(error):
    said = any(text in str(error) for text in ("must be a multiple of", "must be divided into the same number of blocks"))
    return attncheck.Declined(str(error)) if said else error


def arrays(*given):
    if any(t.size == 0 for t in given) or any(t.shape[0] > 2 or t.shape[1] > 2 * BLOCK for t in given):
        raise attncheck.Declined("an empty tensor, or slow in interpret mode")
    return [jnp.asarray(np.ascontiguousarray(t)) for t in given]


@attncheck.kernel("attention", precision=PRECISION, features=FEATURES + "dtype=fp32 outputs=out")
def mha_any_length(query, key, value, scale, window_right):
    return np.asarray(attend(*arrays(query, key, value), scale, window_right == 0, {}))


@attncheck.kernel("attention", precision=PRECISION, features=FEW + "q=16,128 kv=16,128 dtype=fp32 outputs=out")
def mha(query, key, value, scale, window_right):
    if any(t.shape[1] > BLOCK and t.shape[1] % BLOCK for t in (query, key)):
        raise attncheck.Declined("a length that is not whole blocks, see JX-3")
    return mha_any_length(query, key, value, scale, window_right)


@attncheck.kernel("attention_grad", precision=PRECISION + " forward=own", features=FEW + "q=16,32 kv=16,32 dtype=fp32 lse=absent out=reference")
def mha_grad(dout, query, key, value, scale, window_right):
    if any(t.shape[1] > SMALL and t.shape[1] % SMALL for t in (query, key)):
        raise attncheck.Declined("a length that is not whole blocks, see JX-3")
    q, k, v, dout = arrays(query, key, value, dout)
    _, back = jax.vjp(lambda *x: attend(*x, scale, window_right == 0, SMALL_BLOCKS), q, k, v)
    try:
        return dict(zip(("dq", "dk", "dv"), map(np.asarray, back(dout))))
    except ValueError as error:
        raise refusal(error)
