#!/usr/bin/env python3
"""Times PyTorch's fused attention for the CPU, where PyTorch is installed, and prints JSON.

Usage: bench/torch_attention.py [--threads N] [--rounds N] [LENGTH]...

attncheck_speed --torch PYTHON starts it in every round; it runs alone too. The same shapes as there (D = 128; one
head with one thread, else eight), best of several rounds, CPU time with one thread and the wall's
otherwise. Forward and gradient in fp32 and bf16, causal or not; the gradient is the backward pass
alone, which has the forward's output and LSE. PyTorch's own variables choose its instruction set:
ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2. Exit status 77 when
PyTorch 2.3 or later is missing.
"""
import argparse
import json
import math
import sys
import time

try:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
except ImportError as failure:
    print(f"torch_attention: PyTorch 2.3 or later is not installed: {failure}", file=sys.stderr)
    sys.exit(77)


def attention(query, key, value, causal):
    """The fused kernel, and no other: an older release without it raises an error."""
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=causal)


def best_ms(rounds, clock, prepare, call):
    best = math.inf
    for _ in range(rounds + 1):  # the first one warms up
        argument = prepare()
        begin = clock()
        call(argument)
        best = min(best, clock() - begin)
    return best * 1e3


def measure(length, heads, dtype, causal, rounds, clock):
    torch.manual_seed(1)
    shape = (1, heads, length, 128)
    query, key, value = (torch.randn(shape).to(dtype).requires_grad_() for _ in range(3))
    output_grad = torch.randn(shape).to(dtype)

    def forward(_=None):
        return attention(query, key, value, causal)

    with torch.no_grad():
        forward_ms = best_ms(rounds, clock, lambda: None, forward)
    gradient_ms = best_ms(
        rounds, clock, forward,
        lambda output: torch.autograd.grad(output, (query, key, value), output_grad))
    row = {"dtype": {torch.float32: "fp32", torch.bfloat16: "bf16"}[dtype],
           "shape": f"S={length} D=128" + (" causal" if causal else "")}
    return [{"operator": "PyTorch flash", **row, "ms": forward_ms},
            {"operator": "PyTorch flash, gradient", **row, "ms": gradient_ms}]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("lengths", metavar="LENGTH", type=int, nargs="*", default=[1024, 4096])
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    heads, clock = (1, time.thread_time) if options.threads == 1 else (8, time.perf_counter)
    rows = []
    for length in options.lengths:
        for causal in (False, True):
            for dtype in (torch.bfloat16, torch.float32):
                rows += measure(length, heads, dtype, causal, options.rounds, clock)
    capability = torch.backends.cpu.get_cpu_capability()
    json.dump({"torch": torch.__version__, "capability": capability, "threads": options.threads, "rows": rows}, sys.stdout,
              indent=1)
    print()


if __name__ == "__main__":
    main()
