"""The arguments of attention in the words of frameworks, as those of the neutral operators."""

from __future__ import annotations

from typing import Any

from attncheck._tensors import Lengths, Tensor, as_array


def to_bshd(value: Tensor | None, name: str, layout: str) -> Any:
    """A tensor [B, S, H, D], from one of the layout. Raises ValueError for another layout or rank."""
    if value is None:
        return None
    array = as_array(value, name)
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
    aligns = ("top_left", "bottom_right")
    if align not in aligns:
        raise ValueError(f"align is {align!r}, allowed: 'top_left', 'bottom_right'")
    query = to_bshd(as_array(q, "q"), "q", layout)
    if not (isinstance(window, (tuple, list)) and len(window) == 2):
        raise ValueError(f"window is {window!r}, expected two numbers of keys, -1 = unlimited")
    left, right = window
    return {
        "query": query,
        "key": to_bshd(k, "k", layout),
        "value": to_bshd(v, "v", layout),
        "cu_seqlens_q": as_list(cu_seqlens_q),
        "cu_seqlens_kv": as_list(cu_seqlens_kv),
        "kv_length": as_list(kv_length),
        "bias": bias,
        "mask": mask,
        "sink": sink,
        "scale": None if scale is None else as_real(scale, "scale"),
        "softcap": as_real(softcap, "softcap"),
        "window_left": int(left),
        "window_right": 0 if causal else int(right),
        "align": aligns.index(align),
    }


def as_list(value: Lengths | None) -> list[int] | None:
    """Whole numbers of a list or a tensor."""
    return None if value is None else [int(x) for x in (value.tolist() if hasattr(value, "tolist") else value)]


def as_real(value: Any, name: str) -> float:
    """A number, one of NumPy or torch among them. Raises TypeError naming what is none."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} is {value!r}, expected a number") from None
