"""The worker of a candidate in Python. Started by the program attncheck, of no use alone:

    python _worker.py LIBRARY TABLE NAME SOCKET_FD ARENA_FD MODULE

LIBRARY is libattncheck_worker.so, TABLE the arguments of the entry points as JSON, NAME a function
of the module, or empty. Faults, time, memory and guard pages are the library's and the suite's.
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


def _load(target: str, only: str, table: dict) -> tuple[str, list, dict]:
    """Name of the candidate, its kernels, and what calls them."""
    from attncheck import _kernels
    from attncheck._calls import Caller

    import ml_dtypes  # noqa: F401: a missing package is said before the first call

    module = _kernels.load_module(target)
    found = _kernels.kernels_of(module, table, only)
    callers = {op: Caller(kernel, table[op]["arguments"]) for op, kernel in found.items()}
    name = getattr(module, "__attncheck_name__", None) or (
        f"{os.path.basename(target)}" + (f":{only}" if only else "")
    )
    return str(name), list(found.values()), callers


def main(arguments: list[str]) -> int:
    """Serves the kernels until the suite closes the socket: the exit status."""
    library_path, table_text, only, socket, arena, target = arguments
    library = ctypes.CDLL(library_path)
    if library.attncheck_worker_open(int(socket), int(arena)) != 0:
        return 2
    try:
        _import_own_package()
        from attncheck._errors import CandidateError
    except ImportError as error:
        library.attncheck_worker_refuse(
            f"{sys.executable} lacks a package that attncheck needs: {error}".encode()
        )
        return 2
    try:
        name, kernels, callers = _load(target, only, json.loads(table_text))
    except (CandidateError, ImportError) as error:
        what = str(error)
        if isinstance(error, ImportError):
            what = f"{sys.executable} lacks a package that attncheck needs: {error}"
        library.attncheck_worker_refuse(" ".join(what.split()).encode())
        return 2

    def call(entry: bytes, address: int, message: int, size: int) -> int:
        status, text = callers[entry.decode()](address)
        if text:
            encoded = text.encode(errors="replace")[: size - 1]
            ctypes.memmove(message, encoded + b"\0", len(encoded) + 1)
        return status

    features = ";".join(f"{k.op}: {k.features}" for k in kernels if k.features)
    precision = next((k.precision for k in kernels if k.precision), "")
    callback = _CALL(call)
    return library.attncheck_worker_serve(
        name.encode(), precision.encode(), features.encode(), " ".join(callers).encode(), callback
    )


if __name__ == "__main__":
    if len(sys.argv) != 7:
        sys.exit("_worker.py is started by attncheck and is of no use alone")
    # Destructors of the kernels are not under test.
    os._exit(main(sys.argv[1:]))
