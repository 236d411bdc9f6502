"""PyTorch on the CPU: compiled flex_attention, dynamic=True, with a mask_mod that uses variables from outside. No attncheck."""

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

print(torch.__version__)
torch.set_num_threads(1)
compiled = torch.compile(flex_attention, dynamic=True)


def five(left, right, ahead, lengths, mask):
    def mask_mod(b, h, i, j):
        seen = (j >= 0) & (j <= i + ahead + right)
        return seen if left < 0 and lengths is None and mask is None else seen & (j < 0)
    return mask_mod


def two(right, ahead):
    def mask_mod(b, h, i, j):
        return (j >= 0) & (j <= i + ahead + right)
    return mask_mod


for name, mask_mod in (("two variables", two(0, 0)), ("five variables", five(-1, 0, 0, None, None))):
    torch._dynamo.reset()
    query, key = torch.randn(1, 30, 4, 32).transpose(1, 2), torch.randn(1, 63, 2, 32).transpose(1, 2)
    block_mask = create_block_mask(mask_mod, None, None, 30, 63, device="cpu")
    try:
        out = compiled(query, key, key, block_mask=block_mask, enable_gqa=True)
        print(name, f"compiles, error {float((out - flex_attention(query, key, key, block_mask=block_mask, enable_gqa=True)).abs().max()):.1e}")
    except Exception as error:
        print(name, type(error).__name__, *[line[line.index("error:"):][:90] for line in str(error).splitlines() if "error:" in line][:1])
