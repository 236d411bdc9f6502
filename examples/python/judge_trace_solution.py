"""Judges a solution of FlashInfer-Bench for attention over packed sequences, and prints its reward and a sentence.

    python examples/python/judge_trace_solution.py solution.json

The file is a Solution: `sources` with path and content, `spec.entry_point` as "main.py::run", and a `definition` of the name
gqa_ragged_prefill_causal_h32_kv8_d128. The function is called with q [total_q, Hq, D], k and v [total_kv, Hkv, D], qo_indptr,
kv_indptr and sm_scale by name; it returns output, or (output, lse), or a dictionary. Its lse is not judged.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import attncheck

# The last query of a sequence sees all of its keys.
FEATURES = ("attention: dtype={dtype} layout=packed kv_heads={kv_heads} group={group} dim={dim} value_dim=dim scale=rsqrt "
            "bias=none mask=none sink=none softcap=0 kv_length=none window_left=-1 window_right=0 align=bottom_right lse=absent")

KERNEL = '''
import sys
import torch
import attncheck

sys.path.insert(0, {folder!r})
from {module} import {function} as solution
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

@attncheck.kernel("attention", tensors="torch", device=DEVICE)
def attention(query, key, value, cu_seqlens_q, cu_seqlens_kv, scale, window_right, align):
    if query.numel() == 0 or key.numel() == 0:
        raise attncheck.Declined("workloads have no empty tensors")
    starts = [torch.tensor(one, dtype=torch.int32, device=query.device) for one in (cu_seqlens_q, cu_seqlens_kv)]
    with torch.no_grad():
        made = solution(q=query.contiguous(), k=key.contiguous(), v=value.contiguous(), qo_indptr=starts[0],
                        kv_indptr=starts[1], sm_scale=scale)
    return made["output"] if isinstance(made, dict) else made[0] if isinstance(made, (tuple, list)) else made
'''


def unpack(solution: dict, folder: Path) -> tuple[str, str]:
    """Writes the sources below the folder and returns module and function of the entry point. Raises ValueError."""
    for source in solution["sources"]:
        path = (folder / source["path"]).resolve()
        if not path.is_relative_to(folder.resolve()):
            raise ValueError(f"sources: path is {source['path']!r}, allowed: below the folder of the solution")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source["content"])
    found = re.fullmatch(r"([\w/]+)\.py::(\w+)", solution["spec"]["entry_point"])
    if not found:
        raise ValueError(f"entry_point is {solution['spec']['entry_point']!r}, expected FILE.py::FUNCTION")
    return found[1].replace("/", "."), found[2]


def judge(file: Path, dtype: str = "bf16", precision: str = "default", budget: float = 60) -> dict:
    """The object that `attncheck verify --judge` prints: verdict, reward, feedback and more."""
    solution = json.loads(file.read_text())
    heads = re.fullmatch(r"gqa_ragged_prefill_causal_h(\d+)_kv(\d+)_d(\d+)", solution["definition"])
    if not heads:
        raise ValueError(f"definition is {solution['definition']!r}, allowed: gqa_ragged_prefill_causal_h*_kv*_d*")
    query_heads, kv_heads, dim = map(int, heads.groups())
    features = FEATURES.format(dtype=dtype, kv_heads=kv_heads, group=query_heads // kv_heads, dim=dim)
    with tempfile.TemporaryDirectory() as folder:
        module, function = unpack(solution, Path(folder) / "sources")
        kernel = Path(folder) / "kernel.py"
        kernel.write_text(KERNEL.format(folder=str(Path(folder) / "sources"), module=module, function=function))
        done = subprocess.run([str(attncheck.command_path()), "verify", "--judge", "--candidate", f"python:{kernel}",
                               "--python", sys.executable, "--op", "attention", "--features", features,
                               "--precision", precision, "--budget", str(budget), "--json", "-"], capture_output=True, text=True)
    return json.loads(done.stdout)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, metavar="solution.json")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--precision", default="default")
    parser.add_argument("--budget", type=float, default=60)
    try:
        found = judge(**vars(parser.parse_args()))
    except (KeyError, OSError, ValueError) as error:
        sys.exit(f"no solution of FlashInfer-Bench: {error}")
    print(found["verdict"], round(found["reward"], 3), found["feedback"])
