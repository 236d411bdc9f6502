"""`attncheck` and `python -m attncheck`: the program, with this interpreter for kernels in Python."""

from __future__ import annotations

import os
import sys

from attncheck._command import command_path


def main() -> None:
    """Becomes the program; does not return."""
    try:
        path = command_path()
    except FileNotFoundError as error:
        print(f"attncheck: {error}", file=sys.stderr)
        sys.exit(2)  # 1 is for wrong kernels
    os.environ.setdefault("ATTNCHECK_PYTHON", sys.executable)
    os.execv(path, [str(path), *sys.argv[1:]])


if __name__ == "__main__":
    main()
