"""PyTorch on the CPU: nn.MultiheadAttention, a row that sees no key, on the fast path and beside it. No attncheck; expected: the same."""

import torch

module = torch.nn.MultiheadAttention(2, 2, batch_first=True).eval()
with torch.no_grad():
    for weight in (module.in_proj_weight, module.out_proj.weight):
        weight.fill_(1)
    for bias in (module.in_proj_bias, module.out_proj.bias):
        bias.zero_()
x, hidden = torch.ones(1, 1, 2), torch.ones(1, 1, dtype=torch.bool)
print(torch.__version__)
for fast in (True, False):
    torch.backends.mha.set_fastpath_enabled(fast)
    for name, mask in (("attn_mask", {"attn_mask": hidden}), ("key_padding_mask", {"key_padding_mask": hidden})):
        with torch.no_grad():
            print("fast path" if fast else "ordinary path", name, module(x, x, x, need_weights=False, **mask)[0].flatten().tolist())
