"""PyTorch on the CPU: scaled_dot_product_attention as it chooses its form itself, and other ways into the same kernels.

Declared from the documentation: as torch_sdpa.py, and the form is chosen by PyTorch ("default"); a float attn_mask may require a gradient.
torch.nn.attention.bias.causal_lower_right is the causal mask from the lower right corner, with NaN where there are more queries than keys.
Nested tensors of the strided layout: a list of [H, L, E], each attends to its own keys. The operators below the function,
aten::_scaled_dot_product_flash_attention_for_cpu and ..._backward, give and take the log-sum-exp [B, H, L], natural, of fp32.
"""

import torch
from torch.nn.attention.bias import causal_lower_right

import attncheck

ZOO = {"title": "PyTorch, other ways into attention", "environments": ["torch-2.13"], "distribution": "torch",
       "kernels": ["default", "default_grad", "lower_right", "nested", "operator", "operator_grad"],
       "properties": {"default_grad": ["agreement", "exact_lattice", "gqa_repeat"], "operator_grad": ["agreement", "exact_lattice"],
                      "lower_right": ["agreement", "causality", "written_mask"], "nested": ["agreement", "row_view", "packing"]},
       "source": "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html"}
torch.set_num_threads(1)
COMMON = "window_left=-1 softcap=0 kv_length=none sink=none "
PADDED = COMMON + "layout=bshd,bhsd,sbhd "
CAUSAL = "window_right=-1,0 align=top_left "
GRADIENT = "lse=absent out=reference "
# exp_u20 and P in the type of the inputs (flash), or the root of the scale in query and key (math); in gradients ftz=bf16: see torch_sdpa.py.
FLASH = "acc=fp32 p=half ds=half exp=20 hidden=times_zero"
EITHER = FLASH + " scale=fp32"
sdpa = torch.nn.functional.scaled_dot_product_attention
flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def one_mask(query, bias, mask, window_right):
    if (bias is not None) + (mask is not None) + (window_right == 0) > 1:
        raise attncheck.Declined("one of bias, mask and is_causal")
    if bias is not None and bias.dtype != query.dtype:
        raise attncheck.Declined("attn_mask has the type of query")
    return bias if mask is None else mask


def settled(scale, window_right, *tensors):
    if window_right == 0 and scale <= 0:
        raise attncheck.Declined("is_causal with a scale that is not positive: see PT-1")
    if any(t.numel() == 0 for t in tensors) or not all(t.isfinite().all() for t in tensors):
        raise attncheck.Declined("no keys, or numbers that are not finite: see PT-3 and PT-4")


def attend(query, key, value, given, scale, window_right):
    q, k, v = (t.transpose(1, 2) for t in (query, key, value))
    return sdpa(q, k, v, attn_mask=given, is_causal=window_right == 0, scale=scale, enable_gqa=q.shape[1] != k.shape[1]).transpose(1, 2)


@attncheck.kernel("attention", tensors="torch", features=PADDED + CAUSAL + "outputs=out", precision=EITHER)
def default(query, key, value, bias, mask, scale, window_right):
    given = one_mask(query, bias, mask, window_right)
    settled(scale, window_right, query, key, value)
    return attend(query, key, value, given, scale, window_right)


# Autograd goes by the output of its own forward. Measured: the gradients of the query heads of a group are rounded before they are added.
@attncheck.kernel("attention_grad", tensors="torch", features=PADDED + CAUSAL + GRADIENT, precision=EITHER + " ftz=bf16 group=half forward=own")
def default_grad(dout, query, key, value, bias, mask, scale, window_right, dbias):
    given = one_mask(query, bias, mask, window_right)
    settled(scale, window_right, query, key, value)
    leaves = [t.detach().clone().requires_grad_() for t in (query, key, value)]
    if dbias is not None:
        leaves.append(given := bias.detach().clone().requires_grad_())
    with torch.enable_grad():
        out = attend(*leaves[:3], given, scale, window_right)
    return dict(zip(("dq", "dk", "dv", "dbias"), torch.autograd.grad(out, leaves, dout)))


@attncheck.kernel("attention", tensors="torch", precision=EITHER,
                  features=PADDED + "window_right=0 align=bottom_right q<=kv bias=none mask=none outputs=out ")
def lower_right(query, key, value, scale):
    settled(scale, 0, query, key, value)
    return attend(query, key, value, causal_lower_right(query.shape[1], key.shape[1]), scale, None)


# The math form, in the type of the inputs throughout.
@attncheck.kernel("attention", tensors="torch", precision="acc=half p=half ds=half scores=half scale=half ftz=bf16 hidden=times_zero",
                  features=COMMON + "layout=packed window_right=-1 bias=none mask=none outputs=out group=1")
def nested(query, key, value, cu_seqlens_q, cu_seqlens_kv, scale):
    settled(scale, None, query, key, value)
    if any(a == b for c in (cu_seqlens_q, cu_seqlens_kv) for a, b in zip(c, c[1:])):
        raise attncheck.Declined("an empty sequence")
    q, k, v = (torch.nested.nested_tensor([t[a:b].transpose(0, 1).contiguous() for a, b in zip(c, c[1:])])
               for t, c in ((query, cu_seqlens_q), (key, cu_seqlens_kv), (value, cu_seqlens_kv)))
    return torch.cat([t.transpose(0, 1) for t in sdpa(q, k, v, scale=scale).unbind()])


@attncheck.kernel("attention", tensors="torch", features=PADDED + CAUSAL + "value_dim=dim mask=none", precision=FLASH)
def operator(query, key, value, bias, scale, window_right, lse):
    given = one_mask(query, bias, None, window_right)
    if any(t.stride(3) != 1 for t in (query, key, value)):
        raise attncheck.Declined("channels that do not lie side by side: scaled_dot_product_attention copies them before")
    settled(scale, window_right, query, key, value)
    out, sums = flash(*(t.transpose(1, 2) for t in (query, key, value)), 0.0, window_right == 0, attn_mask=given, scale=scale)
    return {"out": out.transpose(1, 2)} | ({} if lse is None else {"lse": sums})


@attncheck.kernel("attention_grad", tensors="torch", features=PADDED + CAUSAL + "value_dim=dim group=1 mask=none lse=given",
                  precision=FLASH + " ftz=bf16")
def operator_grad(dout, query, key, value, out, lse, bias, scale, window_right, dbias):
    given = one_mask(query, bias, None, window_right)
    if dbias is not None:
        raise attncheck.Declined("no gradient of attn_mask")
    settled(scale, window_right, query, key, value)
    dout, q, k, v, out = (t.transpose(1, 2) for t in (dout, query, key, value, out))
    if any(t.stride(3) != 1 for t in (dout, q, k, v, out)):
        raise attncheck.Declined("channels that do not lie side by side: autograd gives none")
    found = flash_backward(dout, q, k, v, out, lse, 0.0, window_right == 0, attn_mask=given, scale=scale)
    return dict(zip(("dq", "dk", "dv"), (t.transpose(1, 2) for t in found)))
