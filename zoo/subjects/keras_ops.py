"""Keras on the CPU: keras.ops.dot_product_attention over PyTorch and over TensorFlow, and its gradient.

Declared from the documentation: query (B, T, N, H), key (B, S, K, H), value as key; N a multiple of K, and "multi-query attention (MQA) is
performed if K==1"; bias, added, and mask of bool, true = takes part, both broadcastable to (B, N, T, S); scale; is_causal, of whose corner
nothing is said; a soft cap for JAX on TPUs only. Nothing is said of rows without keys. `dot_product` declines these, and what the backends
refuse; `dot_product_any_call` does not.
"""

import importlib.util
import os
import sys
from pathlib import Path

import numpy as np

BACKEND = os.environ["KERAS_BACKEND"] = "torch" if importlib.util.find_spec("torch") else "tensorflow"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[1]))
import attncheck  # noqa: E402
from pairs import decline_unsaid, judged_and_any  # noqa: E402

ZOO = {"title": "Keras dot_product_attention", "environments": ["keras-3.15", "tensorflow-2.21"], "distribution": "keras",
       "kernels": ["dot_product", "dot_product_any_call", "dot_product_grad"], "properties": {"dot_product_any_call": ["agreement"]},
       "source": "https://keras.io/api/ops/nn/#dotproductattention-function"}
COMMON = ("layout=bshd,bhsd,sbhd dtype=fp16,fp32 value_dim=dim window_left=-1 window_right=-1,0 align=top_left softcap=0 kv_length=none sink=none ")
# Over PyTorch as torch_forms.py; TensorFlow sums in fp16 (measured), rounds the scores and P to it, and takes
# subnormal numbers for 0.
PRECISION = ("acc=fp32 p=half ds=half exp=20 scale=fp32 group=half hidden=times_zero" if BACKEND == "torch" else
             "acc=half p=half ds=half scores=half group=half ftz=all hidden=times_zero")


def attend(q, k, v, bias, mask, scale, window_right):
    if bias is not None and (bias.dtype != q.dtype or BACKEND == "torch" and mask is not None):
        raise attncheck.Declined("a bias of the type of query, and over PyTorch not with a mask")
    return keras.ops.dot_product_attention(q, k, v, bias=bias, mask=mask, scale=scale, is_causal=window_right == 0)


def tensors(*given):
    return [None if t is None else keras.ops.convert_to_tensor(np.ascontiguousarray(t)) for t in given]


def checked(query, key, value, bias, mask, scale, window_right):
    decline_unsaid(query, key, bias, mask, window_right)
    if query.size * key.size == 0 or not all(np.isfinite(np.asarray(t, np.float32)).all() for t in (query, key, value)):
        raise attncheck.Declined("an empty tensor, or numbers that are not finite: see PT-3")
    if key.shape[2] == 1 < query.shape[2] and (BACKEND != "torch" or bias is not None):
        raise attncheck.Declined("one key head for several: see KR-1")
    if BACKEND == "torch" and window_right == 0 and scale <= 0:
        raise attncheck.Declined("a scale that is not positive: see PT-1")


def call(query, key, value, bias, mask, scale, window_right):
    return keras.ops.convert_to_numpy(attend(*tensors(query, key, value, bias, mask), scale, window_right))


dot_product, dot_product_any_call = judged_and_any(call, checked, features=COMMON + "outputs=out", precision=PRECISION)


# Autodiff goes by the output of its own forward.
@attncheck.kernel("attention_grad", features=COMMON + "bias=none lse=absent out=reference", precision=PRECISION + " forward=own")
def dot_product_grad(dout, query, key, value, mask, scale, window_right):
    checked(query, key, value, None, mask, scale, window_right)
    *leaves, mask, dout = tensors(query, key, value, mask, dout)
    if BACKEND == "torch":
        import torch
        with torch.enable_grad():
            leaves = [t.detach().requires_grad_() for t in leaves]
            found = torch.autograd.grad(attend(*leaves, None, mask, scale, window_right), leaves, dout)
    else:
        import tensorflow
        with tensorflow.GradientTape() as tape:
            tape.watch(leaves)
            out = attend(*leaves, None, mask, scale, window_right)
        found = tape.gradient(out, leaves, output_gradients=dout)
    return dict(zip(("dq", "dk", "dv"), map(keras.ops.convert_to_numpy, found)))
