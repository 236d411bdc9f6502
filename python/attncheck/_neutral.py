"""The arguments of attention in the words of frameworks, as those of the neutral operators."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from attncheck._declared import ALIGNS
from attncheck._tensors import Lengths, Tensor, as_array, types_of


def to_bshd(value: Tensor | None, name: str, layout: str) -> Any:
    """A tensor [B, S, H, D], from one of the layout. Raises ValueError for another layout or rank."""
    if value is None:
        return None
    array = as_array(value, name, types_of("attention", name))
    if layout == "bshd":
        return array
    if layout != "bhsd":
        raise ValueError(f"layout is {layout!r}, allowed: 'bshd', 'bhsd'")
    if array.ndim != 4:
        raise ValueError(f"{name} has shape {list(array.shape)}, expected four extents for layout='bhsd'")
    return array.transpose(0, 2, 1, 3)


def neutral_arguments(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool,
    window: tuple[int, int],
    align: str,
    scale: float | None,
    softcap: float,
    bias: Tensor | None,
    mask: Tensor | None,
    sink: Tensor | None,
    cu_seqlens_q: Lengths | None,
    cu_seqlens_kv: Lengths | None,
    kv_length: Lengths | None,
    layout: str,
) -> dict[str, Any]:
    """The arguments of attention and its gradient that both have."""
    if align not in ALIGNS:
        raise ValueError(f"align is {align!r}, allowed: 'top_left', 'bottom_right'")
    query = to_bshd(as_array(q, "q", types_of("attention", "q")), "q", layout)
    key = to_bshd(k, "k", layout)
    bias, mask = as_optional_array(bias, "bias"), as_optional_array(mask, "mask")
    sides = as_list(window, "window") if np.ndim(window) == 1 else []
    if len(sides) != 2:
        raise ValueError(f"window is {window!r}, expected two numbers of keys, -1 = unlimited")
    check_sequences(cu_seqlens_q, cu_seqlens_kv, query, key)
    left, right = sides
    if min(left, right) < -1:
        raise ValueError(f"window is {window!r}, allowed: two numbers from -1, where -1 = unlimited")
    rank = 4 if cu_seqlens_q is None and cu_seqlens_kv is None else 3
    if key is not None and query.ndim == key.ndim == rank:
        check_heads(query, key, "q", "k", layout)
    if key is not None and query.ndim == key.ndim == rank == 4:
        check_lengths(as_list(kv_length, "kv_length"), query.shape[0])
        for name, tensor in (("bias", bias), ("mask", mask)):
            _check_broadcast(tensor, name, query, key)
    return {
        "query": query,
        "key": key,
        "value": to_bshd(v, "v", layout),
        "cu_seqlens_q": as_list(cu_seqlens_q, "cu_seqlens_q"),
        "cu_seqlens_kv": as_list(cu_seqlens_kv, "cu_seqlens_kv"),
        "kv_length": as_list(kv_length, "kv_length"),
        "bias": bias,
        "mask": mask,
        "sink": sink,
        "scale": None if scale is None else as_real(scale, "scale"),
        "softcap": as_real(softcap, "softcap"),
        "window_left": left,
        "window_right": 0 if causal else right,
        "align": ALIGNS.index(align),
    }


def as_optional_array(value: Tensor | None, name: str) -> np.ndarray | None:
    """An array of a type that attention takes; None stays None."""
    return None if value is None else as_array(value, name, types_of("attention", name))


def check_heads(query: np.ndarray, key: np.ndarray, query_name: str, key_name: str, layout: str = "") -> None:
    """Raises ValueError unless groups of query heads share a key head; tensors [..., H, D]."""
    heads, key_heads = query.shape[-2], key.shape[-2]
    if not key_heads or heads % key_heads == 0:
        return
    hint = ""
    if layout == "bshd" and query.ndim == 4 and key.shape[1] and query.shape[1] % key.shape[1] == 0:
        hint = "; tensors [B, H, S, D] are of layout='bhsd'"
    elif not layout and key.shape[1] and heads % key.shape[1] == 0:
        hint = f"; {key_name} is [pages, page_size, Hkv, D]"
    raise ValueError(f"{query_name} has {heads} heads, allowed: a multiple of the {key_heads} heads of {key_name}{hint}")


def check_sequences(cu_seqlens_q: Lengths | None, cu_seqlens_kv: Lengths | None, query: np.ndarray, key: np.ndarray) -> None:
    """Raises ValueError unless both are there or none, and each divides the rows of its tensor [T, H, D]."""
    both = {"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_kv": cu_seqlens_kv}
    given = {name: as_list(value, name) for name, value in both.items() if value is not None}
    for name in both:
        if len(given) == 1 and name not in given:
            raise ValueError(f"{name} is missing: packed sequences need both cu_seqlens_q and cu_seqlens_kv")
    for (name, ends), rows, tensor in zip(given.items(), (query, key), ("q", "k")):
        if not ends or ends[0] != 0:
            raise ValueError(f"{name} begins with {ends[0] if ends else 'nothing'}, allowed: 0, where the first sequence begins")
        for before, after in zip(ends, ends[1:]):
            if after < before:
                raise ValueError(f"{name} decreases from {before} to {after}")
        if rows is not None and rows.ndim == 3 and ends[-1] != rows.shape[0]:
            raise ValueError(f"{name} ends at {ends[-1]}, {tensor} has {rows.shape[0]} rows")
    counts = [len(ends) for ends in given.values()]
    if len(set(counts)) > 1:
        raise ValueError(f"cu_seqlens_q has {counts[0]} numbers, cu_seqlens_kv {counts[1]}: one more than sequences each")


def check_lengths(lengths: list[int] | None, batch: int) -> None:
    """Raises ValueError unless there is a number of keys for each of the batch."""
    if lengths is not None and len(lengths) != batch:
        raise ValueError(f"kv_length has {len(lengths)} numbers, expected {batch}, one of each batch")


def _check_broadcast(tensor: np.ndarray | None, name: str, query: np.ndarray, key: np.ndarray) -> None:
    """Raises ValueError unless the tensor is [B or 1, H or 1, Sq or 1, Skv or 1]."""
    if tensor is None:
        return
    whole = (query.shape[0], query.shape[2], query.shape[1], key.shape[1])
    if tensor.ndim == 4 and all(extent in (1, most) for extent, most in zip(tensor.shape, whole)):
        return
    allowed = ", ".join("1" if most == 1 else f"{most} or 1" for most in whole)
    raise ValueError(f"{name} has shape {list(tensor.shape)}, allowed: [{allowed}], such as [1, 1, {whole[2]}, {whole[3]}]")


def as_list(value: Lengths | None, name: str) -> list[int] | None:
    """Whole numbers of a list or a tensor. Raises TypeError naming what is none."""
    if value is None:
        return None
    numbers = value.tolist() if hasattr(value, "tolist") else value
    try:
        return [operator.index(x) for x in numbers]
    except TypeError:
        raise TypeError(f"{name} is {value!r}, expected whole numbers in a list or a tensor") from None


def as_real(value: Any, name: str) -> float:
    """A number, one of NumPy or torch among them. Raises TypeError naming what is none."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} is {value!r}, expected a number") from None
