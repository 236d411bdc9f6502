"""pytest: every property of a marked kernel is a test item.

    @pytest.mark.attncheck(op="attention_merge", features="dtype=fp32", cases=50, seed=1)
    def merge(parts, lses):
        ...

Keywords of the mark: op (required), features, tensors, device, precision and concurrent as
:func:`attncheck.kernel` takes them; cases per property [100], seed [1], timeout of a call in
seconds [10], shrink: seconds for making a counterexample smaller [30], validation (whether illegal calls are tried) [False].

The items carry the other marks of the function and of its module, so skip, skipif, xfail and `-m` work.
Fixtures have no effect: the kernel runs in a process of its own.

What is falsified is kept under pytest's cache folder and replayed first the next time; a line to
paste (:func:`attncheck.example`) pins it in the source.
"""

from __future__ import annotations

import inspect
import itertools
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Generator, Iterator

import pytest

from attncheck._command import catalogue, command_path
from attncheck._kernels import examples_of

_MARK = "attncheck"
_KEYWORDS = {
    "op", "features", "tensors", "device", "precision", "concurrent", "cases", "seed", "timeout", "shrink", "validation"
}
_HELD, _FALSIFIED, _NOTHING_CHECKED = 0, 1, 3
_LONGEST_RUN_S = 3600
_NAMING_S = 10
_CAUSE_INDENT = 14  # of the text behind "looks like", and of its further lines


def pytest_configure(config: pytest.Config) -> None:
    """Makes the mark known."""
    config.addinivalue_line(
        "markers",
        "attncheck(op, features, cases, seed, ...): the function is a kernel; each of its properties "
        "is a test",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: Any, name: str, obj: Any) -> list[pytest.Item] | None:
    """A marked function gives items in place of a test function."""
    if not isinstance(collector, (pytest.Module, pytest.Class)) or not callable(obj):
        return None
    marks = [mark for mark in _marks_of(obj) if mark.name == _MARK]
    if not marks:
        return None
    if isinstance(collector, pytest.Class):
        # The worker finds a kernel by its name in the module; without an error nobody would check this one.
        raise pytest.Collector.CollectError(f"kernel {name} is in class {collector.name}, allowed: functions of a module")
    return list(_items(collector, name, obj, marks[0]))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """A skip names the place of the kernel; pytest would name the line of this file that raises it."""
    report = (yield).get_result()
    if isinstance(item, KernelItem) and report.skipped and isinstance(report.longrepr, tuple):
        path, line, _ = item.reportinfo()
        report.longrepr = (str(path), line + 1, report.longrepr[2])


def _marks_of(obj: Any) -> list[pytest.Mark]:
    """Marks of an object of a test module: a list where decorators set them, one mark where a class body may.

    An object may also answer to every name, such as mock.call, or raise at any, such as a proxy of Flask; both have none.
    """
    try:
        given = getattr(obj, "pytestmark", [])
    except Exception:  # noqa: BLE001: any class that a test module imports
        return []
    marks = [one.mark if isinstance(one, pytest.MarkDecorator) else one for one in (given if type(given) is list else [given])]
    return [mark for mark in marks if isinstance(mark, pytest.Mark)]


def _items(collector: pytest.Module, name: str, function: Any, mark: pytest.Mark) -> Iterator[pytest.Item]:
    wrong = set(mark.kwargs) - _KEYWORDS
    operators = {op: one for op, one in catalogue().items() if "arguments" in one}
    op = mark.kwargs.get("op")
    if mark.args or wrong or op not in operators:
        what = f"keywords {', '.join(sorted(wrong))}" if wrong else f"op={op!r}"
        raise pytest.UsageError(
            f"{collector.path}: mark of {name}: {what}, allowed: op= one of {', '.join(operators)}, "
            f"and {', '.join(sorted(_KEYWORDS - {'op'}))}"
        )
    if any(one.name == "parametrize" for one in _marks_of(function)):
        raise pytest.Collector.CollectError(f"parametrize has no effect on kernel {name}, allowed: a function for each")
    for k, one in enumerate(examples_of(function)):
        yield _item(collector, f"{name}[example{k}]", kernel=name, function=function, options=mark.kwargs,
                    property=one.property, case=one.case)
    for one in operators[op]["properties"]:
        if not one["large"] and (mark.kwargs.get("validation") or not one["validation"]):
            yield _item(collector, f"{name}[{one['name']}]", kernel=name, function=function, options=mark.kwargs,
                        property=one["name"])


def _item(collector: pytest.Module, name: str, **more: Any) -> pytest.Item:
    """With its id as text: pytest 9.2 would not see a parameter in the brackets, and --lf not find it again."""
    return KernelItem.from_parent(collector, name=name, nodeid=f"{collector.nodeid}::{name}", **more)


class Falsified(Exception):
    """What the suite says of a counterexample."""


class KernelItem(pytest.Item):
    """One property of one kernel, or one pinned case."""

    def __init__(self, *, kernel: str, function: Any, options: dict[str, Any], property: str, case: str = "",
                 **more: Any) -> None:
        super().__init__(**more)
        # As pytest.Function does; marks of the module come with the parent. The summary of skips tells by the attribute
        # pytestmark among the keywords whether the function itself is marked, and then shows its line.
        self.own_markers.extend(_marks_of(function))
        self.keywords.update((mark.name, mark) for mark in self.iter_markers())  # of the module, too: pytest 7.0 asks for it
        self.keywords.update(getattr(function, "__dict__", {}))
        if hasattr(function, "__globals__"):
            self.obj = function  # pytest evaluates a condition that is a text among the names of its module
        self._place = _place_of(function, self.path)
        self._kernel = kernel
        self._options = options
        self._property = property
        self._case = case

    def runtest(self) -> None:
        """Runs the program on this property; Falsified has its words."""
        option = self._options
        command = [str(command_path()), "reproduce" if self._case else "verify"]
        if self._case:
            command.append(self._case)
        command += ["--candidate", f"python:{self.path}:{self._kernel}", "--python", sys.executable]
        # What the tests may import, their kernels may: pythonpath of pytest, and the folders that it puts there.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(place for place in sys.path if place)}
        if self._property:
            command += ["--property", self._property]
        if "timeout" in option:
            command += ["--timeout", str(option["timeout"])]
        if not self._case:
            command += ["--op", option["op"], "--cases", str(option.get("cases", 100))]
            command += ["--seed", str(option.get("seed", 1)), "--jobs", "1"]
            corpus = self._corpus()
            command += ["--corpus", str(corpus)] if corpus else []
            if "shrink" in option:
                command += ["--shrink", str(option["shrink"])]
            if not option.get("validation"):
                command += ["--no-validation"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST_RUN_S,
                              cwd=self.config.rootpath, env=environment)
        if done.returncode == _HELD:
            return
        text = done.stdout + done.stderr
        if done.returncode == _NOTHING_CHECKED:
            pytest.skip(_last_note(text, self._property))
        if done.returncode != _FALSIFIED:
            raise Falsified(text.strip())
        if self._property == "agreement" and not self._case and not _diagnoses(text.splitlines()):
            text += self._name_defect(command, environment)
        raise Falsified(_counterexamples(text))

    def _name_defect(self, command: list[str], environment: dict[str, str]) -> str:
        """Lines that name the defect, from the law that can, some seconds of it; the suite says whether the cause is the same."""
        again = [*command, "--property", "deviation", "--time", str(_NAMING_S)]
        for option in ("--corpus", "--shrink", "--cases"):
            if option in again:
                at = again.index(option)
                del again[at:at + 2]
        again += ["--shrink", "0", "--cases", "30"]
        done = subprocess.run(again, capture_output=True, text=True, timeout=_LONGEST_RUN_S, cwd=self.config.rootpath,
                              env=environment)
        causes = done.stdout.split("\n@")[1:]
        of_law = next((one for one in causes if one.split(":")[0].endswith(".agreement")), "")
        return "\noperator  \n" + "\n".join(_diagnoses(of_law.splitlines()))

    def _corpus(self) -> Path | None:
        """What this property of this kernel failed once; a folder of its own, for runs side by side. None without pytest's cache."""
        cache = getattr(self.config, "cache", None)  # -p no:cacheprovider
        if cache is None:
            return None
        place = re.sub(r"\W+", "_", os.path.relpath(self.path, self.config.rootpath))
        return cache.mkdir(_MARK) / place / self._kernel / self._property

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        """The suite's words for what it falsified; a traceback for what went wrong here."""
        if isinstance(excinfo.value, (Falsified, FileNotFoundError)):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """The place of the kernel: pytest asserts that a skipped item has a line."""
        return *self._place, self.name


def _place_of(function: Any, path: Path) -> tuple[Path, int]:
    """File and line from 0 of a function; the top of the test file for a callable without code in a file."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None or not os.path.isfile(code.co_filename):
        return path, 0
    return Path(code.co_filename), code.co_firstlineno - 1


def _counterexamples(text: str) -> str:
    """Counterexamples and their diagnoses without the table between them, and the lines that pin them."""
    lines = text.splitlines()
    end = next((k for k, line in enumerate(lines) if line.startswith("operator  ")), len(lines))
    out = [line for line in _without_progress(lines[:end]) if not line.startswith("checking ")]
    while out and not out[-1].strip():
        out.pop()
    out += _diagnoses(lines[end:])
    pins = []
    for line in lines[:end]:
        found = re.search(r"attncheck reproduce '([^']*)' --property (\w+)", line)
        if found:
            pins.append(f'@attncheck.example("{found[1]}", "{found[2]}")')
    if pins:
        out += ["", "to pin it, above the function:", *dict.fromkeys(pins)]
    return "\n".join(out).strip()


def _without_progress(lines: list[str]) -> list[str]:
    """Without "found ... shrinking" and its case, which the counterexample tells again: pytest's summary has the first line."""
    if not any(line.startswith("FALSIFIED ") for line in lines):
        return lines
    out, skips = [], False
    for line in lines:
        skips = line.startswith("found ") or (skips and line.startswith(" "))
        if not skips and (line.strip() or out):
            out.append(line)
    return out


def _diagnoses(lines: list[str]) -> list[str]:
    """ "  looks like ..." of every cause, with the lines that a narrow terminal breaks it into."""
    out = []
    for k, line in enumerate(lines):
        if line.startswith("  looks like "):
            more = itertools.takewhile(lambda one: one.startswith(" " * _CAUSE_INDENT), lines[k + 1:])
            out += [line, *more]
    return out


def _last_note(text: str, name: str) -> str:
    """What the table says of a property that was not checked."""
    row = next((line for line in text.splitlines() if f" {name} " in line), "")
    return " ".join(row.split()) or "nothing was checked"
