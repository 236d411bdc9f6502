"""PyTorch on an NVIDIA GPU: scaled_dot_product_attention in its flash, memory-efficient and cuDNN forms, and flex_attention.

Declared from the documentation (source below), as for the CPU (torch_sdpa.py): a scale of any sign, a mask of bool or one
that is added, broadcast to (N, Hq, L, S), is_causal from the top left corner. A form that refuses a call is no finding: the
documentation says that each has "specific limitations". The *_positive functions leave out scales that are not above 0, and
*_any_row takes masks with rows that see nothing; the others have a mask only where every row sees a key. Tensors in
half types alone: in fp32 the forms use the matrix units in ways that the documentation leaves open.
"""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import attncheck

ZOO = {"title": "PyTorch scaled_dot_product_attention on a GPU", "environments": ["torch-cuda"], "distribution": "torch", "needs": "cuda",
       "env": {"TORCHINDUCTOR_COMPILE_THREADS": "1"},  # no processes that outlive the call
       "kernels": ["flash", "flash_positive", "flash_grad", "efficient", "efficient_grad", "cudnn", "cudnn_positive", "cudnn_any_row",
                   "cudnn_grad", "flex"],
       "properties": {"flash": ["agreement"], "cudnn": ["agreement"], "cudnn_any_row": ["agreement"], "flex": ["agreement"]},
       "source": "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html"}
PADDED = "dtype=fp16,bf16 window_left=-1 window_right=-1,0 align=top_left softcap=0 kv_length=none sink=none bias=none "
POSITIVE = "scale=rsqrt,eighth,tenth,large "
FORWARD = PADDED + "outputs=out "
BACKWARD = PADDED + POSITIVE + "mask=none lse=absent out=reference group=1 "
# P and dS are factors of the matrix units in the type of the inputs; subnormals of bf16 are not kept by all forms.
PRECISION = "acc=fp32 p=half ds=half hidden=times_zero ftz=bf16 forward=own"


def attend(backend, q, k, v, mask, scale, window_right, any_row=False):
    if window_right == 0 and mask is not None:
        raise attncheck.Declined("one of mask and is_causal")
    if mask is not None and not any_row and not bool(mask.any(-1).all()):
        raise attncheck.Declined("a row that sees nothing")
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    try:
        with sdpa_kernel(backend):
            out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=window_right == 0, scale=scale,
                                                                   enable_gqa=q.shape[1] != k.shape[1])
    except RuntimeError as error:
        refused = ("No available kernel", "must be contiguous", "no kernel found", "must be at least", "is not supported", "No valid execution")
        if any(words in str(error) for words in refused):
            raise attncheck.Declined(str(error)) from error
        raise
    return out.transpose(1, 2)


def forward(backend, any_row=False):
    def kernel(query, key, value, mask, scale, window_right):
        with torch.no_grad():
            return attend(backend, query, key, value, mask, scale, window_right, any_row)

    return kernel


def backward(backend):
    def kernel(dout, query, key, value, scale, window_right):
        leaves = [t.detach().clone().requires_grad_() for t in (query, key, value)]
        with torch.enable_grad():
            out = attend(backend, *leaves, None, scale, window_right)
        return torch.autograd.grad(out, leaves, dout)

    return kernel


def given(op, features, function, name):
    function.__name__ = name
    return attncheck.kernel(op, tensors="torch", device="cuda", features=features, precision=PRECISION)(function)


flash = given("attention", FORWARD + "mask=none", forward(SDPBackend.FLASH_ATTENTION), "flash")
flash_positive = given("attention", FORWARD + POSITIVE + "mask=none", forward(SDPBackend.FLASH_ATTENTION), "flash_positive")
flash_grad = given("attention_grad", BACKWARD, backward(SDPBackend.FLASH_ATTENTION), "flash_grad")
efficient = given("attention", FORWARD, forward(SDPBackend.EFFICIENT_ATTENTION), "efficient")
efficient_grad = given("attention_grad", BACKWARD, backward(SDPBackend.EFFICIENT_ATTENTION), "efficient_grad")
cudnn = given("attention", FORWARD + "mask=none", forward(SDPBackend.CUDNN_ATTENTION), "cudnn")
cudnn_positive = given("attention", FORWARD + POSITIVE, forward(SDPBackend.CUDNN_ATTENTION), "cudnn_positive")
cudnn_any_row = given("attention", FORWARD + POSITIVE, forward(SDPBackend.CUDNN_ATTENTION, any_row=True), "cudnn_any_row")
cudnn_grad = given("attention_grad", BACKWARD, backward(SDPBackend.CUDNN_ATTENTION), "cudnn_grad")
compiled = torch.compile(flex_attention, dynamic=True)


@attncheck.kernel("attention", tensors="torch", device="cuda", precision=PRECISION,
                  features="dtype=fp16,bf16 dim=64,128 value_dim=dim window_left=-1..64 window_right=-1,0 mask=none bias=none "
                           "kv_length=none sink=none softcap=0 layout=bshd,bhsd,sbhd outputs=out scale=rsqrt,eighth,tenth")
def flex(query, key, value, scale, window_left, window_right, align):
    if query.dim() != 4 or query.shape[1] * key.shape[1] == 0:
        raise attncheck.Declined("packed, or no rows")
    corner = key.shape[1] - query.shape[1] if align else 0
    left = window_left if window_left >= 0 else 1 << 30
    right = window_right if window_right >= 0 else 1 << 30
    seen = create_block_mask(lambda b, h, i, j: (j >= i + corner - left) & (j <= i + corner + right), None, None, query.shape[1],
                             key.shape[1], device="cuda")
    q, k, v = (t.transpose(1, 2) for t in (query, key, value))
    with torch.no_grad():
        return compiled(q, k, v, block_mask=seen, scale=scale, enable_gqa=q.shape[1] != k.shape[1]).transpose(1, 2)
