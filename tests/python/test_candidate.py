"""Functions of Python as candidates: what holds, and what every kind of mistake is called."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

import pytest

from attncheck import command_path
from conftest import KERNELS

CASE = "attention_merge{dtype=fp16 parts=2 rows=3 heads=2 dim=4 weights=near data=normal seed=1}"
BF16 = CASE.replace("fp16", "bf16")
FLASH = (
    "flash_attention_score{{dtype={} q=[5] kv=[9] layout={} kv_heads=2 group=2 dim=8 value_dim=8 mask=bool "
    "mask_form=head sparse=1 scale=rsqrt data=normal seed=3}}"
)


@pytest.mark.parametrize("case", [CASE, BF16, CASE.replace("}", " statistics=absent parts.layout=swapped}")])
@pytest.mark.parametrize("property", ["agreement", "memory", "concurrent"])
def test_a_kernel_in_numpy_holds(verify, case, property):
    status, said = verify(KERNELS / "merge_numpy.py", case, property)
    assert status == 0, said


ONE_CALL_AT_A_TIME = """
import sys, time, types
import attncheck
import numpy as np
if {interpreted}:
    sys.modules["triton"] = types.ModuleType("triton")
running = 0

@attncheck.kernel("attention_merge"{words})
def merge(parts, lses):
    global running
    running += 1
    time.sleep(0.02)
    overlap = running > 1
    running -= 1
    if overlap:
        raise RuntimeError("two calls at once")
    weights = np.exp(lses.astype(float) - lses.max(axis=0))
    total = weights.sum(axis=0)
    out = (weights[..., None] * parts.astype(float)).sum(axis=0) / total[..., None]
    return out.astype(parts.dtype), (lses.max(axis=0) + np.log(total)).astype(np.float32)
"""


@pytest.mark.parametrize(
    "words, interpreted, status",
    [("", False, 1), (", concurrent=False", False, 0), ("", True, 0), (", concurrent=True", True, 1)],
)
def test_a_kernel_may_want_one_call_at_a_time(verify, monkeypatch, words, interpreted, status):
    """Triton's interpreter is such a one, and says so with an error of its own."""
    if interpreted:
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    source = ONE_CALL_AT_A_TIME.format(words=words, interpreted=interpreted)
    found, said = verify(source, CASE, "concurrent")
    assert found == status, said
    assert status == 0 or "two calls at once" in said


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("layout", ["BSND", "BNSD"])
def test_a_marked_kernel_holds(verify, dtype, layout):
    status, said = verify(KERNELS / "flash_numpy.py", FLASH.format(dtype, layout))
    assert status == 0, said


def test_a_call_that_needs_a_parameter_the_function_lacks_is_declined(verify):
    case = FLASH.format("fp16", "BSND").replace("scale=rsqrt", "pse=plain scale=rsqrt")
    status, said = verify(KERNELS / "flash_numpy.py", case)
    assert status == 3 and "declined" in said, said


ATTENTION = "attention{dtype=fp32 q=[2] kv=[2] layout=bshd kv_heads=1 group=1 dim=2 value_dim=2 scale=rsqrt %s seed=1}"


@pytest.mark.parametrize("asked", ["softcap", "window_left", "window_right"])
def test_a_call_with_a_number_that_the_function_lacks_is_declined(verify, asked):
    source = "def attention(query, key, value, scale):\n    raise RuntimeError\n"
    status, said = verify(source, ATTENTION % f"{asked}=1 data=zeros")
    assert status == 3 and f"has no parameter {asked}" in said, said
    assert verify(source, ATTENTION % "data=zeros")[0] == 1


def test_a_number_with_one_declared_value_needs_no_parameter(verify):
    """An always causal kernel has nothing to be told of; a list of values has."""
    source = 'import attncheck\n@attncheck.kernel("attention", features="{}")\ndef f(query, key, value, scale):\n    raise RuntimeError\n'
    assert verify(source.format("outputs=out window_right=0"), ATTENTION % "window_right=0 data=zeros")[0] == 1
    status, said = verify(source.format("outputs=out window_right=0,1"), ATTENTION % "window_right=0 data=zeros")
    assert status == 3 and "has no parameter window_right" in said, said


DECLARED = """import attncheck
@attncheck.kernel("attention", features="outputs=out {}")
def f(query, key, value, scale{}):
    raise RuntimeError("called")
"""


@pytest.mark.parametrize(
    "features, inside, outside",
    [
        ("softcap=0", "", "softcap=1"),
        ("softcap=2..8/2 softcap_unit=tenth", "softcap=4 softcap_unit=tenth", "softcap=3 softcap_unit=tenth"),
        ("softcap=2..8/2", "softcap=2", "softcap=9"),  # in any unit
        ("window_left=0..16", "window_left=16", "window_left=17"),
        ("window_left=-1,4..8/2", "", "window_left=5"),
        ("window_right=0", "window_right=0", "window_right=1"),
        ("align=top_left", "", "align=bottom_right"),
        ("scale=rsqrt,tenth", "", "scale=large"),
        ("scale=large", "scale=large", ""),
    ],
)
@pytest.mark.parametrize("parameters", ["", ", softcap, window_left, window_right, align"])
def test_a_call_with_a_number_outside_of_the_mark_is_declined(verify, features, inside, outside, parameters):
    """Whether the function has the parameter or not, and whatever runs the call."""
    def asked(words):
        case = ATTENTION % f"{words} data=zeros"
        return case.replace("scale=rsqrt scale=large", "scale=large")

    source = DECLARED.format(features, parameters)
    status, said = verify(source, asked(outside))
    name = features.split("=")[0]
    assert status == 3 and (f"declared is {name}=" in said or f"has no parameter {name}" in said), said
    if parameters or inside in ("", "window_right=0", "scale=large"):
        status, said = verify(source, asked(inside))
        assert status == 1 and "called" in said, said


def test_laws_without_cases_keep_to_the_numbers_of_the_mark(attncheck, tmp_path):
    """A window of more than 2^32 keys, which no case line can say."""
    source = DECLARED.format("window_left=0..16 window_right=0 align=top_left q=kv", ", window_left")
    body = source.replace('raise RuntimeError("called")', 'assert window_left <= 16\n    raise attncheck.Declined("enough")')
    (tmp_path / "kernel.py").write_text(body)
    options = ["--property", "unusual_arguments", "--cases", 20, "--seed", 2, "--jobs", 1, "--shrink", 0, "--no-validation"]
    status, said = attncheck("verify", "--candidate", "python:kernel.py", "--op", "attention", *options)
    assert status == 3 and "AssertionError" not in said, said


def test_who_declines_everything_is_told_why(attncheck, tmp_path):
    (tmp_path / "kernel.py").write_text('import attncheck\ndef attention(**given):\n    raise attncheck.Declined("not today")\n')
    status, said = attncheck("verify", "--candidate", "python:kernel.py", "--no-validation", "--property", "agreement", "--cases", 5)
    assert status == 3 and "nothing was checked: attention: every case was declined: not today" in " ".join(said.split()), said


def test_who_returns_too_little_learns_how_to_say_so(verify):
    source = "def attention(query, key, value, scale):\n    return value\n"
    status, said = verify(source, ATTENTION % "data=zeros")
    assert status == 1 and 'a kernel without lse says features="outputs=out"' in said, said


HEAD = "import numpy as np\nimport attncheck\n"
MISTAKES = {
    "raised ZeroDivisionError: division by zero (kernel.py:6)": "    helper()\ndef helper():\n    1 / 0\n",
    "raised ValueError: assignment destination is read-only": "    parts[...] = 0\n",
    "wrong output out: kernel.py, function attention_merge: out has shape [3, 2], expected [3, 2, 4]":
        "    return parts[0, ..., 0], lses[0]\n",
    "out has type float64, expected float16": "    return parts[0].astype(float), lses[0]\n",
    "returned 3 outputs, expected 2: out, lse": "    return 1, 2, 3\n",
    "returned None, expected out, lse or parameters of these names to fill": "    pass\n",
    "out is of type list, expected numpy.ndarray": "    return [1], lses[0]\n",
    "returned an output 'oot', expected: out, lse": "    return {'oot': parts[0]}\n",
    "timed out after 1 s": "    while True: pass\n",
    "out-of-bounds read": "    np.lib.stride_tricks.as_strided(lses, (lses.size + 1,), (4,)).sum()\n",
    "crashed: SIGSEGV": "    import ctypes; ctypes.string_at(8)\n",
    "ended the process with exit code 3": "    import os; os._exit(3)\n",
    "out differs from the reference": "    return parts[0], lses[0]\n",
    "got nan": "    return parts[0] * np.float16('nan'), lses[0]\n",
    "returned a generator, expected out, lse as arrays in a tuple, a list or a dictionary": "    return (x for x in (1, 2))\n",
    "returned a str, expected out, lse": "    return 'out'\n",
    "returned a NotImplementedType, expected out, lse": "    return NotImplemented\n",
}


@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_in_a_kernel_is_a_verdict(verify, words):
    timeout = 1 if words.startswith("timed out") else 5
    status, said = verify(HEAD + "def attention_merge(parts, lses):\n" + MISTAKES[words], CASE, timeout=timeout)
    assert status == 1 and words in said, said


def test_a_run_has_one_class_of_rounding(verify):
    source = """import attncheck
@attncheck.kernel("attention_merge", precision="{}")
def merge(parts, lses): raise ValueError("called")
@attncheck.kernel("attention", precision="exp=65536")
def forward(query, key, value): raise ValueError("called")
"""
    status, said = verify(source.format("exp=4"), CASE)
    assert status == 2 and "attention_merge precision='exp=4', attention precision='exp=65536'; name one of them" in said, said
    for same in ("exp=65536", ""):
        assert "ValueError: called" in verify(source.format(same), CASE)[1]


def test_an_error_that_cannot_be_printed_is_a_verdict(verify):
    source = """class Odd(Exception):
    def __str__(self): raise KeyError("no text")
def attention_merge(parts, lses):
    raise Odd()
"""
    status, said = verify(source, CASE)
    assert status == 1 and "raised Odd: (its text raises KeyError) (kernel.py:4)" in said, said
    status, said = verify(source.replace('raise KeyError("no text")', 'return "\\ud800"'), CASE)
    assert status == 1 and "raised Odd: \\ud800 (kernel.py:4)" in said, said


def test_the_class_of_an_error_without_text_has_no_line_number(verify):
    source = "def attention_merge(parts, lses):\n    raise KeyboardInterrupt\n"
    status, said = verify(source, CASE)
    assert status == 1 and "raised KeyboardInterrupt: no message (kernel.py:2)" in said, said


def test_a_failure_without_text_is_the_same_after_an_edit(attncheck, tmp_path):
    classes = []
    for blank in ("", "\n"):
        (tmp_path / "kernel.py").write_text(blank + "def attention_merge(parts, lses):\n    raise KeyboardInterrupt\n")
        options = ["--property", "agreement", "--cases", 2, "--seed", 1, "--jobs", 1, "--shrink", 0, "--no-validation"]
        _, said = attncheck("verify", "--candidate", "python:kernel.py", "--op", "attention_merge", *options)
        classes.append(next(line for line in said.splitlines() if line.startswith("@1 ")))
    assert classes[0] == classes[1] == "@1 attention_merge.agreement: raised KeyboardInterrupt"


def test_who_writes_to_a_broadcast_input_is_told_that_inputs_are_not_written(verify):
    pytest.importorskip("torch")
    source = """import attncheck
@attncheck.kernel("attention_merge", tensors="torch")
def merge(parts, lses):
    parts.mul_(2)
"""
    status, said = verify(source, CASE.replace("}", " parts.layout=broadcast}"))
    assert status == 1 and "a single memory location" in said and "; inputs must not be written (kernel.py:4)" in said, said


def test_a_traceback_names_the_last_calls(verify):
    source = "def attention_merge(parts, lses):\n    return inner(parts)\ndef inner(p):\n    return p.nothing\n"
    _, said = verify(source, CASE)
    assert "kernel.py:2, in attention_merge: return inner(parts)" in said
    assert "kernel.py:4, in inner: return p.nothing" in said


def test_declined_and_rejected_calls(verify):
    source = HEAD + "def attention_merge(parts, lses):\n    raise attncheck.Declined('no')\n"
    assert verify(source, CASE)[0] == 3
    status, said = verify(source.replace("Declined", "Invalid"), CASE)
    assert status == 1 and "raised Invalid: no" in said, said


OBJECTS = [
    "attention_merge = functools.partial(merge)",
    "class Merge:\n    def __call__(self, parts, lses):\n        return merge(parts, lses)\nattention_merge = Merge()",
    "attention_merge = attncheck.kernel('attention_merge')(functools.partial(merge))",
    "class Merge:\n    def run(self, parts, lses):\n        return merge(parts, lses)\nattention_merge = Merge().run",
]


@pytest.mark.parametrize("source", OBJECTS)
def test_an_object_that_is_called_is_a_kernel(verify, source):
    body = KERNELS.joinpath("merge_numpy.py").read_text().replace("def attention_merge", "def merge")
    status, said = verify(f"import functools\nimport attncheck\n{body}\n{source}\n", CASE)
    assert status == 0, said


def test_a_named_tuple_goes_by_its_names(verify):
    body = KERNELS.joinpath("merge_numpy.py").read_text()
    source = "import collections\nPair = collections.namedtuple('Pair', 'lse out')\n" + body.replace(
        "return out.astype(parts.dtype), lse.astype(np.float32)", "return Pair(lse.astype(np.float32), out.astype(parts.dtype))")
    status, said = verify(source, CASE)
    assert status == 0, said


def test_a_module_may_be_part_of_a_package(verify, tmp_path):
    package = tmp_path / "above" / "kernels"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").write_text("")
    (package / "core.py").write_text(KERNELS.joinpath("merge_numpy.py").read_text())
    (package / "entry.py").write_text("from .core import attention_merge\n")
    status, said = verify(package / "entry.py", CASE)
    assert status == 0, said


def test_a_file_with_the_name_of_a_module_takes_nobodys_place(verify, tmp_path):
    (tmp_path / "numpy.py").write_text(KERNELS.joinpath("merge_numpy.py").read_text())
    status, said = verify(tmp_path / "numpy.py", CASE)
    assert status == 0, said


def test_what_the_sandbox_forbids_is_told_with_its_option(verify):
    status, said = verify("def attention_merge(parts, lses):\n    open('/etc/attncheck', 'w')\n", CASE)
    assert status == 1 and "PermissionError: [Errno 13]" in said and "the sandbox may forbid it, see verify --sandbox" in said, said


def test_outputs_may_be_filled_or_returned_by_name(verify):
    body = KERNELS.joinpath("merge_numpy.py").read_text()
    filled = body.replace("(parts, lses)", "(parts, lses, out, lse=None)").replace(
        "out = (weights", "result = (weights"
    ).replace("    return out.astype(parts.dtype), lse.astype(np.float32)",
              "    out[...] = result\n    given[...] = lse").replace(
        "    shift =", "    given = lse\n    shift =", 1)
    status, said = verify(filled, CASE)
    assert status == 0, said
    named = body.replace("return out.astype(parts.dtype), lse.astype(np.float32)",
                         "return {'lse': lse.astype(np.float32), 'out': out.astype(parts.dtype)}")
    status, said = verify(named, CASE)
    assert status == 0, said


REFUSED = {
    "import nothere\n": "the import failed: ModuleNotFoundError: No module named 'nothere' (kernel.py:1)",
    "x = (\n": "the import failed: SyntaxError: '(' was never closed (kernel.py:1)",
    "raise ValueError('\\ud800')\n": "the import failed: ValueError: \\ud800 (kernel.py:1)",
    "raise SystemExit(3)\n": "the import failed: SystemExit: 3 (kernel.py:1)",
    "x = 1\n": "no kernel in it: mark a function with @attncheck.kernel",
    "def attention_merge(parts, lsez): pass\n":
        "function attention_merge: parameter lsez is no argument of attention_merge, those are: parts, lses, out, lse",
    "def attention_merge(parts, /, lses): pass\n": "parameter parts is positional-only",
    HEAD + "@attncheck.kernel('merge')\ndef f(parts): pass\n": "function f: no operator 'merge', known: ",
    HEAD + "@attncheck.kernel('attention_merge', tensors='jax')\ndef f(parts): pass\n":
        "tensors is 'jax', allowed: 'numpy' or 'torch'",
    HEAD + "@attncheck.kernel\ndef attention_merge(parts): pass\n":
        'TypeError: kernel needs the name of an operator, such as @attncheck.kernel("attention") (kernel.py:',
    HEAD + "attention_merge = attncheck.kernel('attention_merge')({}.get)\n":
        "TypeError: a builtin_function_or_method takes no mark, allowed: functions, and objects with attributes",
    HEAD + "def attention_merge(parts): pass\n@attncheck.kernel('attention_merge')\ndef f(parts): pass\n":
        "two functions for attention_merge: attention_merge and f; name one behind the file, FILE:f",
}


@pytest.mark.parametrize("source", REFUSED)
def test_a_module_that_is_no_candidate_is_refused_in_one_line(verify, source):
    status, said = verify(source, CASE)
    assert status == 2 and said.count("\n") == 1, said
    assert REFUSED[source] in said and "Traceback" not in said and "ELF" not in said, said


def test_names_that_lead_nowhere(attncheck, verify, tmp_path):
    def lines(*arguments):
        status, said = attncheck(*arguments)
        assert status == 2 and said.count("\n") == 1, said
        return said

    (tmp_path / "kernel.py").write_text("x = 1\n")
    assert "functions in Python is given as python:" in lines("list", "--candidate", "kernel.py")
    assert "no file nofile.py" in lines("list", "--candidate", "python:nofile.py")
    assert "neither a file that ends in .py nor the name of a module" in lines("list", "--candidate", "python:a b")
    assert "No module named 'no_such_module'" in lines("list", "--candidate", "python:no_such_module")
    status, said = verify(KERNELS / "merge_numpy.py", CASE, name="nothing")
    assert status == 2 and "there is no function nothing, there are: attention_merge" in said, said


SLOW_IMPORT = """
import os, sys, threading, time
import numpy as np

open({log!r}, "a").write("imported\\n")
{more}

def attention_merge(parts, lses):
    if {dies}:
        os.kill(os.getpid(), 11)
    weights = np.exp(lses - lses.max(axis=0))
    total = weights.sum(axis=0)
    return (weights[..., None] * parts).sum(axis=0) / total[..., None], lses.max(axis=0) + np.log(total)
"""


@pytest.mark.parametrize(
    "more, dies, imports",
    [
        ("", "False", range(2, 5)),  # the first worker, and one for each of two processes of the suite
        ("threading.Thread(target=time.sleep, args=(99,), daemon=True).start()", "False", range(5, 500)),
        ("", "parts.shape[0] > 2", range(3, 8)),  # a worker that imported the module dies of it, too
        ("own = os.getpid()", "parts.shape[0] > 2 and os.getpid() != own", range(5, 500)),  # no other copy is trusted then
    ],
)
def test_a_module_is_imported_once_for_all_workers_where_that_is_sound(attncheck, tmp_path, more, dies, imports):
    log = tmp_path / "imports"
    (tmp_path / "kernel.py").write_text(SLOW_IMPORT.format(log=str(log), more=more, dies=dies))
    options = ["--property", "agreement", "--property", "memory", "--cases", 8, "--seed", 1, "--jobs", 2, "--shrink", 0.5,
               "--sandbox", "off"]  # it writes
    _, said = attncheck("verify", "--candidate", "python:kernel.py", "--no-validation", *options)
    assert len(log.read_text().splitlines()) in imports
    assert "FALSIFIED attention_merge" in said  # its outputs have the wrong type
    assert ("crashed: SIGSEGV" in said) == (dies == "parts.shape[0] > 2")  # a program confirms what is told


COMPILER = """
def attention_merge(parts, lses):
    lines = ["C++ compile error", "g++ " + "-Iinclude " * 60, "", "kernel.cpp: In function 'run':"]
    lines += [f"kernel.cpp:{k}:8: note: candidate expects {k} arguments" for k in range(40)]
    lines.insert(20, "kernel.cpp:9:5: error: 'stride' was not declared in this scope; did you mean 'std::stride'?")
    raise RuntimeError("\\n".join(lines + ["ninja: build stopped: subcommand failed."]))
"""


def test_lines_of_a_compiler_are_whole(attncheck, verify, tmp_path):
    status, said = verify(COMPILER, CASE)
    assert status == 1
    message = said[said.index("raised RuntimeError"):]
    assert "raised RuntimeError: C++ compile error (kernel.py:6)\n" in message, said
    assert "    kernel.cpp:9:5: error: 'stride' was not declared in this scope; did you mean 'std::stride'?\n" in message, said
    assert "    ninja: build stopped: subcommand failed.\n" in message, said
    assert "    ... 18 lines ...\n" in message, said  # the command, and notes
    # What is shown while it is replayed is the whole.
    assert "kernel.cpp:11:8: note: candidate expects 11 arguments" in said, said
    options = ["--property", "agreement", "--cases", 3, "--shrink", 0, "--no-validation"]
    _, said = attncheck("verify", "--candidate", f"python:{tmp_path / 'kernel.py'}", *options)
    assert "`attncheck reproduce` shows the whole text" in said and "candidate expects 11 arguments" not in said, said


def test_a_long_message_keeps_its_end(verify):
    source = "def attention_merge(parts, lses):\n    raise RuntimeError('source ' * 500 + 'the reason')\n"
    _, said = verify(source, CASE)
    assert "raised RuntimeError: source source" in said
    assert "source the reason (kernel.py:2)" in said


@pytest.mark.parametrize(
    "precision, delta, status",
    [
        ("forward=own p=fp32 ds=fp32 hidden=times_zero", "1", (0, 3)),
        ("p=fp32 ds=fp32 hidden=times_zero", "1", (1,)),  # it does not use the output it is given
        ("forward=own p=fp32 ds=fp32 hidden=times_zero", "1.05", (1,)),
    ],
)
def test_a_gradient_may_go_by_a_forward_of_its_own(attncheck, monkeypatch, precision, delta, status):
    monkeypatch.setenv("GRAD_PRECISION", precision)
    monkeypatch.setenv("GRAD_DELTA", delta)
    options = ["--property", "agreement", "--property", "deviation", "--cases", 25, "--seed", 1, "--shrink", 0,
               "--stop-at-first", "--env", "GRAD_PRECISION", "--env", "GRAD_DELTA"]
    told, said = attncheck("verify", "--candidate", f"python:{KERNELS / 'grad_numpy.py'}", "--no-validation", *options)
    assert told in status
    assert ("FALSIFIED attention_grad" in said) == (status == (1,))
def test_a_tensor_on_another_device_is_a_verdict(verify):
    pytest.importorskip("torch")
    source = """import attncheck, torch
@attncheck.kernel("attention_merge", tensors="torch")
def merge(parts, lses):
    return parts[0].to("meta"), lses[0]
"""
    status, said = verify(source, CASE)
    assert status == 1 and "out is on meta, expected cpu; see device= of the mark" in said, said
    status, said = verify(source.replace('"torch")', '"torch", device="nothere")'), CASE)
    assert status == 2 and said.count("\n") == 1 and "device is 'nothere'" in said, said


@pytest.mark.parametrize("case", [CASE, BF16, CASE.replace("}", " parts.layout=reversed}")])
def test_a_device_is_copied_to_and_from(verify, case):
    """A stand-in for a GPU: outputs that are written on it arrive only if they are copied back."""
    pytest.importorskip("torch")
    status, said = verify(KERNELS / "merge_torch.py", case)
    assert status == 0, said
    source = (KERNELS / "merge_torch.py").read_text()
    status, said = verify(source.replace("    def to_host(self, tensor):\n        return tensor.clone()",
                                         "    def to_host(self, tensor):\n        return tensor * 0"), case)
    assert status == 1, said


def test_an_error_of_the_device_is_a_verdict(verify):
    pytest.importorskip("torch")
    source = (KERNELS / "merge_torch.py").read_text().replace("        pass\n", '        raise RuntimeError("illegal memory access")\n')
    status, said = verify(source, CASE)
    assert status == 1 and "raised RuntimeError: illegal memory access" in said, said


def test_a_missing_package_is_one_line(attncheck, tmp_path):
    bare = tmp_path / "bare"  # an interpreter without packages
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o755)
    words = [str(command_path()), "reproduce", CASE, "--candidate", f"python:{KERNELS / 'merge_numpy.py'}", "--python", str(bare)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=os.environ | {"PYTHONPATH": ""})
    said = done.stdout + done.stderr
    assert done.returncode == 2 and said.count("\n") == 1, said
    assert "lacks a package that attncheck needs: No module named 'numpy'" in said, said


def test_the_line_that_replays_names_the_interpreter(attncheck, tmp_path):
    kernel = tmp_path / "kernel.py"
    kernel.write_text("def attention_merge(parts, lses):\n    return parts[0], lses[0]\n")
    _, said = attncheck("verify", "--candidate", f"python:{kernel}", "--property", "agreement", "--op", "attention_merge",
                        "--cases", 5, "--shrink", 0, "--no-validation")
    line = next(line for line in said.splitlines() if line.startswith("  replay "))
    assert line.endswith(f" --candidate 'python:{kernel}' --python '{sys.executable}'"), line
    words = shlex.split(line.removeprefix("  replay "))
    done = subprocess.run([command_path(), *words[1:]], capture_output=True, text=True)
    assert done.returncode == 1 and "FALSIFIED" in done.stdout, done.stdout + done.stderr
