"""PaddlePaddle on the CPU: paddle.nn.functional.scaled_dot_product_attention and flash_attention, forward and backward.

Declared from the documentation: query, key, value [batch, seq_len, heads, head_dim]; attn_mask broadcastable to [batch, heads, seq_len,
seq_len], of bool, true = takes part, or of the type of query, added; is_causal excludes attn_mask; scale, which is 1 / sqrt(head_dim) where
it is None; enable_gqa. The documentation names fp16 and bf16, which have no kernel on the CPU; "other dtypes may fall back to math
implementation". Nothing is said of the corner from which is_causal counts, and of rows without keys: `sdpa_any_call` is asked of both.
"""

import sys
from pathlib import Path

import numpy as np
import paddle

sys.path.insert(0, str(Path(__file__).parents[1]))
import attncheck
from pairs import decline_unsaid, judged_and_any

ZOO = {"title": "PaddlePaddle scaled_dot_product_attention", "environments": ["paddle-3.3"], "distribution": "paddlepaddle",
       "kernels": ["sdpa", "sdpa_any_call", "sdpa_grad", "flash"], "properties": {"sdpa_any_call": ["agreement"]},
       "source": "https://www.paddlepaddle.org.cn/documentation/docs/en/api/paddle/nn/functional/scaled_dot_product_attention_en.html"}
paddle.set_device("cpu")
functional = paddle.nn.functional
COMMON = ("layout=bshd,bhsd,sbhd dtype=fp32 window_left=-1 window_right=-1,0 align=top_left softcap=0 kv_length=none sink=none ")
# The formula of the documentation; the scale is multiplied into query.
PRECISION = "p=fp32 ds=fp32 scale=fp32 hidden=times_zero"


def tensors(*given):
    return [paddle.to_tensor(np.ascontiguousarray(t)) for t in given]


def attend(q, k, v, bias, mask, scale, window_right):
    given = bias if mask is None else mask
    if given is not None and window_right == 0 or bias is not None and (mask is not None or bias.dtype != np.float32):
        raise attncheck.Declined("one of bias, mask and is_causal, a bias of the type of query")
    return functional.scaled_dot_product_attention(q, k, v, None if given is None else tensors(given)[0], is_causal=window_right == 0,
                                                   scale=float(scale))


def checked(query, key, value, bias, mask, scale, window_right):
    decline_unsaid(query, key, bias, mask, window_right)
    if scale == 0 or query.size * key.size * value.size == 0:
        raise attncheck.Declined("scale 0 is taken for none, or an empty tensor")


def call(query, key, value, bias, mask, scale, window_right):
    return attend(*tensors(query, key, value), bias, mask, scale, window_right).numpy()


sdpa, sdpa_any_call = judged_and_any(call, checked, features=COMMON + "outputs=out", precision=PRECISION)


# Autodiff goes by the output of its own forward.
@attncheck.kernel("attention_grad", precision=PRECISION + " forward=own", features=COMMON + "bias=none lse=absent out=reference")
def sdpa_grad(dout, query, key, value, mask, scale, window_right):
    checked(query, key, value, None, mask, scale, window_right)
    leaves = tensors(query, key, value)
    for t in leaves:
        t.stop_gradient = False
    out = attend(*leaves, None, mask, scale, window_right)
    return dict(zip(("dq", "dk", "dv"), (t.numpy() for t in paddle.grad(out, leaves, tensors(dout)))))


@attncheck.kernel("attention", precision=PRECISION, features=COMMON + "scale=rsqrt group=1 mask=none bias=none outputs=out")
def flash(query, key, value, window_right):
    checked(query, key, value, None, None, 1.0, window_right)
    return functional.flash_attention.flash_attention(*tensors(query, key, value), causal=window_right == 0)[0].numpy()
