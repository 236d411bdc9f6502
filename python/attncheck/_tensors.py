"""Tensors of any library as arrays of NumPy, and the file that `attncheck judge` reads."""

from __future__ import annotations

import json
import os
import struct
import tempfile
from pathlib import Path
from typing import Any, Iterable, Mapping

import numpy as np

Tensor = Any  #: an array of NumPy, or a tensor of torch or JAX, on any device
Lengths = Any  #: whole numbers: a list, or such a tensor

_NAMES = {
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int32": "I32",
    "int64": "I64",
    "uint8": "U8",
    "bool": "BOOL",
    "float8_e5m2": "F8_E5M2",
    "float8_e4m3fn": "F8_E4M3",
}


def as_array(value: Any, name: str, types: Iterable[str] = _NAMES) -> np.ndarray:
    """An array of NumPy, of the same type, from one of NumPy, torch or JAX, on any device.

    Raises:
        TypeError: it is no tensor, or its type is none of `types`.
    """
    if isinstance(value, np.ndarray):
        array = value
    elif type(value).__module__.split(".")[0] == "torch" and hasattr(value, "detach"):
        array = _of_torch(value)
    elif hasattr(value, "__array__") and hasattr(value, "dtype"):
        array = np.asarray(value)
    else:
        raise TypeError(f"{name} is of type {type(value).__name__}, expected a tensor")
    if array.dtype.name not in types:
        raise TypeError(f"{name} is of type {array.dtype.name}, allowed: {', '.join(types)}")
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    return np.ascontiguousarray(native).reshape(array.shape)


_FLOATS = ("float16", "bfloat16", "float32")
_NEUTRAL = ("attention", "attention_grad", "attention_decode", "attention_merge")
_NEUTRAL_TYPES = {"mask": ("bool",), "block_table": ("int32",)} | dict.fromkeys(("sink", "dsink", "lse", "lses"), ("float32",))


def types_of(op: str, name: str) -> Iterable[str]:
    """Types that a tensor of an operator may have; of operators that are not neutral those that one of its tensors has."""
    if op in _NEUTRAL:
        return _NEUTRAL_TYPES.get(name, _FLOATS)
    return [one for one in _NAMES if op == "flash_attention_score_grad" or not one.startswith("float8")]


def _of_torch(tensor: Any) -> np.ndarray:
    import torch

    tensor = tensor.detach().cpu()
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in ("bfloat16", "float8_e5m2", "float8_e4m3fn"):
        return tensor.numpy()
    import ml_dtypes

    carrier = torch.int16 if name == "bfloat16" else torch.uint8
    return tensor.contiguous().view(carrier).numpy().view(np.dtype(getattr(ml_dtypes, name)))


def write_safetensors(path: str | Path, tensors: Mapping[str, np.ndarray], texts: Mapping[str, str]) -> None:
    """Writes the arguments of a call as `attncheck judge` reads them; `texts` are its other arguments."""
    header: dict[str, Any] = {"__metadata__": dict(texts)}
    at = 0
    for name, array in tensors.items():
        header[name] = {
            "dtype": _NAMES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [at, at + array.nbytes],
        }
        at += array.nbytes
    head = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(head)))
        file.write(head)
        for array in tensors.values():
            if array.size:  # as bytes: bf16 and fp8 are no types of the buffer protocol
                file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def scratch_folder() -> str:
    """Where short-lived files cost least."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()
