#!/usr/bin/env python3
"""Times scaled dot-product attention of PyTorch, where that is installed, and prints JSON.

Usage: bench/torch_attention.py [--threads N] [--rounds N] [LENGTH]...

For comparison with attncheck_speed: the same shapes (D = 128; one head with one thread, else
eight), best of several rounds, CPU time with one thread and the wall's otherwise. Forward and
gradient in fp32 and bf16, causal or not; the gradient is the backward pass alone, which keeps the
forward's probabilities. Exit status 77 when PyTorch (Debian package python3-torch) is missing.
"""
import argparse
import json
import math
import sys
import time

try:
    import torch
except ImportError as failure:
    print(f"torch_attention: PyTorch (python3-torch) is not installed: {failure}", file=sys.stderr)
    sys.exit(77)


def attention(query, key, value, hidden):
    """Composed where the library has no fused operator yet (before 2.0)."""
    if hasattr(torch.nn.functional, "scaled_dot_product_attention"):
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=hidden is not None)
    logits = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    if hidden is not None:
        logits = logits.masked_fill(hidden, -math.inf)
    return torch.softmax(logits, dim=-1) @ value


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
    hidden = torch.ones(length, length, dtype=torch.bool).triu(1) if causal else None

    def forward(_=None):
        return attention(query, key, value, hidden)

    with torch.no_grad():
        forward_ms = best_ms(rounds, clock, lambda: None, forward)
    gradient_ms = best_ms(
        rounds, clock, forward,
        lambda output: torch.autograd.grad(output, (query, key, value), output_grad))
    row = {"dtype": {torch.float32: "fp32", torch.bfloat16: "bf16"}[dtype],
           "shape": f"S={length} D=128" + (" causal" if causal else "")}
    return [{"operator": "PyTorch", **row, "ms": forward_ms},
            {"operator": "PyTorch, gradient", **row, "ms": gradient_ms}]


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
    json.dump({"torch": torch.__version__, "threads": options.threads, "rows": rows}, sys.stdout,
              indent=1)
    print()


if __name__ == "__main__":
    main()
