"""Judges an attention kernel that was written for a public benchmark, and prints its reward and a sentence.

    python examples/python/judge_solution.py solution.py

Two forms of solutions are known: a class ModelNew with forward(Q, K, V), as KernelBench has them, and a function
custom_kernel(data) with data = (Q, K, V), as the leaderboards of GPU MODE have them. Tensors are [B,H,S,D], without a mask,
and the scale is 1/sqrt(D).
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import attncheck

# What the benchmarks ask for, and so what a solution need not do more than.
FEATURES = ("attention: dtype={dtype} layout=bhsd group=1 value_dim=dim scale=rsqrt bias=none mask=none sink=none softcap=0 "
            "kv_length=none window_left=-1 window_right=-1 align=top_left lse=absent")

KERNEL = '''
import importlib.util
import torch
import attncheck

spec = importlib.util.spec_from_file_location("solution", {solution!r})
solution = importlib.util.module_from_spec(spec)
spec.loader.exec_module(solution)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
model = solution.ModelNew().to(DEVICE) if hasattr(solution, "ModelNew") else lambda *qkv: solution.custom_kernel(qkv)

@attncheck.kernel("attention", tensors="torch", device=DEVICE)
def attention(query, key, value):
    if query.numel() == 0 or key.numel() == 0:
        raise attncheck.Declined("benchmarks have no empty tensors")
    with torch.no_grad():
        return model(*(t.transpose(1, 2).contiguous() for t in (query, key, value))).transpose(1, 2)
'''


def judge(solution: Path, dtype: str = "fp16", precision: str = "default", budget: float = 60) -> dict:
    """The object that `attncheck verify --judge` prints: verdict, reward, feedback and more."""
    with tempfile.TemporaryDirectory() as folder:
        kernel = Path(folder) / "kernel.py"
        kernel.write_text(KERNEL.format(solution=str(solution.resolve())))
        done = subprocess.run([str(attncheck.command_path()), "verify", "--judge", "--candidate", f"python:{kernel}", "--python", sys.executable,
                               "--op", "attention", "--features", FEATURES.format(dtype=dtype), "--precision", precision,
                               "--budget", str(budget), "--json", "-"], capture_output=True, text=True)
    return json.loads(done.stdout)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("solution", type=Path)
    parser.add_argument("--dtype", default="fp16")
    parser.add_argument("--precision", default="default")
    parser.add_argument("--budget", type=float, default=60)
    found = judge(**vars(parser.parse_args()))
    print(found["verdict"], round(found["reward"], 3), found["feedback"])
