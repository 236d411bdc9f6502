"""One call of a kernel: arguments in, outputs out, and what both sides may do wrong."""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Mapping

import numpy as np

from attncheck import _arguments
from attncheck._declared import DeclaredNumbers
from attncheck._errors import CandidateError, OutputError
from attncheck._kernels import Declined, Invalid, Kernel, describe_error, parameters_of, tell_whole, text_of

# Numbers of the neutral operators with which they do nothing (attncheck/candidate.h).
WITHOUT_EFFECT = {"softcap": 0.0, "window_left": -1, "window_right": -1}

# What torch says of a write in place to a broadcast view, which an input may be.
_SHARED_MEMORY = "more than one element of the written-to tensor refers to a single memory location"

OK, DECLINED, NULLPTR, INVALID, INTERNAL = 0, -1, 161001, 161002, 561000


class Caller:
    """A kernel ready to be called with the address of its argument struct."""

    def __init__(self, kernel: Kernel, arguments: list[dict[str, Any]]) -> None:
        """Raises CandidateError when a package that the kernel needs is missing."""
        self._kernel = kernel
        self._arguments = arguments
        self._outputs = [a["name"] for a in arguments if a.get("output")]
        parameters = parameters_of(kernel.function)
        takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
        names = {p.name for p in parameters}
        self._taken = [a["name"] for a in arguments if takes_all or a["name"] in names]
        # A mask that the function cannot be given is a call that it does not do. Statistics it may
        # form again.
        self._needed_absent = [
            a["name"]
            for a in arguments
            if a.get("optional") and not a.get("output") and not a.get("derived") and a["name"] not in self._taken
        ]
        # Nor does it do one whose window it is not told of, unless it declares that it has this one alone.
        fixed = {key for key, value in (word.split("=", 1) for word in kernel.features.split() if "=" in word)
                 if "," not in value and ".." not in value}
        self._without_effect = {
            a["name"]: WITHOUT_EFFECT[a["name"]]
            for a in arguments
            if a["kind"] in ("integer", "real")
            and a["name"] in WITHOUT_EFFECT
            and a["name"] not in self._taken
            and a["name"] not in fixed
        }
        self._declared = DeclaredNumbers(kernel.features, arguments)
        self._optional_outputs = [a["name"] for a in arguments if a.get("output") and a.get("optional")]
        self._turn = threading.Lock() if kernel.one_at_a_time else contextlib.nullcontext()
        self._bridge: Bridge = NumpyBridge() if kernel.tensors == "numpy" else _torch_bridge(kernel)

    def __call__(self, address: int) -> tuple[int, str]:
        """Runs the kernel: a status of attncheck/candidate.h, and what there is to say to it."""
        try:
            values = _arguments.unpack(address, self._arguments)
        except ValueError as error:
            return INVALID, f"malformed argument: {error}"
        for name in self._needed_absent:
            if values[name] is not None:
                return DECLINED, f"{self._kernel.place} has no parameter {name}"
        for name, number in self._without_effect.items():
            if values[name] != number:
                return DECLINED, f"{self._kernel.place} has no parameter {name}"
        outside = self._declared.outside(values)
        if outside:
            return DECLINED, f"{self._kernel.place}: the call has {outside}"
        outputs = {name: values[name] for name in self._outputs if values[name] is not None}
        try:
            given = {
                name: self._bridge.give(value, name in outputs) if isinstance(value, np.ndarray) else value
                for name, value in values.items()
                if name in self._taken
            }
            with self._turn:
                returned = self._kernel.function(**given)
                self._bridge.wait()
            self._take(returned, given, outputs)
        except Declined as reason:
            return DECLINED, text_of(reason)
        except NotImplementedError as reason:
            return DECLINED, text_of(reason)
        except Invalid as reason:
            return reason.status, f"raised {describe_error(reason)}"
        except OutputError as error:
            return INTERNAL, f"wrong output {error.output}: {self._kernel.place}: {error}"
        except BaseException as error:  # noqa: BLE001: a kernel may raise anything
            tell_whole(error)
            status = INVALID if isinstance(error, (ValueError, TypeError)) else INTERNAL
            return status, self._raised(error)
        return OK, ""

    def _take(self, returned: Any, given: Mapping[str, Any], outputs: dict[str, np.ndarray]) -> None:
        filled = [name for name in outputs if name in given]
        if returned is None:
            missing = [name for name in outputs if name not in filled]
            if missing:
                raise OutputError(
                    missing[0], f"returned None, expected {', '.join(outputs)} or parameters of these names to fill"
                )
            for name in filled:
                self._bridge.take_filled(given[name], outputs[name])
            return
        fields = getattr(type(returned), "_fields", ())
        if fields and set(fields) <= set(self._outputs):  # a named tuple goes by its names
            returned = dict(zip(fields, returned))
        if isinstance(returned, Mapping):
            wrong = [name for name in returned if name not in self._outputs]
            if wrong:
                raise OutputError(
                    str(wrong[0]), f"returned an output {wrong[0]!r}, expected: {', '.join(outputs)}"
                )
            by_name = {name: returned[name] for name in outputs if name in returned}
        else:
            several = list(returned) if isinstance(returned, (tuple, list)) else [returned]
            if len(several) == 1 and several[0] is returned and not hasattr(returned, "shape"):
                raise OutputError(
                    next(iter(outputs), ""),
                    f"returned a {type(returned).__name__}, expected {', '.join(outputs)}"
                    + (" as arrays in a tuple, a list or a dictionary" if len(outputs) > 1 else " as an array"),
                )
            # Those that are filled may be left out of what is returned.
            for names in (list(outputs), [n for n in outputs if n not in filled], list(self._outputs)):
                if len(several) == len(names):
                    break
            else:
                raise OutputError(
                    next(iter(outputs), ""),
                    f"returned {len(several)} outputs, expected {len(outputs)}: {', '.join(outputs)}"
                    + self._hint(list(outputs), len(several)),
                )
            by_name = dict(zip(names, several))
        for name, target in outputs.items():
            if name not in by_name and name in filled:
                self._bridge.take_filled(given[name], target)
                continue
            value = by_name.get(name)
            if value is None:
                raise OutputError(name, f"returned no {name}, expected {', '.join(outputs)}")
            self._bridge.take(name, value, target)

    def _hint(self, outputs: list[str], count: int) -> str:
        """How a kernel says that it has only the first `count` outputs; empty where the others are needed."""
        missing = outputs[count:]
        if count == 0 or not missing or any(name not in self._optional_outputs for name in missing):
            return ""
        return f"; a kernel without {' and '.join(missing)} says features=\"outputs={','.join(outputs[:count])}\""

    def _raised(self, error: BaseException) -> str:
        """The error, then the last calls that led to it, innermost last."""
        import os
        import traceback

        frames = traceback.extract_tb(error.__traceback__)
        own = [f for f in frames if os.path.dirname(f.filename) != os.path.dirname(__file__)]
        hint = "; inputs must not be written" if _SHARED_MEMORY in text_of(error) else ""
        if isinstance(error, PermissionError):
            hint = "; the sandbox may forbid it, see verify --sandbox"
        lines = [f"raised {describe_error(error, hint=hint)}"]
        lines += [
            f"    {os.path.basename(f.filename)}:{f.lineno}, in {f.name}: {f.line or ''}".rstrip(" :")
            for f in own[-4:]
        ]
        return "\n".join(lines)


class Bridge:
    """Between arrays in the memory of the suite and what a kernel takes and returns."""

    def give(self, array: np.ndarray, output: bool) -> Any:
        """What the kernel gets for a tensor; inputs are read-only where that is known."""
        raise NotImplementedError

    def take(self, name: str, value: Any, target: np.ndarray) -> None:
        """Stores a returned output. Raises OutputError."""
        raise NotImplementedError

    def take_filled(self, value: Any, target: np.ndarray) -> None:
        """Stores an output that the kernel was given to fill."""

    def wait(self) -> None:
        """Returns when the kernel is done."""


class NumpyBridge(Bridge):
    """Views of the memory itself."""

    def give(self, array: np.ndarray, output: bool) -> np.ndarray:
        return array

    def take(self, name: str, value: Any, target: np.ndarray) -> None:
        if value is target:
            return
        if not isinstance(value, (np.ndarray, np.generic)):
            raise OutputError(name, f"{name} is of type {type(value).__name__}, expected numpy.ndarray")
        check_output(name, tuple(value.shape), value.dtype.name, target)
        target[...] = value


def check_output(name: str, shape: tuple[int, ...], dtype: str, target: np.ndarray) -> None:
    """Raises OutputError unless shape and type are those of the output."""
    if shape != target.shape:
        raise OutputError(name, f"{name} has shape {list(shape)}, expected {list(target.shape)}")
    if dtype != target.dtype.name:
        raise OutputError(name, f"{name} has type {dtype}, expected {target.dtype.name}")


def _torch_bridge(kernel: Kernel) -> Bridge:
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise CandidateError(f"{kernel.place} takes tensors of torch: {error}") from error
    from attncheck._torch import TorchBridge

    return TorchBridge(kernel.device)


