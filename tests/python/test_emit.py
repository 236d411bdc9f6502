"""Programs of cases: each runs by itself, accepts right outputs, rejects wrong ones; so does judge."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from attncheck import testing
from attncheck._command import catalogue

CASES = [
    "nsa_compress{dtype=bf16 seq=[0,40,33] heads=2 dim=16 block=32 stride=16 data=normal seed=7}",
    "nsa_compress_grad{dtype=fp16 seq=[40,48] heads=2 dim=16 block=32 stride=16 data=normal seed=7}",
    "attention_merge{dtype=fp16 parts=3 rows=2 heads=2 dim=5 weights=wide dead=some data=normal seed=7}",
    "flash_attention_score{dtype=bf16 q=[3,4] kv=[7,4] layout=TND kv_heads=2 group=2 dim=8 value_dim=4 mask=bool "
    "sparse=3 scale=rsqrt data=normal seed=1}",
    "flash_attention_score{dtype=fp32 q=[4,4] kv=[6,6] layout=BSH kv_heads=1 group=3 dim=8 value_dim=8 pse=plain "
    "drop=random keep=half scale=rsqrt data=normal seed=1}",
    "flash_attention_score{dtype=bf16 q=[5] kv=[6] layout=TND kv_heads=2 group=1 dim=16 value_dim=16 rope=8 "
    "mask=bool sparse=1 scale=rsqrt data=normal seed=1}",
    "flash_attention_score_grad{dtype=fp16 q=[4,4] kv=[6,6] layout=BNSD kv_heads=2 group=2 dim=8 value_dim=8 "
    "mask=bool sparse=2 scale=rsqrt data=normal seed=1}",
    "nsa_selected_attention{dtype=bf16 q=[6] kv=[48] kv_heads=1 group=2 dim=192 value_dim=128 block=16 count=2 "
    "scale=rsqrt data=normal seed=1}",
    "nsa_selected_attention_grad{dtype=bf16 q=[6] kv=[48] kv_heads=1 group=2 dim=192 value_dim=128 block=16 count=2 "
    "scale=rsqrt data=normal seed=1}",
]


def test_every_operator_with_a_call_has_a_case():
    operators = {op for op, one in catalogue().items() if "arguments" in one}
    assert operators - {case.split("{")[0] for case in CASES} <= LATER


LATER = {"nsa_compress_attention", "attention", "attention_grad", "attention_decode"}


def run(program: str, kernel: str, path) -> subprocess.CompletedProcess:
    placeholder = '    raise NotImplementedError("call your kernel here")\n'
    assert program.count("\n") <= 60 and "attncheck" not in program and placeholder in program
    path.write_text(program.replace(placeholder, kernel))
    return subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=60)


RIGHT = """    out = [np.array(want[n], np.dtype(TYPES[t])).reshape(s) if n in want else np.zeros(s, "i4")
           for n, (t, s) in DATA["outputs"].items()]
"""
WRONG = RIGHT + "    out[-1].reshape(-1)[-1] += 1\n"
KEPT = RIGHT + "    np.save(sys.argv[0] + '.npy', np.array([arguments, dict(zip(DATA['outputs'], out)), list(want)], object))\n"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[:28])
def test_a_program_of_numpy(attncheck, tmp_path, case):
    status, program = attncheck("reproduce", case, "--emit", "numpy")
    assert status == 0, program
    path = tmp_path / "case.py"
    done = run(program, KEPT + "    return out\n", path)
    assert done.returncode == 0, done.stdout + done.stderr
    done = run(program, WRONG + "    return out\n", path)
    assert done.returncode == 1 and "1 of" in done.stdout, done.stdout + done.stderr

    arguments, outputs, judged = np.load(str(path) + ".npy", allow_pickle=True)
    outputs = {name: outputs[name] for name in judged}
    op = case.split("{")[0]
    said = testing.assert_close(op, arguments, outputs)
    assert "held" in said
    name = judged[-1]
    outputs[name].reshape(-1)[-1] = 12345
    with pytest.raises(AssertionError, match=name):
        testing.assert_close(op, arguments, outputs)


def test_a_program_of_torch(attncheck, tmp_path):
    pytest.importorskip("torch")
    status, program = attncheck("reproduce", CASES[3], "--emit", "torch")
    assert status == 0, program
    kernel = RIGHT + "    assert isinstance(query, torch.Tensor) and query.dtype is torch.bfloat16\n"
    done = run(program, kernel + "    return [tensor(o) for o in out]\n", tmp_path / "case.py")
    assert done.returncode == 0, done.stdout + done.stderr


def test_cases_without_a_program(attncheck):
    for case, words in {
        "nsa_module{}": "attncheck: ",
        CASES[2].replace("rows=2", "rows=65536"): "too many for a program",
    }.items():
        status, said = attncheck("reproduce", case, "--emit", "numpy")
        assert status == 2 and said.count("\n") == 1 and words in said, said
