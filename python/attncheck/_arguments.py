"""Argument structs of entry points as dictionaries, and back: tensors are views, never copies.

The offsets come from the program (`attncheck list --json`), the two structs below from
attncheck/candidate.h.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

MAX_RANK = 8


class TensorStruct(ctypes.Structure):
    """attncheck_tensor: strides count elements; a NULL address means that it is absent."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("shape", ctypes.c_int64 * MAX_RANK),
        ("strides", ctypes.c_int64 * MAX_RANK),
    ]


class ArrayStruct(ctypes.Structure):
    """attncheck_int_array."""

    _fields_ = [("values", ctypes.c_void_p), ("size", ctypes.c_int64)]


# By the number of attncheck_dtype: the name, and the type of the same width that NumPy has.
TYPES: dict[int, tuple[str, str]] = {
    0: ("float32", "<f4"),
    1: ("float16", "<f2"),
    3: ("int32", "<i4"),
    4: ("uint8", "|u1"),
    9: ("int64", "<i8"),
    12: ("bool", "|b1"),
    27: ("bfloat16", "<u2"),
    35: ("float8_e5m2", "|u1"),
    36: ("float8_e4m3fn", "|u1"),
}
ML_DTYPES = ("bfloat16", "float8_e5m2", "float8_e4m3fn")


def dtype_of(name: str) -> np.dtype[Any]:
    """The NumPy type of a name in TYPES; three of them are those of ml_dtypes."""
    if name in ML_DTYPES:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))
    return np.dtype(name)


class _Memory:
    """Memory of the suite as NumPy's array interface wants it."""

    def __init__(self, address: int, typestr: str, shape: tuple[int, ...], strides: tuple[int, ...],
                 readonly: bool) -> None:
        self.__array_interface__ = {
            "version": 3,
            "data": (address, readonly),
            "typestr": typestr,
            "shape": shape,
            "strides": strides,
        }


def array_at(struct: TensorStruct, writable: bool) -> np.ndarray | None:
    """A view of a tensor in the memory of the suite; None for one that is absent.

    Raises:
        ValueError: its type, rank or shape is none that a tensor may have.
    """
    if struct.data is None:
        return None
    if struct.dtype not in TYPES:
        raise ValueError(f"dtype is {struct.dtype}, allowed: {', '.join(map(str, TYPES))}")
    if not 1 <= struct.rank <= MAX_RANK:
        raise ValueError(f"rank is {struct.rank}, allowed: 1 to {MAX_RANK}")
    name, typestr = TYPES[struct.dtype]
    shape = tuple(struct.shape[: struct.rank])
    if min(shape) < 0:
        raise ValueError(f"shape is {list(shape)}, extents are not negative")
    size = int(typestr[2:])
    strides = tuple(stride * size for stride in struct.strides[: struct.rank])
    if name == "bool" and not writable:
        typestr = "|u1"  # other bytes than 0 and 1 are true
    array = np.asarray(_Memory(struct.data, typestr, shape, strides, not writable))
    if name == "bool" and not writable:
        return array.view(np.bool_) if array.size == 0 or array.max() <= 1 else array != 0
    return array.view(dtype_of(name)) if name in ML_DTYPES else array


def unpack(address: int, arguments: list[dict[str, Any]]) -> dict[str, Any]:
    """The arguments of a call by name: arrays of NumPy, lists of int, str, int, float, or None.

    Raises:
        ValueError: an argument is malformed; the message names it.
    """
    values: dict[str, Any] = {}
    for argument in arguments:
        name, at = argument["name"], address + argument["offset"]
        kind = argument["kind"]
        try:
            if kind == "tensor":
                values[name] = array_at(TensorStruct.from_address(at), argument["output"])
            elif kind == "array":
                values[name] = _integers(ArrayStruct.from_address(at))
            elif kind == "text":
                text = ctypes.c_char_p.from_address(at).value
                values[name] = None if text is None else text.decode(errors="replace")
            elif kind == "integer":
                values[name] = ctypes.c_int64.from_address(at).value
            else:
                values[name] = ctypes.c_double.from_address(at).value
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    return values


def _integers(struct: ArrayStruct) -> list[int] | None:
    if struct.values is None:
        return None
    if struct.size < 0:
        raise ValueError(f"size is {struct.size}, allowed: 0 and more")
    return list((ctypes.c_int64 * struct.size).from_address(struct.values))
