"""Assertions for tensors made elsewhere: the bound of every element follows from its call.

`assert_close("flash_attention_score", {...}, {...})` judges outputs of any operator. For each there
is also a function with the arguments as keywords: ``assert_flash_attention_score_close(query=...,
attention_out=..., ...)``. The neutral operators have functions in the words of frameworks,
:func:`assert_attention_close` and :func:`assert_attention_grad_close`.

What is judged, and what the message says, is the program's: `attncheck judge`. Large problems are
judged by sampled rows and keys; the message then says what may be missed.
"""

from __future__ import annotations

import math
import subprocess
import tempfile
from typing import Any, Callable, Mapping

import numpy as np

from attncheck._command import catalogue, command_path
from attncheck._tensors import as_array, scratch_folder, write_safetensors

__all__ = ["assert_attention_close", "assert_attention_grad_close", "assert_close"]

_FALSIFIED = 1


def assert_close(
    op: str,
    arguments: Mapping[str, Any],
    outputs: Mapping[str, Any],
    *,
    precision: str = "default",
    samples: int = 128,
) -> str:
    """Raises AssertionError unless the outputs are right within what rounding allows.

    Args:
        op: name of an operator, see `attncheck list`.
        arguments: its inputs by name: tensors of NumPy, torch or JAX on any device, lists of int,
            str, int, float; those that are None are absent.
        outputs: what the kernel computed, by name; outputs left out are not judged.
        precision: how the kernel rounds, as `attncheck verify --precision` has it.
        samples: rows and keys that are judged where the whole reference would take long.

    Returns:
        What was judged, and the worst error in units of its bound.

    Raises:
        AssertionError: the message of the suite: what, where, how far, judged by which tier.
        ValueError: the arguments are none of the operator's, or fit no legal call together.
        TypeError: an argument is no tensor, or of a type that no operator has.
    """
    __tracebackhide__ = True
    if op not in _arguments():
        raise ValueError(f"no operator {op!r}, known: {', '.join(_arguments())}")
    kinds = _arguments()[op]
    tensors: dict[str, np.ndarray] = {}
    texts = {"op": op}
    for name, value in {**arguments, **outputs}.items():
        if value is None:
            continue
        kind = kinds.get(name)
        if kind is None:
            raise ValueError(f"{name} is no argument of {op}, those are: {', '.join(kinds)}")
        if kind == "tensor":
            tensors[name] = as_array(value, name)
        elif kind == "array":
            tensors[name] = np.asarray(value, dtype=np.int64).reshape(-1)
        else:
            texts[name] = value if isinstance(value, str) else repr(value)
    with tempfile.NamedTemporaryFile(suffix=".safetensors", dir=scratch_folder()) as file:
        write_safetensors(file.name, tensors, texts)
        done = subprocess.run(
            [command_path(), "judge", file.name, "--precision", precision, "--samples", str(samples)],
            capture_output=True,
            text=True,
        )
        said = (done.stdout + done.stderr).replace(file.name, op).strip()
    if done.returncode == _FALSIFIED:
        raise AssertionError(said)
    if done.returncode != 0:
        raise ValueError(said.removeprefix("attncheck: "))
    return said


def assert_attention_close(
    out: Any,
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    window: tuple[int, int] = (-1, -1),
    align: str = "bottom_right",
    scale: float | None = None,
    softcap: float = 0.0,
    bias: Any = None,
    mask: Any = None,
    sink: Any = None,
    lse: Any = None,
    cu_seqlens_q: Any = None,
    cu_seqlens_kv: Any = None,
    layout: str = "bshd",
    precision: str = "default",
    samples: int = 128,
) -> str:
    """Raises AssertionError unless `out` is softmax(scale q k^T + bias) v within rounding.

    Args:
        out, q, k, v: [B, S, H, D], or [B, H, S, D] with layout="bhsd" as torch has them, or
            [T, H, D] packed with `cu_seqlens_q` and `cu_seqlens_kv`. Fewer heads of k and v are
            shared by groups of query heads.
        causal: hides keys behind the diagonal; the same as window=(left, 0).
        window: keys before and behind the diagonal that are seen, -1 = unlimited.
        align: where the diagonal is: through the first pair ("top_left", as torch's `is_causal`)
            or the last ("bottom_right", as FlashAttention).
        scale: of the logits; 1 / sqrt(D) when None.
        softcap: s becomes softcap * tanh(s / softcap); 0 = none.
        bias: added to the logits, [B or 1, H or 1, Sq or 1, Skv or 1].
        mask: bool of such a shape, True = may be seen.
        sink: [H], a logit without a value.
        lse: [B, H, S] float32, the natural logarithm of the sum of exponentials, if judged too.
        precision, samples: see :func:`assert_close`.

    Raises:
        AssertionError, ValueError, TypeError: see :func:`assert_close`.
    """
    __tracebackhide__ = True
    arguments = _neutral(q, k, v, causal, window, align, scale, softcap, bias, mask, sink, cu_seqlens_q,
                         cu_seqlens_kv, layout)
    outputs = {"out": _to_bshd(out, "out", layout), "lse": lse}
    return assert_close("attention", arguments, outputs, precision=precision, samples=samples)


def assert_attention_grad_close(
    dq: Any,
    dk: Any,
    dv: Any,
    dout: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    *,
    lse: Any = None,
    dbias: Any = None,
    dsink: Any = None,
    causal: bool = False,
    window: tuple[int, int] = (-1, -1),
    align: str = "bottom_right",
    scale: float | None = None,
    softcap: float = 0.0,
    bias: Any = None,
    mask: Any = None,
    sink: Any = None,
    cu_seqlens_q: Any = None,
    cu_seqlens_kv: Any = None,
    layout: str = "bshd",
    precision: str = "default",
    samples: int = 128,
) -> str:
    """Raises AssertionError unless dq, dk, dv are the gradients for `dout` within rounding.

    `out` and, where the kernel was given it, `lse` are those of the forward call. Shapes and the
    other arguments are those of :func:`assert_attention_close`, dbias has the shape of bias.
    """
    __tracebackhide__ = True
    arguments = _neutral(q, k, v, causal, window, align, scale, softcap, bias, mask, sink, cu_seqlens_q,
                         cu_seqlens_kv, layout)
    arguments |= {"dout": _to_bshd(dout, "dout", layout), "out": _to_bshd(out, "out", layout), "lse": lse}
    outputs = {"dq": _to_bshd(dq, "dq", layout), "dk": _to_bshd(dk, "dk", layout),
               "dv": _to_bshd(dv, "dv", layout), "dbias": dbias, "dsink": dsink}
    return assert_close("attention_grad", arguments, outputs, precision=precision, samples=samples)


def __getattr__(name: str) -> Callable[..., str]:
    """`assert_OPERATOR_close` of every operator: inputs and outputs by keyword."""
    op = name.removeprefix("assert_").removesuffix("_close")
    if name != f"assert_{op}_close" or op not in _arguments():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def check(*, precision: str = "default", samples: int = 128, **values: Any) -> str:
        __tracebackhide__ = True
        outputs = {key: value for key, value in values.items() if key in _outputs(op)}
        inputs = {key: value for key, value in values.items() if key not in outputs}
        return assert_close(op, inputs, outputs, precision=precision, samples=samples)

    check.__name__ = check.__qualname__ = name
    check.__doc__ = (
        f"Raises AssertionError unless the outputs of {op} are right within rounding.\n\n"
        f"Arguments: {', '.join(_arguments()[op])}; outputs: {', '.join(_outputs(op))}. See assert_close."
    )
    return check


def _arguments() -> dict[str, dict[str, str]]:
    return {
        op: {a["name"]: a["kind"] for a in one["arguments"]}
        for op, one in catalogue().items()
        if "arguments" in one
    }


def _outputs(op: str) -> list[str]:
    return [a["name"] for a in catalogue()[op]["arguments"] if a.get("output")]


def _to_bshd(value: Any, name: str, layout: str) -> Any:
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


def _neutral(q: Any, k: Any, v: Any, causal: bool, window: tuple[int, int], align: str, scale: float | None,
             softcap: float, bias: Any, mask: Any, sink: Any, cu_seqlens_q: Any, cu_seqlens_kv: Any,
             layout: str) -> dict[str, Any]:
    """The arguments of attention and its gradient that both have."""
    aligns = ("top_left", "bottom_right")
    if align not in aligns:
        raise ValueError(f"align is {align!r}, allowed: 'top_left', 'bottom_right'")
    query = _to_bshd(q, "q", layout)
    left, right = window
    return {
        "query": query,
        "key": _to_bshd(k, "k", layout),
        "value": _to_bshd(v, "v", layout),
        "cu_seqlens_q": _as_list(cu_seqlens_q),
        "cu_seqlens_kv": _as_list(cu_seqlens_kv),
        "bias": bias,
        "mask": mask,
        "sink": sink,
        "scale": float(1 / math.sqrt(query.shape[-1]) if scale is None else scale),
        "softcap": float(softcap),
        "window_left": int(left),
        "window_right": 0 if causal else int(right),
        "align": aligns.index(align),
    }


def _as_list(value: Any) -> list[int] | None:
    return None if value is None else [int(x) for x in (value.tolist() if hasattr(value, "tolist") else value)]
