"""PyTorch on the CPU: flex_attention without torch.compile, forward and through autograd, and nested tensors.

Declared from the documentation: query (B, Hq, L, E), key (B, Hkv, S, E), value (B, Hkv, S, Ev); score_mod changes a scaled score, and
mask_mod of a BlockMask says which pairs are seen; enable_gqa; the log-sum-exp is returned on demand, natural. Softcap, bias, window,
alignment, kv_length and mask are written as such functions. jagged: scaled_dot_product_attention of nested tensors of jagged layout, whose
sequences have the lengths of their offsets; is_causal has "No viable backend" there. There is no sink.
"""

import torch
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

import attncheck

ZOO = {"title": "PyTorch flex_attention and nested tensors", "environments": ["torch-2.13"], "distribution": "torch",
       "kernels": ["eager", "eager_grad", "jagged"],
       "source": "https://docs.pytorch.org/docs/stable/nn.attention.flex_attention.html"}
torch.set_num_threads(1)
FEATURES = "layout=bshd,bhsd,sbhd sink=none "
# The scores leave the product in the type of the inputs; the softmax is of fp32, and P gets the type of the inputs again.
PRECISION = "acc=fp32 p=half ds=half scores=half scale=half hidden=times_zero"
# Measured: in fp16 two scores that differ by rounding alone give an error of 1.6 bounds of the dense form, whose steps are of fp32;
# results of bf16 below 2^-126 are 0.
JAGGED = "acc=half p=half ds=half scores=half scale=half exp=20 ftz=bf16 hidden=times_zero"


def mask_of(left, right, ahead, lengths, mask):
    def mask_mod(b, h, i, j):
        seen = j >= 0
        if left >= 0:
            seen = seen & (j >= i + ahead - left)
        if right >= 0:
            seen = seen & (j <= i + ahead + right)
        if lengths is not None:
            seen = seen & (j < lengths[b])
        return seen if mask is None else seen & mask[b, h, i, j]
    return mask_mod


def attend(query, key, value, kv_length, bias, mask, scale, softcap, left, right, align):
    if query.numel() == 0 or key.numel() == 0 or value.numel() == 0:
        raise attncheck.Declined("an empty tensor")
    q, k, v = (t.transpose(1, 2) for t in (query, key, value))
    ahead = k.shape[2] - q.shape[2] if align else 0
    lengths = None if kv_length is None else torch.tensor(kv_length)
    bias, mask = (None if t is None else t.expand(len(q), q.shape[1], q.shape[2], k.shape[2]) for t in (bias, mask))

    def score_mod(score, b, h, i, j):
        if softcap > 0:
            score = softcap * torch.tanh(score / softcap)
        return score if bias is None else score + bias[b, h, i, j]

    mask_mod = mask_of(left, right, ahead, lengths, mask)
    shape = (len(q) if mask is not None or lengths is not None else None, q.shape[1] if mask is not None else None, q.shape[2], k.shape[2])
    hides = left >= 0 or right >= 0 or lengths is not None or mask is not None
    blocks = create_block_mask(mask_mod, *shape, device="cpu") if hides else None
    changes = softcap > 0 or bias is not None
    out, aux = flex_attention(q, k, v, score_mod if changes else None, blocks, scale, enable_gqa=q.shape[1] != k.shape[1],
                              return_aux=AuxRequest(lse=True))
    return out.transpose(1, 2), aux.lse


@attncheck.kernel("attention", tensors="torch", features=FEATURES, precision=PRECISION)
def eager(query, key, value, kv_length, bias, mask, scale, softcap, window_left, window_right, align, lse):
    out, sums = attend(query, key, value, kv_length, bias, mask, scale, softcap, window_left, window_right, align)
    return {"out": out} | ({} if lse is None else {"lse": sums.float()})


# Autograd goes by the output of its own forward.
@attncheck.kernel("attention_grad", tensors="torch", features=FEATURES + "lse=absent out=reference bias=none", precision=PRECISION + " forward=own")
def eager_grad(dout, query, key, value, kv_length, mask, scale, softcap, window_left, window_right, align):
    leaves = [t.detach().clone().requires_grad_() for t in (query, key, value)]
    with torch.enable_grad():
        out = attend(*leaves, kv_length, None, mask, scale, softcap, window_left, window_right, align)[0]
        return dict(zip(("dq", "dk", "dv"), torch.autograd.grad(out, leaves, dout)))


@attncheck.kernel("attention", tensors="torch", precision=JAGGED,
                  features="layout=packed outputs=out value_dim=dim group=1 window_left=-1 window_right=-1 softcap=0 "
                           "kv_length=none bias=none mask=none sink=none")
def jagged(query, key, value, cu_seqlens_q, cu_seqlens_kv, scale):
    if query.numel() == 0 or key.numel() == 0 or any(a == b for c in (cu_seqlens_q, cu_seqlens_kv) for a, b in zip(c, c[1:])):
        raise attncheck.Declined("an empty sequence")
    offsets = {tuple(c): torch.tensor(c, dtype=torch.long) for c in (cu_seqlens_q, cu_seqlens_kv)}
    q, k, v = (torch.nested.nested_tensor_from_jagged(t.contiguous(), offsets[tuple(c)]).transpose(1, 2)
               for t, c in ((query, cu_seqlens_q), (key, cu_seqlens_kv), (value, cu_seqlens_kv)))
    try:
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=scale)
    except RuntimeError as error:
        if "No viable backend" in str(error):
            raise attncheck.Declined(str(error)) from error
        raise
    return out.transpose(1, 2).contiguous().values()
