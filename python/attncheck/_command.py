"""The program `attncheck` that this package belongs to."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent
# In a wheel, after `cmake --install`, and in a build tree of the sources, in this order.
_PLACES = ("_prefix/bin/attncheck", "../../../../bin/attncheck", "../../build/release/bin/attncheck")


def command_path() -> Path:
    """Path of the program: $ATTNCHECK_COMMAND, or the one that was installed with this package.

    Raises FileNotFoundError when there is none.
    """
    chosen = os.environ.get("ATTNCHECK_COMMAND")
    places = [Path(chosen)] if chosen else [_HERE / place for place in _PLACES]
    for place in places:
        if place.is_file():
            return place.resolve()
    raise FileNotFoundError(
        f"the program attncheck is not at {', '.join(map(str, places))}; set ATTNCHECK_COMMAND to its path"
    )


def version() -> str:
    """The version of the package, which is that of the program; project(VERSION) decides it."""
    from importlib import metadata

    try:
        if (_HERE / "_prefix").is_dir():
            return metadata.version("attncheck")
        text = (_HERE.parent.parent / "CMakeLists.txt").read_text()
        return re.search(r"project\(attncheck VERSION ([\d.]+)", text).group(1)  # type: ignore[union-attr]
    except (metadata.PackageNotFoundError, OSError, AttributeError):
        return "unknown"


@functools.cache
def catalogue() -> dict[str, Any]:
    """Operators, their arguments and their properties, as `attncheck list --json` has them."""
    text = subprocess.run([command_path(), "list", "--json"], check=True, capture_output=True).stdout
    return json.loads(text)
