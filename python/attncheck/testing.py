"""Assertions for tensors made elsewhere: the bound of every element follows from its call.

`assert_close("flash_attention_score", {...}, {...})` judges outputs of any operator. For each there
is also a function with the arguments as keywords: ``assert_flash_attention_score_close(query=...,
attention_out=..., ...)``. The neutral operators have functions in the words of frameworks:
:func:`assert_attention_close`, :func:`assert_attention_grad_close`,
:func:`assert_attention_decode_close` and :func:`assert_attention_merge_close`.

What is judged, and what the message says, is the program's: `attncheck judge`. Large problems are
judged by sampled rows and keys; the message then says what may be missed.
"""

from __future__ import annotations

import subprocess
import tempfile
from typing import Any, Callable, Iterator, Mapping

import numpy as np

from attncheck._command import catalogue, command_path
from attncheck._neutral import as_list, as_real, check_heads, check_lengths, neutral_arguments, to_bshd
from attncheck._declared import ALIGNS
from attncheck._tensors import Lengths, Tensor, as_array, scratch_folder, types_of, write_safetensors

__all__ = [
    "assert_attention_close",
    "assert_attention_decode_close",
    "assert_attention_grad_close",
    "assert_attention_merge_close",
    "assert_close",
]

_FALSIFIED = 1
_LARGEST_PAGE = 256
# Tensors of attention and its gradient: the side whose positions they have, its heads, and their last extent.
_EXTENTS = dict.fromkeys(("q", "dq"), ("q", "D")) | dict.fromkeys(("k", "dk"), ("kv", "D"))
_EXTENTS |= dict.fromkeys(("v", "dv"), ("kv", "Dv")) | dict.fromkeys(("out", "dout"), ("q", "Dv"))


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
        TypeError: an argument is no tensor, or of a type that the operator does not take.
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
            tensors[name] = as_array(value, name, types_of(op, name))
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
    out: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    window: tuple[int, int] = (-1, -1),
    align: str = "bottom_right",
    scale: float | None = None,
    softcap: float = 0.0,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    sink: Tensor | None = None,
    lse: Tensor | None = None,
    cu_seqlens_q: Lengths | None = None,
    cu_seqlens_kv: Lengths | None = None,
    kv_length: Lengths | None = None,
    layout: str = "bshd",
    precision: str = "default",
    samples: int = 128,
) -> str:
    """Raises AssertionError unless `out` is softmax(scale q k^T + bias) v within rounding.

    Vaswani et al. 2017, equation (1), with the extensions of docs/python.md.

    Args:
        out: [B, Sq, Hq, Dv]; with layout="bhsd" [B, Hq, Sq, Dv] as torch has it, or [Tq, Hq, Dv] packed with
            `cu_seqlens_q` and `cu_seqlens_kv`. All four tensors are of one type: fp16, bf16 or fp32.
        q, k, v: [B, Sq, Hq, D], [B, Skv, Hkv, D] and [B, Skv, Hkv, Dv] in the same layout. Hq is a multiple
            of Hkv: fewer heads of k and v are shared by groups of query heads.
        causal: hides keys behind the diagonal; the same as window=(left, 0).
        window: numbers of keys before and behind the diagonal that are seen, -1 = unlimited.
        align: where the diagonal is: through the first pair ("top_left", as torch's `is_causal`)
            or the last ("bottom_right", as FlashAttention).
        scale: of the logits, dimensionless; 1 / sqrt(D) when None.
        softcap: s becomes softcap * tanh(s / softcap); 0 = none.
        bias: added to the logits, [B or 1, Hq or 1, Sq or 1, Skv or 1], fp32 or the type of q. -inf hides
            its key.
        mask: bool of such a shape, True = may be seen.
        sink: [Hq] fp32, a logit without a value.
        lse: [B, Hq, Sq] fp32, or [Hq, Tq] packed: the natural logarithm of the sum of exponentials, if it is
            judged too.
        cu_seqlens_q, cu_seqlens_kv: B + 1 positions where packed sequences begin and end, the first 0.
        kv_length: [B], keys in use of every batch; the others are hidden.
        precision, samples: see :func:`assert_close`.

    Returns:
        See :func:`assert_close`.

    Raises:
        AssertionError, ValueError, TypeError: see :func:`assert_close`.
    """
    __tracebackhide__ = True
    is_packed = cu_seqlens_q is not None or cu_seqlens_kv is not None
    q, k, v, out = _checked_ranks(layout, is_packed, q=q, k=k, v=v, out=out)
    arguments = neutral_arguments(q, k, v, causal, window, align, scale, softcap, bias, mask, sink,
                                  cu_seqlens_q, cu_seqlens_kv, kv_length, layout)
    outputs = {"out": to_bshd(out, "out", layout), "lse": lse}
    return _assert_aligned("attention", arguments, outputs, precision, samples)


def assert_attention_grad_close(
    dq: Tensor,
    dk: Tensor,
    dv: Tensor,
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    *,
    lse: Tensor | None = None,
    dbias: Tensor | None = None,
    dsink: Tensor | None = None,
    causal: bool = False,
    window: tuple[int, int] = (-1, -1),
    align: str = "bottom_right",
    scale: float | None = None,
    softcap: float = 0.0,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    sink: Tensor | None = None,
    cu_seqlens_q: Lengths | None = None,
    cu_seqlens_kv: Lengths | None = None,
    kv_length: Lengths | None = None,
    layout: str = "bshd",
    precision: str = "default",
    samples: int = 128,
) -> str:
    """Raises AssertionError unless dq, dk, dv are the gradients for `dout` within rounding.

    Dao 2023 (FlashAttention-2), algorithm 2, with the gradients of bias and sink.

    Args:
        dq, dk, dv: of the shapes of q, k and v; one that is None is not judged.
        dout, out: of the shape of the output. `out` and, where the kernel was given it, `lse` are those of
            the forward call.
        dbias: of the shape and type of bias, summed over its extents of 1.
        dsink: [Hq] fp32.
        The other arguments: see :func:`assert_attention_close`.

    Returns, raises:
        See :func:`assert_close`.
    """
    __tracebackhide__ = True
    for name, gradient, of, what in (("dbias", dbias, bias, "bias"), ("dsink", dsink, sink, "sink")):
        if gradient is not None and of is None:
            raise ValueError(f"{name} is given without {what}")
    is_packed = cu_seqlens_q is not None or cu_seqlens_kv is not None
    q, k, v, out, dout, dq, dk, dv = _checked_ranks(layout, is_packed, q=q, k=k, v=v, out=out, dout=dout, dq=dq, dk=dk, dv=dv)
    arguments = neutral_arguments(q, k, v, causal, window, align, scale, softcap, bias, mask, sink,
                                  cu_seqlens_q, cu_seqlens_kv, kv_length, layout)
    arguments |= {"dout": to_bshd(dout, "dout", layout), "out": to_bshd(out, "out", layout), "lse": lse}
    outputs = {"dq": to_bshd(dq, "dq", layout), "dk": to_bshd(dk, "dk", layout),
               "dv": to_bshd(dv, "dv", layout), "dbias": dbias, "dsink": dsink}
    return _assert_aligned("attention_grad", arguments, outputs, precision, samples)


def _checked_ranks(layout: str, is_packed: bool, **tensors: Tensor | None) -> list[Any]:
    """The tensors as arrays; None stays None.

    The program takes extents from the query by position, so the shapes that it asks for mislead when the rank is wrong.

    Raises:
        ValueError: the layout has no packed form, or a tensor has not as many extents as the layout.
        TypeError: an argument is no tensor, or of a type that attention does not take.
    """
    __tracebackhide__ = True
    if is_packed and layout == "bhsd":
        raise ValueError("layout is 'bhsd', allowed with cu_seqlens_q and cu_seqlens_kv: 'bshd'")
    arrays: list[Any] = []
    for name, value in tensors.items():
        array = None if value is None else as_array(value, name, types_of("attention", name))
        if array is not None and array.ndim != (3 if is_packed else 4):
            allowed = _shapes_of(name, layout, is_packed)
            raise ValueError(f"{name} has shape {list(array.shape)}, allowed: {allowed}")
        arrays.append(array)
    return arrays


def _shapes_of(name: str, layout: str, is_packed: bool) -> str:
    """The shapes that a tensor may have, in words."""
    side, last = _EXTENTS[name]
    if layout == "bhsd":
        return f"[B, H{side}, S{side}, {last}] with layout='bhsd'"
    packed = f"[T{side}, H{side}, {last}]"
    if is_packed:
        return f"{packed} with cu_seqlens_q and cu_seqlens_kv"
    return f"[B, S{side}, H{side}, {last}], or {packed} with cu_seqlens_q and cu_seqlens_kv"


def _assert_aligned(op: str, arguments: dict[str, Any], outputs: dict[str, Any], precision: str, samples: int) -> str:
    """assert_close, whose message says so where the outputs are right with the other `align`, or with or without `causal`."""
    __tracebackhide__ = True
    try:
        return assert_close(op, arguments, outputs, precision=precision, samples=samples)
    except AssertionError as error:
        said = str(error)
    for words, change in _alternatives(arguments):
        if _holds(op, {**arguments, **change}, outputs, precision, samples):
            said += f"\nThe outputs are right with {words}."
            break
    raise AssertionError(said)


def _alternatives(arguments: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What is easily forgotten or mixed up, in words and as arguments."""
    align, other = arguments["align"], 1 - arguments["align"]
    if _has_corner(arguments):
        yield f"align={ALIGNS[other]!r}, given was {ALIGNS[align]!r}", {"align": other}
    if arguments["window_left"] < 0 and arguments["window_right"] == 0:
        yield "causal=False, given was True", {"window_right": -1}
    if arguments["window_right"] < 0:
        causal = {"window_right": 0}
        yield "causal=True, which was not given", causal
        if _has_corner({**arguments, **causal}):
            yield f"causal=True and align={ALIGNS[other]!r}, which were not given", {**causal, "align": other}


def _has_corner(arguments: dict[str, Any]) -> bool:
    """Whether `align` may have an effect: a window, and not as many queries as keys."""
    if max(arguments["window_left"], arguments["window_right"]) < 0:
        return False
    if arguments["cu_seqlens_q"] is not None:
        return arguments["cu_seqlens_q"] != arguments["cu_seqlens_kv"]
    return arguments["kv_length"] is not None or np.shape(arguments["query"])[1] != np.shape(arguments["key"])[1]


def _holds(op: str, arguments: dict[str, Any], outputs: dict[str, Any], precision: str, samples: int) -> bool:
    try:
        assert_close(op, arguments, outputs, precision=precision, samples=samples)
    except (AssertionError, ValueError):
        return False
    return True


def assert_attention_decode_close(
    out: Tensor,
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_table: Tensor,
    kv_length: Lengths,
    *,
    window_left: int = -1,
    scale: float | None = None,
    softcap: float = 0.0,
    sink: Tensor | None = None,
    lse: Tensor | None = None,
    precision: str = "default",
    samples: int = 128,
) -> str:
    """Raises AssertionError unless `out` is the attention of the last positions of paged sequences.

    Kwon et al. 2023, PagedAttention, section 4.1: position j of sequence b is slot j % page_size of page
    block_table[b, j / page_size].

    Args:
        out: [B, Sq, Hq, Dv], of the type of query.
        query: [B, Sq, Hq, D], Sq 1 to 16: the last Sq positions of every sequence.
        key_cache, value_cache: [pages, page_size, Hkv, D] and [..., Dv].
        block_table: [B, max_pages] int32 or int64; entries behind the last page of a sequence may be anything.
        kv_length: [B], positions of every sequence.
        window_left: number of positions before its own that a query sees, -1 = unlimited.
        scale, softcap, sink, lse, precision, samples: see :func:`assert_attention_close`.

    Returns, raises:
        See :func:`assert_close`.
    """
    __tracebackhide__ = True
    table = block_table if isinstance(block_table, np.ndarray) else as_array(block_table, "block_table")
    query, key_cache = (as_array(value, name, types_of("attention_decode", name))
                        for value, name in ((query, "query"), (key_cache, "key_cache")))
    lengths = as_list(kv_length, "kv_length")
    [window_left] = as_list([window_left], "window_left")
    if query.ndim != 4:
        hint = "; one new token of each sequence is query[:, None]" if query.ndim == 3 else ""
        raise ValueError(f"query has shape {list(query.shape)}, allowed: [B, Sq, Hq, D]{hint}")
    if key_cache.ndim != 4:
        raise ValueError(f"key_cache has shape {list(key_cache.shape)}, allowed: [pages, page_size, Hkv, D]")
    check_heads(query, key_cache, "query", "key_cache")
    check_lengths(lengths, query.shape[0])
    if not 1 <= key_cache.shape[1] <= _LARGEST_PAGE:
        raise ValueError(f"page_size is {key_cache.shape[1]}, allowed: 1 to {_LARGEST_PAGE}")
    if window_left < -1:
        raise ValueError(f"window_left is {window_left}, allowed: numbers from -1, where -1 = unlimited")
    arguments = {
        "query": query,
        "key_cache": key_cache,
        "value_cache": value_cache,
        # Entries that are never read may be out of the range of int32.
        "block_table": np.clip(table, -1, np.iinfo(np.int32).max).astype(np.int32),
        "kv_length": lengths,
        "sink": sink,
        "scale": None if scale is None else as_real(scale, "scale"),
        "softcap": as_real(softcap, "softcap"),
        "window_left": window_left,
    }
    return assert_close("attention_decode", arguments, {"out": out, "lse": lse}, precision=precision, samples=samples)


def assert_attention_merge_close(
    out: Tensor, parts: Tensor, lses: Tensor, *, lse: Tensor | None = None, precision: str = "default",
    samples: int = 128,
) -> str:
    """Raises AssertionError unless `out` is the attention over all keys, from that over parts of them.

    Dao et al. 2023, Flash-Decoding: out = sum_p exp(lse_p - lse) parts_p, lse = ln sum_p exp(lse_p). A part
    with lse_p = -inf counts for nothing, whatever it holds.

    Args:
        out: [R, H, Dv], of the type of parts.
        parts: [P, R, H, Dv], fp16, bf16 or fp32.
        lses: [P, R, H] fp32, natural logarithms.
        lse: [R, H] fp32, if it is judged too.
        precision, samples: see :func:`assert_close`.

    Returns, raises:
        See :func:`assert_close`.
    """
    __tracebackhide__ = True
    return assert_close("attention_merge", {"parts": parts, "lses": lses}, {"out": out, "lse": lse},
                        precision=precision, samples=samples)


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
