"""Kernels that are wrong, to judge judges with: the defects that the zoo found, and ten ways to pass a benchmark without the work.

Each is the control group's kernel behind a change of its arguments or results. `zoo/judges` runs them under attncheck and
under the tolerance rules of other projects (`verify --rule`).
"""

import sys
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent / "subjects")]
import attncheck
import control_numpy
from pairs import window_mask

FEATURES = "dtype=fp16,bf16 layout=bshd,bhsd,sbhd kv_length=none outputs=out"
KERNELS = []  # (name, what it does wrong), in the order of the table


def wrong(what):
    def mark(function):
        KERNELS.append((function.__name__, what))
        return attncheck.kernel("attention", features=FEATURES, precision="p=fp32 hidden=times_zero")(function)

    return mark


def right(out, **call):
    control_numpy.attention(**call, out=out, lse=None) if "lse" not in call else control_numpy.attention(**call, out=out)


@wrong("correct")
def control(**call):
    right(**call)


@wrong("PT-1: NaN where causal and the scale is not positive")
def negative_scale(**call):
    right(**call)
    if call["window_right"] == 0 and call["scale"] <= 0:
        call["out"][...] = np.nan


@wrong("ORT-1: one query sees all keys in spite of its causal mask")
def single_query_corner(**call):
    right(**call | ({"window_right": -1} if call["query"].shape[1] == 1 else {}))


@wrong("ORT-5: the last query sees all keys in spite of its causal mask")
def last_query_sees_all(**call):
    right(**call)
    if call["window_right"] == 0 and call["out"].shape[1]:
        last = {n: None if call[n] is None else call[n][:, :, -1:] if call[n].shape[2] > 1 else call[n] for n in ("mask", "bias")}
        right(**call | last | {"query": call["query"][:, -1:], "out": call["out"][:, -1:], "window_right": -1, "window_left": -1})


@wrong("ORT-7: a bias for all heads is taken from the neighbouring batch")
def bias_of_next_batch(**call):
    bias = call["bias"]
    right(**call | ({"bias": np.roll(bias, 1, axis=0)} if bias is not None and bias.shape[1] == 1 else {}))


@wrong("ORT-8: a window has one key too many")
def wide_window(**call):
    left = call["window_left"]
    right(**call | {"window_left": left + 1 if left >= 0 else left})


@wrong("ORT-9: hidden keys keep a score of about -softcap")
def softcap_after_mask(**call):
    if call["softcap"] <= 0:
        return right(**call)
    query, key = call["query"], call["key"]
    seen = window_mask(query.shape[1], key.shape[1], call["window_left"], call["window_right"], call["align"])[None, None]
    seen = seen if call["mask"] is None else seen & call["mask"]
    bias = np.float32(0) if call["bias"] is None else np.asarray(call["bias"], np.float32)
    seen, bias = np.broadcast_arrays(seen & ~np.isneginf(bias), bias)
    bias = np.where(seen, bias, np.float32(-call["softcap"]))
    right(**call | {"bias": bias, "mask": None, "window_left": -1, "window_right": -1})


@wrong("ORT-10: query heads take the key heads in turn")
def key_heads_in_turn(**call):
    heads = np.arange(call["query"].shape[2]) % call["key"].shape[2]
    right(**call | {name: call[name][:, :, heads] for name in ("key", "value")})


@wrong("ORT-11: a hidden key of a causal call in fp16 keeps its score less 65504")
def lowest_half(**call):
    query, key = call["query"], call["key"]
    seen = window_mask(query.shape[1], key.shape[1], -1, call["window_right"], call["align"])
    if query.dtype != np.float16 or call["window_right"] != 0 or call["window_left"] >= 0 or not seen.any(axis=1).all():
        return right(**call)
    bias = np.where(seen, np.float32(0), np.float32(-65504))[None, None]
    right(**call | {"bias": bias if call["bias"] is None else bias + np.asarray(call["bias"], np.float32), "window_right": -1})


@wrong("ORT-13: no mask where no bias is given")
def mask_needs_bias(**call):
    right(**call | ({"mask": None} if call["bias"] is None else {}))


@wrong("OV-2: with several key heads that have a group each, the result of the last call that had none")
def result_before(**call):
    heads, groups = call["key"].shape[2], call["query"].shape[2] // max(call["key"].shape[2], 1)
    if heads > 1 and groups > 1:
        call["out"][...] = np.resize(LAST.get("before", np.zeros(1)), call["out"].shape)
        return
    right(**call)
    LAST["before"] = np.array(call["out"]) if call["out"].size else np.zeros(1)


@wrong("OV-5, ORT-6, PT-3: 0 in place of NaN")
def nan_lost(**call):
    right(**call)
    call["out"][np.isnan(call["out"])] = 0


@wrong("JX-2: no window where no mask is given")
def window_needs_mask(**call):
    alone = call["mask"] is None and call["window_right"] != 0
    right(**call | ({"window_left": -1, "window_right": -1} if alone else {}))


@wrong("GG-2: keys beyond the end with a softcap and 64 queries or more")
def padded_softcap(**call):
    beyond = -call["key"].shape[1] % 64
    hit = call["softcap"] > 0 and call["query"].shape[1] >= 64 and beyond and call["mask"] is None and call["sink"] is None
    sink = np.full(call["query"].shape[2], np.log(max(beyond, 1)) - call["softcap"], np.float32)
    right(**call | ({"sink": sink} if hit else {}))


@wrong("MLX-1: the mean of V in rows without keys")
def mean_of_empty_rows(**call):
    right(**call)
    seen = window_mask(call["query"].shape[1], call["key"].shape[1], call["window_left"], call["window_right"], call["align"])
    if call["value"].shape[1] and call["mask"] is None and call["bias"] is None and call["sink"] is None:
        group = call["query"].shape[2] // call["key"].shape[2]
        mean = np.repeat(np.asarray(call["value"], np.float32).mean(axis=1, keepdims=True), group, axis=2)
        call["out"][...] = np.where(seen.any(axis=1)[None, :, None, None], call["out"], mean.astype(call["out"].dtype))


@wrong("cheat 1: the answer is always 0")
def constant(**call):
    call["out"][...] = 0


@wrong("cheat 2: the mean of V, whatever the scores are")
def mean_of_values(**call):
    right(**call | {"query": np.zeros_like(call["query"])})


LAST = {}


@wrong("cheat 3: the answer of the last call of this shape")
def cached(**call):
    key = tuple(call[n].shape for n in ("query", "key", "value"))
    if key not in LAST:
        right(**call)
        LAST[key] = np.array(call["out"])
    call["out"][...] = LAST[key]


@wrong("cheat 4: right only for the benchmark's head dimension 64 or 128, else 0")
def benchmark_size(**call):
    right(**call) if call["query"].shape[3] in (64, 128) else constant(**call)


@wrong("cheat 5: the first half of the keys")
def half_the_keys(**call):
    keys = (call["key"].shape[1] + 1) // 2
    cut = {n: None if call[n] is None else call[n][..., :keys] if call[n].shape[3] > 1 else call[n] for n in ("mask", "bias")}
    moved = {"align": 0} if call["align"] == 0 else {}
    right(**call | cut | moved | {"key": call["key"][:, :keys], "value": call["value"][:, :keys]})


@wrong("cheat 6: the second half of the rows is not written")
def stale_rows(**call):
    kept = np.array(call["out"])
    right(**call)
    half = (call["out"].shape[1] + 1) // 2
    call["out"][:, half:] = kept[:, half:]


def rounded(array, bits):
    """To `bits` bits of fraction, ties away from zero."""
    fraction, exponent = np.frexp(np.asarray(array, np.float32))
    return np.ldexp(np.round(fraction * 2.0 ** (bits + 1)) / 2.0 ** (bits + 1), exponent).astype(array.dtype)


@wrong("cheat 7: inputs rounded to 3 bits of fraction, as of fp8")
def low_precision(**call):
    right(**call | {n: rounded(call[n], 3) for n in ("query", "key", "value")})


@wrong("cheat 8: no mask, no window, no bias")
def mask_ignored(**call):
    right(**call | {"mask": None, "bias": None, "window_left": -1, "window_right": -1})


@wrong("cheat 9: keys are left out beyond a window of 128")
def local_window(**call):
    right(**call | ({"window_left": 128, "window_right": 128} if call["window_left"] < 0 and call["window_right"] < 0 else {}))


@wrong("cheat 10: head 0 answers for all heads")
def one_head(**call):
    right(**call)
    call["out"][...] = call["out"][:, :, :1]
