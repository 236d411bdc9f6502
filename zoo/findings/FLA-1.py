"""fla: parallel_nsa under Triton's interpreter, a query whose selected blocks all lie ahead of it. No attncheck; 17 rows, blocks of 16."""

import os

os.environ["TRITON_INTERPRET"] = "1"
import torch
import triton.runtime.driver
from fla.ops.nsa import parallel_nsa


class NoDevice:  # the autotuner asks a driver for a stop watch, and the interpreter has no driver
    def get_benchmarker(self):
        return lambda call, quantiles=None, **_: (call(), [1.0, 1.0, 1.0])[1]


triton.runtime.driver.set_active(NoDevice())
rows = 17
q, kv = torch.zeros(1, rows, 16, 128, dtype=torch.half), torch.ones(1, rows, 1, 128, dtype=torch.half)
for block in (0, 1):
    out = parallel_nsa(q, kv, kv, g_slc=torch.ones(1, rows, 16, dtype=torch.half), block_indices=torch.full((1, rows, 1, 1), block),
                       block_counts=1, block_size=16, scale=1.0)[0, :, 0, 0]
    print("every row selects block", block, out.tolist())
