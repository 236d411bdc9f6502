"""Kernels as functions: marking them, finding them in a module, and what they may raise."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import re
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Iterable, Mapping, Protocol, TypeVar

from attncheck._errors import CandidateError

Function = TypeVar("Function", bound=Callable[..., Any])
_MARK = "__attncheck_kernel__"
TENSORS = ("numpy", "torch")


class Declined(Exception):
    """Raised by a kernel for a legal call that it does not do: the call is skipped and counted."""


class Invalid(Exception):
    """Raised by a kernel that rejects illegal arguments; `status` is 161001 for an absent one."""

    def __init__(self, message: str = "", status: int = 161002) -> None:
        if not (isinstance(status, int) and 0 < status < 1 << 31):
            raise ValueError(f"status is {status!r}, allowed: 1 to {(1 << 31) - 1}, such as 161001 or 161002")
        super().__init__(message)
        self.status = status


class Device(Protocol):
    """Where tensors of torch are copied to and from. A string such as "cuda" makes the usual one."""

    def to_device(self, tensor: Any) -> Any:
        """A copy of a tensor of the host."""

    def to_host(self, tensor: Any) -> Any:
        """A copy of a tensor of the device, complete when the function returns."""

    def synchronize(self) -> None:
        """Waits until the kernel is done; an error of the device is raised here."""


@dataclass(frozen=True)
class Kernel:
    """A function that computes an operator.

    Attributes:
        op: name of the operator, "flash_attention_score".
        function: takes arguments by keyword.
        features: the cases that it takes, in the words of case lines, "dim=64,128 layout=BSND".
        tensors: what the function takes: "numpy" or "torch".
        device: with torch: "cpu", "cuda", "cuda:1" or a :class:`Device`.
        precision: how it rounds, as --precision has it.
        concurrent: calls may come from several threads at once; None: see :func:`kernel`.
    """

    op: str
    function: Callable[..., Any]
    features: str = ""
    tensors: str = "numpy"
    device: str | Device = "cpu"
    precision: str = ""
    concurrent: bool | None = None

    @property
    def one_at_a_time(self) -> bool:
        """Whether a call waits for those before it."""
        if self.concurrent is None:
            return os.environ.get("TRITON_INTERPRET") == "1" and "triton" in sys.modules
        return not self.concurrent

    @property
    def place(self) -> str:
        """ "kernel.py, function f" for messages."""
        try:
            file = inspect.getsourcefile(inspect.unwrap(self.function)) or "?"
        except TypeError:  # an object that is called, such as functools.partial
            file = "?"
        return f"{os.path.basename(file)}, function {name_of(self.function)}"


def name_of(function: Any) -> str:
    """The name of a function, or of the class of an object that is called."""
    return str(getattr(function, "__name__", type(function).__name__))


def kernel(
    op: str,
    *,
    features: str = "",
    tensors: str = "numpy",
    device: str | Device = "cpu",
    precision: str = "",
    concurrent: bool | None = None,
) -> Callable[[Function], Function]:
    """Marks a function as the kernel of an operator; the function itself is unchanged.

    Args:
        op: name of an operator, see `attncheck list`.
        features: what the kernel takes, in the words of case lines: "dtype=bf16,fp16 dim=64,128".
            Everything else is not asked for. Left out: the suite learns what is declined.
        tensors: "numpy" (bf16 and fp8 through ml_dtypes) or "torch".
        device: with torch: where tensors are copied before the call and from afterwards.
        precision: how the kernel rounds, as `--precision` has it.
        concurrent: whether the kernel may be called from several threads at once, which the law
            `concurrent` does. False: one call at a time. Left out: True, but under Triton's
            interpreter (TRITON_INTERPRET=1), which knows one call alone.

    Raises:
        ValueError: `tensors` is neither "numpy" nor "torch", or `device` has no use with NumPy.

    Example::

        @attncheck.kernel("attention_merge", features="dtype=fp32")
        def merge(parts, lses):
            ...
            return out, lse
    """
    if not isinstance(op, str):
        raise TypeError('kernel needs the name of an operator, such as @attncheck.kernel("attention")')
    if tensors not in TENSORS:
        raise ValueError(f"tensors is {tensors!r}, allowed: 'numpy' or 'torch'")
    if tensors == "numpy" and device != "cpu":
        raise ValueError(f"device is {device!r}, which needs tensors='torch'")

    def mark(function: Function) -> Function:
        marked = Kernel(op, function, features, tensors, device, precision, concurrent)
        try:
            setattr(function, _MARK, [*getattr(function, _MARK, []), marked])
        except AttributeError:
            raise TypeError(f"a {type(function).__name__} takes no mark, allowed: functions, and objects with attributes") from None
        return function

    return mark


@dataclass(frozen=True)
class Example:
    """A case that pytest replays: its line, and the property that it falsified once."""

    case: str
    property: str = ""


_EXAMPLES = "__attncheck_examples__"


def example(case: str, property: str = "") -> Callable[[Function], Function]:
    """Pins a case to a kernel that is marked for pytest: it is replayed first, as a test of its own.

    Args:
        case: the line that a counterexample prints, "attention_merge{dtype=fp16 ...}".
        property: what to check; empty: everything that applies to the case.
    """

    def pin(function: Function) -> Function:
        setattr(function, _EXAMPLES, [Example(case, property), *getattr(function, _EXAMPLES, [])])
        return function

    return pin


def examples_of(function: Callable[..., Any]) -> list[Example]:
    """The pinned cases of a function, in the order of the source."""
    return getattr(function, _EXAMPLES, [])


def marks_of(function: Any) -> list[Kernel]:
    """What marks a function as a kernel: attncheck.kernel, and the mark of pytest."""
    marked: list[Kernel] = list(getattr(function, _MARK, []))
    for mark in getattr(function, "pytestmark", []):
        if getattr(mark, "name", "") == "attncheck" and "op" in mark.kwargs and not marked:
            words = {k: v for k, v in mark.kwargs.items() if k in ("features", "tensors", "device", "precision", "concurrent")}
            marked.append(Kernel(mark.kwargs["op"], function, **words))
    return marked


def load_module(target: str) -> ModuleType:
    """The module of a path that ends in .py or of a dotted name.

    Raises:
        CandidateError: the import failed; the message has the error and its place.
    """
    try:
        if os.path.isabs(target):
            sys.path.insert(0, os.path.dirname(target))
            name = Path(target).stem
            if name in sys.modules:  # numpy.py takes nobody's place
                name = f"{name}_kernel"
            spec = importlib.util.spec_from_file_location(name, target)
            if spec is None or spec.loader is None:
                raise CandidateError(f"{target} is no Python file")
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module
            try:
                spec.loader.exec_module(module)
            except ImportError as error:
                if "no known parent package" not in str(error) or not Path(target).with_name("__init__.py").is_file():
                    raise
                del sys.modules[name]
                return _import_of_package(Path(target))
            return module
        sys.path.insert(0, os.getcwd())
        return importlib.import_module(target)
    except CandidateError:
        raise
    except BaseException as error:  # noqa: BLE001: also sys.exit() and Ctrl-C of the module
        raise CandidateError(f"the import failed: {describe_error(error, target)}") from error


def _import_of_package(file: Path) -> ModuleType:
    """A module that imports relative to its package, by its name from the folder above the outermost package."""
    names, folder = [file.stem], file.parent
    while (folder / "__init__.py").is_file():
        names.insert(0, folder.name)
        folder = folder.parent
    sys.path.insert(0, str(folder))
    return importlib.import_module(".".join(names))


def describe_error(error: BaseException, inside: str = "", hint: str = "") -> str:
    """ "TypeError: text (kernel.py:12)" in one line; the place is the last one in `inside`'s file.

    A long text has lines of its own behind the first, see ends_of. There is always a text: the suite takes the words
    before the colon as the class of a failure, which must not change with the line.
    """
    text, *more = ends_of(text_of(error))
    place = ""
    if isinstance(error, SyntaxError) and error.filename:
        text = error.msg or text
        place = f" ({os.path.basename(error.filename)}:{error.lineno})"
    else:
        frames = list(_frames(error))
        here = os.path.dirname(__file__)
        own = [frame for frame in frames if frame[0] == inside] or [
            frame for frame in frames if os.path.dirname(frame[0]) != here
        ]
        if own and not own[-1][0].startswith("<frozen"):
            place = f" ({os.path.basename(own[-1][0])}:{own[-1][1]})"
    first = f"{type(error).__name__}: {text or 'no message'}{hint}{place}"
    return "\n    ".join([first, *more])


def text_of(error: BaseException) -> str:
    """What an error says, as far as it can be asked."""
    try:
        return str(error)
    except BaseException as second:  # noqa: BLE001: a class of the module's own
        return f"(its text raises {type(second).__name__})"


_LONGEST_TEXT = 400  # of the 1024 bytes of a message, which has the calls that led to it, too
_LONGEST_LINE = 240
_told: set[str] = set()


def ends_of(text: str) -> list[str]:
    """A text in one line; of a long one the first line, the first with an error and the last ones, whole.

    Compilers quote commands and sources first and give the reason last, but build tools have the last word.
    """
    flat = " ".join(text.split())
    if len(flat) <= _LONGEST_TEXT:
        return [flat]
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    last = len(lines) - 1
    kept = {0, last} | set([k for k, line in enumerate(lines) if re.search(r"error\b[^:]{0,20}:", line, re.IGNORECASE)][:1])
    for k in range(last - 1, 0, -1):
        if sum(min(len(lines[one]), _LONGEST_LINE) for one in kept | {k}) > _LONGEST_TEXT:
            break
        kept.add(k)
    out = []
    for k in range(last + 1):
        if k in kept:
            is_long = len(lines[k]) > _LONGEST_LINE
            out.append(f"{lines[k][: _LONGEST_LINE // 2]} ... {lines[k][-_LONGEST_LINE // 2 :]}" if is_long else lines[k])
        elif k - 1 in kept:
            out.append(f"... {min(one for one in kept if one > k) - k} lines ...")
    return [*out, "(`attncheck reproduce` shows the whole text)"]


def tell_whole(error: BaseException) -> None:
    """Writes an error to standard error once where its message has only a part of its text."""
    text = text_of(error)
    if len(ends_of(text)) == 1 or text in _told:
        return
    _told.add(text)
    print("".join(traceback.format_exception(type(error), error, error.__traceback__)), file=sys.stderr, flush=True)


def _frames(error: BaseException) -> Iterable[tuple[str, int]]:
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next


def kernels_of(module: ModuleType, table: Mapping[str, Any], only: str = "") -> dict[str, Kernel]:
    """The kernels of a module by operator: marked functions, and functions named as entry points.

    Args:
        table: the operators, with their arguments.
        only: the name of one function; empty: all.

    Raises:
        CandidateError: there is none, one names no operator, or its parameters are no arguments.
    """
    found: dict[str, Kernel] = {}
    names = [only] if only else list(vars(module))
    for name in names:
        value = getattr(module, name, None)
        if value is None and only:
            known = ", ".join(n for n in vars(module) if callable(getattr(module, n)) and n[0] != "_")
            raise CandidateError(f"there is no function {only}, there are: {known or 'none'}")
        marked = marks_of(value) if callable(value) else []
        entry = name.removeprefix("attncheck_")
        if not marked and entry in table and callable(value) and not inspect.isclass(value):
            marked = [Kernel(entry, value)]
        if only and not marked:
            raise CandidateError(
                f'{only} is neither marked, as with @attncheck.kernel("{next(iter(table), "OPERATOR")}"), nor named as an '
                f"operator: {', '.join(table)}"
            )
        for one in marked:
            if one.op not in table:
                raise CandidateError(
                    f"function {name}: no operator {one.op!r}, known: {', '.join(table)}"
                )
            if one.op in found and found[one.op].function is not one.function:
                raise CandidateError(
                    f"two functions for {one.op}: {name_of(found[one.op].function)} and "
                    f"{name_of(one.function)}; name one behind the file, FILE:{name_of(one.function)}"
                )
            check_parameters(one, table[one.op]["arguments"])
            found[one.op] = one
    if not found:
        raise CandidateError(
            "no kernel in it: mark a function with @attncheck.kernel(\"OPERATOR\") or name it as an "
            f"operator: {', '.join(table)}"
        )
    return found


def check_parameters(one: Kernel, arguments: list[dict[str, Any]]) -> None:
    """Every parameter without a default must be an argument of the operator.

    Raises:
        CandidateError: naming the parameter and what is allowed.
    """
    known = [argument["name"] for argument in arguments]
    for parameter in parameters_of(one.function):
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise CandidateError(
                f"function {name_of(one.function)}: parameter {parameter.name} is positional-only, "
                "arguments are passed by keyword"
            )
        if (
            parameter.default is parameter.empty
            and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
            and parameter.name not in known
        ):
            raise CandidateError(
                f"function {name_of(one.function)}: parameter {parameter.name} is no argument of "
                f"{one.op}, those are: {', '.join(known)}"
            )


def parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters of a function.

    Raises:
        CandidateError: it has no signature, as some built-in functions.
    """
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise CandidateError(f"a kernel has no signature: {error}") from error
