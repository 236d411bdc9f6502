"""Programs of cases: each runs by itself, accepts right outputs, rejects wrong ones; so does judge."""

from __future__ import annotations

import contextlib
import io
import os
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
    "nsa_compress_attention{dtype=bf16 q=[6] cmp=[24] kv_heads=1 group=2 dim=192 value_dim=128 block=32 stride=16 "
    "select=64 count=2 mask=bool scale=rsqrt data=normal seed=1}",
    "attention{dtype=fp16 q=[5,5] kv=[7,7] layout=bhsd kv_heads=2 group=2 dim=8 value_dim=4 scale=rsqrt softcap=3 "
    "window_left=2 window_right=1 align=bottom_right bias=one_head mask=shared kv_length=some hidden_keys=nan "
    "sink=mixed data=normal seed=3}",
    "attention{dtype=fp32 q=[3,0,4] kv=[5,2,0] layout=packed kv_heads=1 group=2 dim=4 value_dim=4 scale=rsqrt "
    "window_right=0 lse=absent data=normal seed=3}",
    "attention_grad{dtype=bf16 q=[5,5] kv=[7,7] layout=sbhd kv_heads=2 group=2 dim=8 value_dim=4 scale=rsqrt "
    "softcap=3 window_left=4 bias=per_key bias_values=hides kv_length=some sink=normal data=normal seed=3}",
    "attention_grad{dtype=fp16 q=[4,4] kv=[6,6] layout=sbhd kv_heads=1 group=3 dim=8 value_dim=4 scale=rsqrt softcap=2 "
    "lse=absent mask=full bias=head kv_length=some sink=normal data=normal seed=3}",  # the longest program
    "attention_decode{dtype=bf16 q=[2,2] kv=[9,4] kv_heads=2 group=2 dim=8 value_dim=4 page=4 pages=shuffled "
    "shared=prefix spare=1 slack=1 tail=huge rest=nan window_left=5 softcap=2 sink=mixed scale=rsqrt data=normal seed=7}",
]


def test_every_operator_with_a_call_has_a_case():
    operators = {op for op, one in catalogue().items() if "arguments" in one}
    assert operators == {case.split("{")[0] for case in CASES}


PLACEHOLDER = '    raise NotImplementedError("call your kernel here")\n'
RIGHT = """    out = [np.array(want[n], np.dtype(TYPES[t])).reshape(s) if n in want else np.zeros(s, "i4")
           for n, (t, s) in DATA["outputs"].items()]
"""
WRONG = RIGHT + "    out[[n in want for n in DATA['outputs']].index(True)].reshape(-1)[-1] = 12345\n"


def emitted(attncheck, case, language):
    status, program = attncheck("reproduce", case, "--emit", language)
    assert status == 0, program
    assert program.count("\n") <= 60 + 6 * ("laid_out" in program) and "attncheck" not in program, program.count("\n")
    return program


def run(program: str, kernel: str) -> tuple[int, str, dict]:
    """Exit status, output and names of a program with this kernel; in this process, for its start costs most."""
    assert PLACEHOLDER in program
    names: dict = {"__name__": "__main__"}
    said = io.StringIO()
    with np.errstate(), contextlib.redirect_stdout(said), pytest.raises(SystemExit) as ended:
        exec(compile(program.replace(PLACEHOLDER, kernel), "case.py", "exec"), names)
    return ended.value.code, said.getvalue(), names


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[:36])
def test_a_program_of_a_case(attncheck, tmp_path, case):
    program = emitted(attncheck, case, "numpy")
    status, said, _ = run(program, WRONG + "    return out\n")
    assert status == 1 and "1 of" in said, said
    status, said, names = run(program, RIGHT + "    return out\n")
    assert status == 0, said
    outputs = dict(zip(names["DATA"]["outputs"], names["result"]))
    check_program_of_c(emitted(attncheck, case, "c"), outputs, list(names["want"]), tmp_path)

    outputs = {name: outputs[name] for name in names["want"] if name in outputs}
    op = case.split("{")[0]
    said = testing.assert_close(op, names["arguments"], outputs)
    assert "held" in said
    name = [name for name, out in outputs.items() if out.size][-1]
    outputs[name].reshape(-1)[-1] = 12345
    with pytest.raises(AssertionError, match=name):
        testing.assert_close(op, names["arguments"], outputs)


def test_tensors_lie_as_in_the_case(attncheck):
    case = ("attention{dtype=fp16 q=[2] kv=[3] layout=bshd kv_heads=1 group=2 dim=2 value_dim=2 data=normal seed=3 "
            "query.layout=gap key.layout=reversed_all value.layout=one_column}")
    _, _, names = run(emitted(attncheck, case, "numpy"), RIGHT + "    return out\n")
    query, key, value = (names["arguments"][name] for name in ("query", "key", "value"))
    assert not query.flags.c_contiguous and max(key.strides) < 0 and 0 in value.strides
    for language in ("torch", "c"):
        assert "Contiguous here and not in the case" in emitted(attncheck, case, language)
    assert "Contiguous" not in emitted(attncheck, case.split(" query.layout")[0] + "}", "c")


def test_a_program_tells_infinities_apart(attncheck, tmp_path):
    case = "attention_merge{dtype=fp16 parts=1 rows=1 heads=1 dim=1 weights=equal dead=rows data=zeros seed=0}"
    program, c = (emitted(attncheck, case, language) for language in ("numpy", "c"))
    for lse, status in (("-inf", 0), ("inf", 1), ("nan", 1)):
        wrong, said, _ = run(program, f"    return np.zeros((1, 1, 1), 'f2'), np.full((1, 1), {lse!r}, 'f4')\n")
        assert wrong == status, (lse, said)
        start = c.index("static int kernel(void)")
        end = c.index("\n", start) + 1
        number = lse.replace("inf", "INFINITY").replace("nan", "NAN")
        (tmp_path / "case.c").write_text(c[:start] + f"static int kernel(void) {{ out[0] = 0; lse[0] = {number}; return 0; }}\n" + c[end:])
        subprocess.run(["cc", "case.c", "-o", "case", "-lm"], cwd=tmp_path, check=True)
        assert subprocess.run(["./case"], cwd=tmp_path, capture_output=True).returncode == status, lse


def check_program_of_c(program: str, outputs: dict, judged: list[str], folder) -> None:
    """Compiled once: right outputs hold, and with WRONG in the environment one element is wrong."""
    body = "extern char *getenv(const char *);\nstatic int kernel(void) {\n"
    for name, out in outputs.items():
        words = out.astype("f8").reshape(-1) if out.dtype.itemsize == 4 else out.reshape(-1).view("u2")
        numbers = ", ".join(str(float(word)).replace("inf", "INFINITY") for word in words)
        body += f"    const double right_{name}[] = {{{numbers}}};\n"
        body += f"    for (long k = 0; k < {out.size}; ++k) {name}[k] = right_{name}[k];\n"
        if name == judged[0]:
            body += f"    if (getenv(\"WRONG\")) {name}[0] = {12345 if out.dtype.itemsize == 4 else f'{name}[0] ^ 0x4000'};\n"
    start = program.index("static int kernel(void)")
    end = program.index("\n", start) + 1
    (folder / "case.c").write_text(program[:start] + body + "    return 0;\n}\n" + program[end:])
    built = subprocess.run(["cc", "-std=c99", "-Wall", "-Wno-unused-variable", "-Werror", "-O0", "case.c", "-o", "case", "-lm"],
                           cwd=folder, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    for wrong in (False, True):
        done = subprocess.run([folder / "case"], capture_output=True, text=True, timeout=60,
                              env=os.environ | ({"WRONG": "1"} if wrong else {}))
        assert done.returncode == int(wrong) and ("\n" + done.stdout).count(": 0 of") == len(
            set(judged) & set(outputs)) - wrong, done.stdout


def test_programs_run_by_themselves(attncheck, tmp_path):
    (tmp_path / "case.py").write_text(emitted(attncheck, CASES[2], "numpy").replace(PLACEHOLDER, RIGHT + "    return out\n"))
    done = subprocess.run([sys.executable, "-I", "case.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "0 of" in done.stdout, done.stdout + done.stderr
    (tmp_path / "case.c").write_text(emitted(attncheck, CASES[2], "c"))
    subprocess.run(["cc", "case.c", "-o", "case", "-lm"], cwd=tmp_path, check=True)
    done = subprocess.run(["./case"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr == "call your kernel here\n"


def test_a_program_of_torch(attncheck, tmp_path):
    pytest.importorskip("torch")
    kernel = RIGHT + """    assert isinstance(query, torch.Tensor) and query.dtype is torch.bfloat16
    return [torch.from_numpy(o.astype("f8")).to(getattr(torch, o.dtype.name)) for o in out]
"""
    status, said, _ = run(emitted(attncheck, CASES[3], "torch"), kernel)
    assert status == 0, said
    assert emitted(attncheck, CASES[12], "torch")


def test_cases_without_a_program(attncheck):
    for case, words in {
        "nsa_module{}": "attncheck: ",
        CASES[2].replace("rows=2", "rows=65536"): "too many for a program",
    }.items():
        status, said = attncheck("reproduce", case, "--emit", "numpy")
        assert status == 2 and said.count("\n") == 1 and words in said, said
