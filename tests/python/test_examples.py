"""The examples of docs/python.md hold, and each finds a defect that is planted in it. One whose package is missing is skipped."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from conftest import EXAMPLES

CASE = ("attention{dtype=fp16 q=[19,19] kv=[37,37] layout=bhsd kv_heads=2 group=2 dim=24 value_dim=8 scale=rsqrt window_right=0 "
        "align=%s lse=%s data=normal seed=3}")
GRADIENT = ("attention_grad{dtype=fp32 q=[5] kv=[9] layout=bshd kv_heads=2 group=2 dim=8 value_dim=4 scale=rsqrt window_right=0 "
            "align=top_left lse=absent data=normal seed=3}")
HERE = CASE % ("bottom_right", "given")

# What an example needs, its case, and a defect: what is replaced, by what.
PLANTED = {
    "attention_numpy": ("numpy", HERE, "(ahead <= window_right)", "(ahead < window_right)"),
    "attention_torch": ("torch", CASE % ("top_left", "absent"), "is_causal=window_right == 0", "is_causal=False"),
    "attention_triton": ("triton", HERE, "<= rows[:, None] + diagonal", "< rows[:, None] + diagonal"),
    "attention_jax": ("jax", HERE, "[:, None] + diagonal", "[:, None] + 2 * diagonal"),
    "attention_cuda": ("torch", HERE, "j <= i + diagonal", "j < i + diagonal"),
}


def needed(example: str) -> None:
    pytest.importorskip(PLANTED[example][0])
    if example == "attention_triton":
        pytest.importorskip("torch")
    if example == "attention_cuda" and not pytest.importorskip("torch").cuda.is_available():
        pytest.skip("no GPU")


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    """Triton on the CPU; on a machine with a GPU the examples use it."""
    if not os.path.exists("/dev/nvidiactl"):
        monkeypatch.setenv("TRITON_INTERPRET", "1")


def reproduce(attncheck, path, case):
    return attncheck("reproduce", case, "--property", "agreement", "--candidate", f"python:{path}", "--timeout", 300)


@pytest.mark.parametrize("example", PLANTED)
def test_an_example_holds_and_a_planted_defect_is_found(attncheck, tmp_path, example):
    needed(example)
    _, case, right, wrong = PLANTED[example]
    status, said = reproduce(attncheck, EXAMPLES / f"{example}.py", case)
    assert status == 0 and "held" in said, said
    source = (EXAMPLES / f"{example}.py").read_text()
    assert source.count(right) == 1
    (tmp_path / "planted.py").write_text(source.replace(right, wrong))
    status, said = reproduce(attncheck, tmp_path / "planted.py", case)
    assert status == 1 and "out is wrong" in said or "lse is wrong" in said, said


def test_autograd_gives_the_gradient(attncheck, tmp_path):
    needed("attention_torch")
    status, said = reproduce(attncheck, EXAMPLES / "attention_torch.py", GRADIENT)
    assert status == 0 and "held" in said, said
    source = (EXAMPLES / "attention_torch.py").read_text().replace("(q, k, v), dout)", "(q, k, v), 1.01 * dout)")
    (tmp_path / "planted.py").write_text(source)
    status, said = reproduce(attncheck, tmp_path / "planted.py", GRADIENT)
    assert status == 1, said


def test_a_run_of_the_example_in_numpy(attncheck):
    """As its first lines say, shorter."""
    status, said = attncheck("verify", "--candidate", f"python:{EXAMPLES / 'attention_numpy.py'}", "--no-validation", "--op",
                             "attention", "--property", "agreement", "--property", "hidden", "--cases", 4, "--seed", 1)
    assert status in (0, 3) and "FALSIFIED" not in said and "declared" in said, said


def test_the_page_names_every_example():
    page = (EXAMPLES.parents[1] / "docs" / "python.md").read_text()
    kernels = {f"{name}.py" for name in PLANTED}
    assert {path.name for path in EXAMPLES.glob("*.py")} == kernels | {"judge_solution.py", "judge_trace_solution.py"}
    assert kernels <= set(re.findall(r"examples/python/(\w+\.py)", page))


def test_a_solution_of_a_benchmark_is_judged(tmp_path):
    pytest.importorskip("torch")
    solution = tmp_path / "solution.py"
    solution.write_text("def custom_kernel(data):\n    q, k, v = data\n    return v.mean(dim=2, keepdim=True).expand(-1, -1, q.shape[2], -1)\n")
    done = subprocess.run([sys.executable, EXAMPLES / "judge_solution.py", solution], capture_output=True, text=True, timeout=300)
    assert done.stdout.startswith("falsified 0.0"), done.stdout + done.stderr


# Grouped heads of packed sequences, sequence by sequence, the diagonal through the last query and the last key.
PACKED = """
import torch
def run(q, k, v, qo_indptr, kv_indptr, sm_scale):
    out = torch.zeros_like(q)
    group = q.shape[1] // k.shape[1]
    for b in range(len(qo_indptr) - 1):
        i, j = slice(*qo_indptr[b:b + 2].tolist()), slice(*kv_indptr[b:b + 2].tolist())
        keys, values = (t[j].float().repeat_interleave(group, dim=1) for t in (k, v))
        s = torch.einsum("qhd,khd->hqk", q[i].float(), keys) * sm_scale
        rows, columns = s.shape[1:]
        hidden = torch.ones(rows, columns, dtype=torch.bool).triu(1 + columns - rows)
        p = torch.softmax(s.masked_fill(hidden, -torch.inf), dim=-1).masked_fill(hidden.all(-1, keepdim=True), 0.0)
        out[i] = torch.einsum("hqk,khd->qhd", p, values).to(q.dtype)
    return {"output": out, "lse": None}
"""


@pytest.mark.parametrize("change, verdict", [(("", ""), ("held", "inconclusive")), (("1 + columns - rows", "1"), "falsified")])
def test_a_solution_in_json_is_judged(tmp_path, change, verdict):
    pytest.importorskip("torch")
    solution = tmp_path / "solution.json"
    solution.write_text(json.dumps({"definition": "gqa_ragged_prefill_causal_h4_kv2_d16", "spec": {"entry_point": "main.py::run"},
                                    "sources": [{"path": "main.py", "content": PACKED.replace(*change)}]}))
    line = [sys.executable, EXAMPLES / "judge_trace_solution.py", solution, "--budget", "30", "--precision", "hidden=times_zero"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300)
    assert done.stdout.startswith(verdict), done.stdout + done.stderr


def test_a_solution_writes_below_its_folder(tmp_path):
    solution = tmp_path / "solution.json"
    for path, entry, words in (("../evil.py", "main.py::run", "below the folder"), ("main.py", "main.cu::run", "expected FILE.py")):
        solution.write_text(json.dumps({"definition": "gqa_ragged_prefill_causal_h4_kv2_d16", "spec": {"entry_point": entry},
                                        "sources": [{"path": path, "content": ""}]}))
        done = subprocess.run([sys.executable, EXAMPLES / "judge_trace_solution.py", solution], capture_output=True, text=True)
        assert done.returncode == 1 and words in done.stderr and done.stderr.count("\n") == 1, done.stderr
