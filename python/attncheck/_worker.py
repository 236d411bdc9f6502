"""The worker of a candidate in Python. Started by the program attncheck, of no use alone:

    python _worker.py LIBRARY TABLE NAME SOCKET_FD ARENA_FD MODULE

LIBRARY is libattncheck_worker.so, TABLE the arguments of the entry points as JSON, NAME a function
of the module, or empty. Faults, time, memory and guard pages are the library's and the suite's.
With an ARENA_FD of -1 it imports the module once and forks workers, see _fork_server.py.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path

_CALL = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t
)


def _import_own_package() -> None:
    """The package that this file is in, whatever else the interpreter has under its name."""
    import importlib.util

    folder = Path(__file__).resolve().parent
    sys.path[:] = [place for place in sys.path if Path(place or ".").resolve() != folder]
    spec = importlib.util.spec_from_file_location(
        "attncheck", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules["attncheck"] = module
    spec.loader.exec_module(module)


def _bytes(text: str) -> bytes:
    """For the suite, whatever a module wrote: halves of a surrogate pair are no UTF-8."""
    return text.encode(errors="backslashreplace")


def _fail(library: ctypes.CDLL, error: BaseException) -> int:
    """Says in one line why there are no kernels: the exit status."""
    from attncheck._kernels import tell_whole

    tell_whole(error.__cause__ or error)
    what = str(error)
    if isinstance(error, ImportError):
        what = f"{sys.executable} lacks a package that attncheck needs: {error}"
    library.attncheck_worker_refuse(_bytes(" ".join(what.split())))
    return 2


def _one_precision(kernels: dict) -> str:
    """The words of precision of all kernels, which a run has once. Raises CandidateError where marks differ."""
    from attncheck._errors import CandidateError

    words = {kernel.precision: op for op, kernel in kernels.items() if kernel.precision}
    if len(words) > 1:
        said = ", ".join(f"{op} precision='{text}'" for text, op in words.items())
        raise CandidateError(f"kernels of one run have the same words of precision, marked are {said}; name one of them, python:FILE.py:FUNCTION")
    return next(iter(words), "")


def _load(target: str, only: str, table: dict) -> tuple[str, dict]:
    """Name of the candidate and its kernels."""
    from attncheck import _kernels

    module = _kernels.load_module(target)
    found = _kernels.kernels_of(module, table, only)
    _one_precision(found)
    name = getattr(module, "__attncheck_name__", None) or (
        f"{os.path.basename(target)}" + (f":{only}" if only else "")
    )
    return str(name), found


def _serve(library: ctypes.CDLL, name: str, kernels: dict, table: dict) -> int:
    """Answers calls until the suite closes the socket: the exit status."""
    from attncheck._calls import Caller

    callers = {op: Caller(kernel, table[op]["arguments"]) for op, kernel in kernels.items()}

    def call(entry: bytes, address: int, message: int, size: int) -> int:
        status, text = callers[entry.decode()](address)
        if text:
            encoded = _bytes(text)[: size - 1]
            ctypes.memmove(message, encoded + b"\0", len(encoded) + 1)
        return status

    features = ";".join(f"{k.op}: {k.features}" for k in kernels.values() if k.features)
    precision = _one_precision(kernels)
    callback = _CALL(call)
    return library.attncheck_worker_serve(
        _bytes(name), _bytes(precision), _bytes(features), _bytes(" ".join(callers)), callback
    )


def main(arguments: list[str]) -> int:
    """Serves the kernels, or forks workers that do: the exit status."""
    library_path, table_text, only, socket, arena, target = arguments
    library = ctypes.CDLL(library_path)
    table = json.loads(table_text)
    forks = int(arena) < 0
    if not forks and library.attncheck_worker_open(int(socket), int(arena)) != 0:
        return 2
    errors: tuple[type[Exception], ...] = (ImportError,)
    try:
        _import_own_package()
        from attncheck._errors import CandidateError

        import numpy  # noqa: F401
        import ml_dtypes  # noqa: F401: a missing package is said before the first call

        errors = (CandidateError, ImportError)
        # torch.cuda.is_available() then asks without touching the device, so that the process may be copied.
        os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
        if not forks:
            return _serve(library, *_load(target, only, table), table)
        from attncheck import _fork_server

        threads = _fork_server.count_threads()
        name, kernels = _load(target, only, table)
    except errors as error:
        return 2 if forks else _fail(library, error)
    if not _fork_server.may_fork(threads):
        return 2
    given = _fork_server.serve_forks(int(socket))
    # Here in a copy for every request.
    if library.attncheck_worker_open(*given) != 0:
        return 2
    try:
        return _serve(library, name, kernels, table)
    except errors as error:
        return _fail(library, error)


if __name__ == "__main__":
    if len(sys.argv) != 7:
        sys.exit("_worker.py is started by attncheck and is of no use alone")
    # Destructors of the kernels are not under test.
    os._exit(main(sys.argv[1:]))
