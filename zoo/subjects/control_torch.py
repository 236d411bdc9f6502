"""Control: attention from its definition in eager PyTorch, binary32. It must hold.

Without a gradient: autograd multiplies by numbers that overflowed (data=huge), where the operator's gradient is finite.
"""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
import attncheck
from pairs import window_mask

ZOO = {"title": "eager PyTorch composition", "environments": ["torch-2.13"], "distribution": "torch", "control": True,
       "kernels": ["attention"], "source": "this file"}
torch.set_num_threads(1)
PADDED = "layout=bshd,bhsd,sbhd "
PRECISION = "p=fp32 ds=fp32 hidden=times_zero"


def attend(q, k, v, kv_length, bias, mask, sink, scale, softcap, left, right, align):
    """out [B,Sq,Hq,Dv] in fp32 and LSE [B,Hq,Sq]."""
    heads = q.shape[2]
    q, k, v = (t.float().transpose(1, 2) for t in (q, k, v))
    k, v = (t.repeat_interleave(heads // t.shape[1], dim=1) for t in (k, v))
    seen = torch.from_numpy(window_mask(q.shape[2], k.shape[2], left, right, align)).expand(q.shape[0], 1, -1, -1)
    if kv_length is not None:
        used = torch.arange(k.shape[2]) < torch.tensor(kv_length)[:, None]
        seen = seen & used[:, None, None]
        k, v = (torch.where(used[:, None, :, None], t, 0) for t in (k, v))
    seen = seen if mask is None else seen & mask
    s = q @ k.transpose(2, 3) * scale
    s = softcap * torch.tanh(s / softcap) if softcap > 0 else s
    if bias is not None:  # -inf hides a key, whatever its score is
        seen = seen & ~torch.isneginf(bias)
        s = s + torch.where(torch.isneginf(bias), 0, bias.float())
    s = torch.where(seen, s, -torch.inf)
    if sink is not None:
        s = torch.cat([s, sink[None, :, None, None].expand(*s.shape[:3], 1)], dim=3)
    if s.shape[3] == 0:
        return q.new_zeros(q.shape[0], q.shape[2], heads, v.shape[3]), q.new_full(q.shape[:3], -torch.inf)
    empty = torch.isneginf(s).all(dim=3, keepdim=True)
    p = torch.where(empty, 0, torch.softmax(torch.where(empty, 0, s), dim=3))[..., :k.shape[2]]
    lse = torch.where(empty[..., 0], -torch.inf, torch.logsumexp(torch.where(empty, 0, s), dim=3))
    return (torch.where(seen, p, 0) @ v).transpose(1, 2), lse


@attncheck.kernel("attention", tensors="torch", precision=PRECISION, features=PADDED)
def attention(query, key, value, kv_length, bias, mask, sink, scale, softcap, window_left, window_right, align, lse):
    out, sums = attend(query, key, value, kv_length, bias, mask, sink, scale, softcap, window_left, window_right, align)
    return {"out": out.to(query.dtype)} | ({} if lse is None else {"lse": sums})
