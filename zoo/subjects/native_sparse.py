"""native-sparse-attention-pytorch on the CPU: the sliding and the selected branch of its module SparseAttention, forward and through autograd.

Declared from its source, which is its documentation: to_qkv projects the input to query, key and value; rotary embedding turns query and key;
three branches (compressed, selected, sliding) are weighted by a sigmoid for each head and summed; combine_heads projects the result. The
parameters are chosen so that one branch is the operator `attention`: unit matrices as projections, rotary frequencies of 0, a gate of 1 for
the branch and 0 for the others. causal, q = kv, scale dim_head^-0.5. The sliding branch sees `distance <= window_size`, which is window_left,
and multiplies the scale into q. The selected branch is asked for as many blocks as there are, of equal importance (compression of zeros): then it sees
every earlier key. The unit matrix multiplies by 0, so that numbers that are not finite are declined.
"""

import functools

import torch
from native_sparse_attention_pytorch import SparseAttention

import attncheck

ZOO = {"title": "native-sparse-attention-pytorch", "environments": ["native-sparse-0.2"], "distribution": "native-sparse-attention-pytorch",
       "kernels": ["sliding", "selected", "sliding_grad", "selected_grad"],
       "properties": {"": ["agreement", "causality", "row_view", "gqa_repeat", "repeatable"], "sliding_grad": ["agreement"], "selected_grad": ["agreement"]},
       "source": "https://github.com/lucidrains/native-sparse-attention-pytorch/blob/main/native_sparse_attention_pytorch/native_sparse_attention.py"}
torch.set_num_threads(1)
FEATURES = ("dtype=fp32 layout=bshd,bhsd,sbhd q=1..80 q=kv dim=4..64/4 value_dim=dim kv_heads=1,2 group=1,2,4 scale=rsqrt softcap=0 window_right=0 "
            "kv_length=none bias=none mask=none sink=none ")
PRECISION = "hidden=times_zero"
SELECTED, SLIDING, BLOCK = 1, 2, 16


@functools.lru_cache(maxsize=256)
def module(heads, kv_heads, channels, window, branch):
    width = channels * (heads + 2 * kv_heads)
    made = SparseAttention(dim=width, dim_head=channels, heads=heads, kv_heads=kv_heads, sliding_window_size=window, compress_block_size=BLOCK,
                           compress_block_sliding_stride=BLOCK, selection_block_size=BLOCK, num_selected_blocks=64, causal=True, norm=False)
    with torch.no_grad():
        for part in (made.k_compress, made.v_compress):
            for parameter in part.parameters():
                parameter.zero_()
        made.to_qkv.weight.copy_(torch.eye(width))
        made.rotary_emb.freqs.zero_()
        gates = made.to_strategy_combine[0].bias.view(heads, 3)
        gates.fill_(-1e9)
        gates[:, branch] = 1e9
    made.combine_heads = torch.nn.Identity()
    return made.eval().requires_grad_(False)


def attend(query, key, value, window, branch):
    if query.numel() == 0:
        raise attncheck.Declined("an empty tensor")
    if not all(torch.isfinite(t).all() for t in (query, key, value)):
        raise attncheck.Declined("0 times a number that is not finite, in the projection")
    run = module(query.shape[2], key.shape[2], query.shape[3], window, branch)
    return run(torch.cat([t.flatten(2) for t in (query, key, value)], dim=-1)).view(query.shape)


def gradient(dout, tensors, window, branch):
    leaves = [t.detach().clone().requires_grad_() for t in tensors]
    with torch.enable_grad():
        return dict(zip(("dq", "dk", "dv"), torch.autograd.grad(attend(*leaves, window, branch), leaves, dout)))


@attncheck.kernel("attention", tensors="torch", precision=PRECISION + " scale=fp32", features=FEATURES + "outputs=out window_left=1..40")
def sliding(query, key, value, window_left):
    return attend(query, key, value, window_left, SLIDING)


@attncheck.kernel("attention", tensors="torch", precision=PRECISION, features=FEATURES + "outputs=out window_left=-1")
def selected(query, key, value):
    return attend(query, key, value, 1, SELECTED)


# Autograd goes by the output of its own forward.
@attncheck.kernel("attention_grad", tensors="torch", precision=PRECISION + " scale=fp32 forward=own",
                  features=FEATURES + "window_left=1..40 lse=absent out=reference")
def sliding_grad(dout, query, key, value, window_left):
    return gradient(dout, (query, key, value), window_left, SLIDING)


@attncheck.kernel("attention_grad", tensors="torch", precision=PRECISION + " forward=own", features=FEATURES + "window_left=-1 lse=absent out=reference")
def selected_grad(dout, query, key, value):
    return gradient(dout, (query, key, value), 1, SELECTED)
