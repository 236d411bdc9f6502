"""PyTorch on the CPU: scaled_dot_product_attention in its flash and math forms, forward and through autograd.

Declared from the documentation (source below): query (N, Hq, L, E), key (N, H, S, E), value (N, H, S, Ev); attn_mask is of
bool, True = takes part, or added to the scores, broadcast to (N, Hq, L, S); is_causal hides what is right of the diagonal
from the top left corner and excludes attn_mask; scale and enable_gqa are arguments. The formula there multiplies hidden
values by 0. There is no window, softcap, sink, kv_length and log-sum-exp. The memory-efficient form has no CPU kernel:
"No viable backend for scaled_dot_product_attention was found" under sdpa_kernel(EFFICIENT_ATTENTION).
"""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import attncheck

ZOO = {"title": "PyTorch scaled_dot_product_attention", "environments": ["torch-2.13"], "distribution": "torch",
       "kernels": ["flash", "flash_grad", "math", "math_grad"],
       "source": "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html"}
torch.set_num_threads(1)
PADDED = ("layout=bshd,bhsd,sbhd window_left=-1 window_right=-1,0 align=top_left softcap=0 kv_length=none sink=none ")
FORWARD = PADDED + "outputs=out"
# Autograd forms the statistics and the output again.
BACKWARD = PADDED + "lse=absent out=reference "
# exp_u20 of aten/src/ATen/cpu/vec is right to 20 units; P and dS are stored in the type of the inputs for the products.
FLASH = "acc=fp32 p=half ds=half exp=20 hidden=times_zero"
# The root of the scale goes into query and key. "For math backend, all intermediates are kept in torch.float if inputs are in torch.half or torch.bfloat16."
MATH = "acc=fp32 p=fp32 ds=fp32 scale=fp32 hidden=times_zero"


def attend(backend, q, k, v, bias, mask, scale, window_right):
    if bias is not None and mask is not None or window_right == 0 and (bias is not None or mask is not None):
        raise attncheck.Declined("one of bias, mask and is_causal")
    if bias is not None and bias.dtype != q.dtype:
        raise attncheck.Declined("attn_mask has the type of query")
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    try:
        with sdpa_kernel(backend):
            out = torch.nn.functional.scaled_dot_product_attention(
                q, k, v, attn_mask=bias if mask is None else mask, is_causal=window_right == 0, scale=scale,
                enable_gqa=q.shape[1] != k.shape[1])
    except RuntimeError as error:
        if "No available kernel" in str(error):  # of the named form, for these strides
            raise attncheck.Declined(str(error)) from error
        raise
    return out.transpose(1, 2)


def gradients(backend, dout, query, key, value, bias, mask, scale, window_right, dbias):
    leaves = [t.detach().clone().requires_grad_() for t in (query, key, value)]
    if bias is not None and dbias is not None:
        bias = bias.detach().clone().requires_grad_()
        leaves.append(bias)
    with torch.enable_grad():
        out = attend(backend, *leaves[:3], bias, mask, scale, window_right)
    return dict(zip(("dq", "dk", "dv", "dbias"), torch.autograd.grad(out, leaves, dout)))


@attncheck.kernel("attention", tensors="torch", features=FORWARD + " value_dim=dim group=1", precision=FLASH)
def flash(query, key, value, bias, mask, scale, window_right):
    if key.shape[1] == 0:
        raise attncheck.Declined("no keys: math is asked, and both forms do the same (PT-4)")
    return attend(SDPBackend.FLASH_ATTENTION, query, key, value, bias, mask, scale, window_right)


# Autograd goes by the output of its own forward. Products of bf16 take subnormal numbers for 0 on processors with AVX512_BF16 (VDPBF16PS).
@attncheck.kernel("attention_grad", tensors="torch", features=BACKWARD + "value_dim=dim group=1", precision=FLASH + " ftz=bf16 forward=own")
def flash_grad(dout, query, key, value, bias, mask, scale, window_right, dbias):
    if dbias is not None:
        raise attncheck.Declined("the flash form gives no gradient of attn_mask")
    return gradients(SDPBackend.FLASH_ATTENTION, dout, query, key, value, bias, mask, scale, window_right, None)


@attncheck.kernel("attention", tensors="torch", features=FORWARD, precision=MATH)
def math(query, key, value, bias, mask, scale, window_right):
    return attend(SDPBackend.MATH, query, key, value, bias, mask, scale, window_right)


@attncheck.kernel("attention_grad", tensors="torch", features=BACKWARD, precision=MATH + " forward=own")
def math_grad(dout, query, key, value, bias, mask, scale, window_right, dbias):
    return gradients(SDPBackend.MATH, dout, query, key, value, bias, mask, scale, window_right, dbias)
