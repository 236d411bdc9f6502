"""Runs the program as a user does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from attncheck import command_path

KERNELS = Path(__file__).parent / "kernels"
EXAMPLES = Path(__file__).parents[2] / "examples" / "python"
pytest_plugins = ["pytester"]


@pytest.fixture
def attncheck(tmp_path):
    """attncheck(ARGUMENT...) -> (exit status, what it said), with this interpreter for kernels."""

    def run(*arguments: object) -> tuple[int, str]:
        words = [str(command_path()), *map(str, arguments)]
        if words[1] in ("verify", "list") or (words[1] == "reproduce" and "--emit" not in words):
            words += ["--python", sys.executable]
        done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, timeout=300)
        return done.returncode, done.stdout + done.stderr

    return run


@pytest.fixture
def verify(attncheck, tmp_path):
    """verify(SOURCE or path, CASE, property=...): one case of a kernel."""

    def check(source: str | Path, case: str, property: str = "agreement", name: str = "", timeout: float = 5) -> tuple[int, str]:
        if isinstance(source, str):
            (tmp_path / "kernel.py").write_text(source)
            source = tmp_path / "kernel.py"
        candidate = f"python:{source}" + (f":{name}" if name else "")
        return attncheck("reproduce", case, "--property", property, "--candidate", candidate, "--timeout", timeout)

    return check
