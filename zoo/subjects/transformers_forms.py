"""Transformers on the CPU: its attention functions over PyTorch, sdpa_attention_forward and eager_attention_forward of three models.

Declared from the source, which is the documentation: query [B, Hq, S, D], key and value [B, Hkv, S, D] with num_key_value_groups of the
module; attention_mask of bool, true = takes part, or added; without one and with more than one query is_causal counts from the top
left corner; scaling. `position_bias` is added, and where a mask or is_causal hides it holds "-inf where we should not". `sinks`: the model
gpt_oss, one score for each head that takes part in the softmax; the model gemma2: softcap; the model llama: neither. All add the mask last.
"""

import sys
from pathlib import Path
from types import SimpleNamespace

import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.models.gemma2 import modeling_gemma2
from transformers.models.gpt_oss import modeling_gpt_oss
from transformers.models.llama import modeling_llama

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]
import attncheck
from pairs import has_empty_row
from torch_forms import EITHER, settled

ZOO = {"title": "Transformers attention functions", "environments": ["transformers-5.24"], "distribution": "transformers",
       "kernels": ["sdpa", "position_bias", "sinks", "softcap", "eager", "eager_grad"],
       "properties": {"": ["agreement", "exact_lattice", "causality", "row_view", "written_mask", "gqa_repeat"]},
       "source": "https://github.com/huggingface/transformers/blob/main/src/transformers/integrations/sdpa_attention.py"}
torch.set_num_threads(1)
COMMON = "layout=bshd,bhsd,sbhd value_dim=dim window_left=-1 align=top_left kv_length=none outputs=out "
# Every operation stores its result in the type of the inputs; the softmax is one of fp32, but in gpt_oss, where it and the
# distances to the maximum have that type, too.
EAGER = "steps=half ftz=bf16 hidden=times_zero"
IN_HALF = "acc=half p=half scores=half scale=half ftz=bf16 hidden=times_zero"


def call(function, query, key, value, mask, scale, module=None, **extra):
    module = SimpleNamespace(num_key_value_groups=query.shape[2] // key.shape[2], training=False, **(module or {}))
    q, k, v = (t.transpose(1, 2) for t in (query, key, value))
    return function(module, q, k, v, mask, scaling=scale, **extra)[0]


def checked(query, key, value, bias, mask, scale, window_right):
    settled(scale, window_right, query, key, value)
    if bias is not None and bias.dtype != query.dtype:
        raise attncheck.Declined("a mask of the type of query")
    if window_right == 0 and query.shape[1] == 1 < key.shape[1]:
        raise attncheck.Declined("is_causal is for prefill: one query sees every key")
    if has_empty_row(query, key, bias if bias is None else bias.float(), mask, right=window_right):
        raise attncheck.Declined("a row without keys")


@attncheck.kernel("attention", tensors="torch", precision=EITHER, features=COMMON + "window_right=-1,0 softcap=0 sink=none")
def sdpa(query, key, value, bias, mask, scale, window_right):
    if (bias is not None) + (mask is not None) + (window_right == 0) > 1:
        raise attncheck.Declined("a mask takes the place of is_causal")
    checked(query, key, value, bias, mask, scale, window_right)
    return call(sdpa_attention_forward, query, key, value, bias if mask is None else mask, scale, is_causal=window_right == 0)


@attncheck.kernel("attention", tensors="torch", precision=EITHER,
                  features=COMMON + "window_right=-1,0 softcap=0 sink=none bias=full,one_batch,one_head,shared bias_type=input bias_values=normal")
def position_bias(query, key, value, bias, mask, scale, window_right):
    if mask is not None and window_right == 0:
        raise attncheck.Declined("a mask takes the place of is_causal")
    checked(query, key, value, bias, mask, scale, window_right)
    given = bias.expand(-1, query.shape[2], query.shape[1], key.shape[1])
    return call(sdpa_attention_forward, query, key, value, mask, scale, is_causal=window_right == 0, position_bias=given)


@attncheck.kernel("attention", tensors="torch", precision=IN_HALF, features=COMMON + "window_right=-1 softcap=0 mask=none sink=normal,large,low")
def sinks(query, key, value, bias, sink, scale):
    checked(query, key, value, bias, None, scale, -1)
    return call(modeling_gpt_oss.eager_attention_forward, query, key, value, bias, scale, {"sinks": sink.to(query.dtype)})


@attncheck.kernel("attention", tensors="torch", precision=EAGER, features=COMMON + "window_right=-1 mask=none sink=none")
def softcap(query, key, value, bias, scale, softcap):
    checked(query, key, value, bias, None, scale, -1)
    return call(modeling_gemma2.eager_attention_forward, query, key, value, bias, scale, softcap=softcap or None)


@attncheck.kernel("attention", tensors="torch", precision=EAGER, features=COMMON + "window_right=-1 mask=none sink=none softcap=0")
def eager(query, key, value, bias, scale):
    checked(query, key, value, bias, None, scale, -1)
    return call(modeling_llama.eager_attention_forward, query, key, value, bias, scale)


# Autograd adds up the gradients of repeated key heads, each in the type of the inputs.
@attncheck.kernel("attention_grad", tensors="torch", precision=EAGER + " forward=own group=half",
                  features=COMMON.replace("outputs=out ", "") + "window_right=-1 mask=none sink=none softcap=0 bias=none lse=absent out=reference")
def eager_grad(dout, query, key, value, scale):
    checked(query, key, value, None, None, scale, -1)
    leaves = [t.detach().clone().requires_grad_() for t in (query, key, value)]
    with torch.enable_grad():
        out = call(modeling_llama.eager_attention_forward, *leaves, None, scale)
        return dict(zip(("dq", "dk", "dv"), torch.autograd.grad(out, leaves, dout)))
