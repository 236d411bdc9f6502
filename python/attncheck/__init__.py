"""attncheck: finds the smallest case on which an attention kernel is wrong.

The program does the work; this package is its layer for Python: kernels written as functions
(:func:`kernel`), assertions for tensors made elsewhere (:mod:`attncheck.testing`) and a pytest
plugin (:mod:`attncheck.pytest_plugin`). docs/python.md has examples.
"""

from __future__ import annotations

from attncheck._command import command_path, version
from attncheck._kernels import Declined, Device, Invalid, Kernel, example, kernel

__all__ = ["Declined", "Device", "Invalid", "Kernel", "command_path", "example", "kernel", "version"]

__version__ = version()
