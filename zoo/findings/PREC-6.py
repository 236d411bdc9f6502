"""PyTorch on the CPU: the logit that the flash form's gradient used, read from dV. One dO, so that dV is a row of probabilities. No attncheck."""

import math

import torch

print(torch.__version__)
torch.set_num_threads(1)
dim, scale, lse = 28, 1 / math.sqrt(28), 774.764404296875
query = {0: 64, 2: -1, 3: 1, 4: 1, 5: 1, 8: 1, 10: 1, 11: -1, 17: 1, 22: -1, 23: -1, 25: 1, 26: 1}
key = {0: 64, 2: 1, 3: -1, 4: -1, 5: -1, 8: -1, 10: -1, 11: 1, 17: 2, 22: 1, 23: -2, 25: 2, 26: 2}
q, dout, out = (torch.zeros(1, 1, 8, dim) for _ in range(3))
k, v = (torch.zeros(1, 1, 17, dim) for _ in range(2))
for channel in range(dim):
    q[0, 0, 0, channel], k[0, 0, 0, channel] = query.get(channel, 0), key.get(channel, 0)
k[0, 0, 2, 0], v[0, 0, 0, 24], dout[0, 0, 0, 24], out[0, 0, 0, 24] = 64, 1, 1, 0.5
sums = torch.tensor([[[lse] + [math.log(17)] * 7]])
_, _, dv = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(dout, q, k, v, out, sums, 0.0, False, scale=scale)

exact = sum(query[c] * key[c] for c in query)
print(f"<q, k> is {exact} for keys 0 and 2, a whole number in any order; the logit is {exact * scale:.5f}, one rounding is {2**-15:.1e}")
for row in (0, 2):
    print(f"key {row}: the gradient used {lse + math.log(dv[0, 0, row, 24].item()):.5f}")
forward, _ = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, False, scale=scale)
print(f"P of key 0: forward {forward[0, 0, 0, 24].item():.7f}, gradient {dv[0, 0, 0, 24].item():.7f}, exact 0.5")
for name, left, right in (("Q", query, key), ("K", key, query)):
    total = torch.tensor(0.0)
    for channel in left:
        total = total + torch.tensor(float(left[channel])) * scale * right[channel]
    print(f"scale multiplied into {name}, summed in fp32: {total.item():.5f}")
