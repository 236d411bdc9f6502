"""Assertions and `attncheck judge`: right outputs pass, wrong ones are named, bad input is one line."""

from __future__ import annotations

import sys
import time

import numpy as np
import pytest

from attncheck import testing
from conftest import KERNELS

sys.path.insert(0, str(KERNELS))
import flash_numpy  # noqa: E402
import merge_numpy  # noqa: E402


def run(arguments):
    """The kernel on what is judged."""
    words = {k: v for k, v in arguments.items() if k != "keep_prob"}
    return flash_numpy.flash(**words, pre_tokens=0, next_tokens=0)


def flash_call(batch=1, heads=4, length=256, dim=64, dtype=np.float16, seed=1):
    random = np.random.default_rng(seed)
    q, k, v = (random.standard_normal((batch, heads, length, dim)).astype(dtype) for _ in range(3))
    given = dict(query=q, key=k, value=v, input_layout="BNSD", scale_value=dim**-0.5, sparse_mode=0, head_num=heads,
                 keep_prob=1.0)
    top, total, out = run(given)
    return given, dict(softmax_max=top, softmax_sum=total, attention_out=out)


def test_right_outputs_pass():
    arguments, outputs = flash_call()
    said = testing.assert_close("flash_attention_score", arguments, outputs)
    assert "layout=BNSD" in said and "held, worst error" in said
    out = outputs["attention_out"]
    testing.assert_flash_attention_score_close(**arguments, attention_out=out)


def test_it_takes_less_than_a_tenth_of_a_second():
    arguments, outputs = flash_call()
    times = []
    for _ in range(3):
        start = time.perf_counter()
        testing.assert_close("flash_attention_score", arguments, outputs)
        times.append(time.perf_counter() - start)
    print(f"judged in {min(times) * 1e3:.0f} ms")


def test_one_wrong_element_is_named():
    arguments, outputs = flash_call()
    outputs["attention_out"][0, 3, 17, 5] += 0.01
    with pytest.raises(AssertionError) as error:
        testing.assert_close("flash_attention_score", arguments, outputs)
    assert "batch 0, query 17, head 3, channel 5" in str(error.value)
    assert "tier: bound" in str(error.value)


def test_a_small_gain_is_named_by_a_later_tier():
    arguments, outputs = flash_call(length=128, dim=16, dtype=np.float32)
    out = outputs["attention_out"] * np.float32(1 + 3e-6)  # below the bound everywhere
    with pytest.raises(AssertionError, match="tier: (filter|deviation)"):
        testing.assert_close("flash_attention_score", arguments, {"attention_out": out})


def test_a_scale_that_no_case_has(tmp_path):
    arguments, _ = flash_call(length=32)
    arguments["scale_value"] = 0.07
    _, _, out = run(arguments)
    testing.assert_close("flash_attention_score", arguments, {"attention_out": out})


def test_merge_and_its_mistake():
    random = np.random.default_rng(2)
    parts = random.standard_normal((3, 4, 2, 8)).astype(np.float32)
    lses = random.standard_normal((3, 4, 2)).astype(np.float32)
    out, lse = merge_numpy.attention_merge(parts, lses)
    testing.assert_attention_merge_close(parts=parts, lses=lses, out=out, lse=lse)
    testing.assert_attention_merge_close(parts=parts, lses=lses, out=out)
    with pytest.raises(AssertionError, match="row 2, head 1"):
        lse[2, 1] += 1e-3
        testing.assert_attention_merge_close(parts=parts, lses=lses, out=out, lse=lse)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_judge_reads_files(attncheck, tmp_path, suffix):
    from attncheck._tensors import write_safetensors

    random = np.random.default_rng(2)
    parts = random.standard_normal((3, 4, 2, 8)).astype(np.float16)
    lses = random.standard_normal((3, 4, 2)).astype(np.float32)
    out, _ = merge_numpy.attention_merge(parts, lses)
    path = tmp_path / f"call{suffix}"
    tensors = dict(parts=parts, lses=lses, out=out)
    if suffix == ".npz":
        np.savez(path, op="attention_merge", **tensors)
    else:
        write_safetensors(path, tensors, {"op": "attention_merge"})
    status, said = attncheck("judge", path)
    assert status == 0 and "out held" in said, said


BAD = {
    "no operator 'attn', known: ": dict(op="attn"),
    "lsez is no argument of attention_merge, those are: parts, lses, out, lse": dict(lsez=np.zeros(3)),
    "lses is missing": dict(lses=None),
    "lses is fp32 [3,4,1], the other arguments ask for fp32 [3,4,2]": dict(lses=np.zeros((3, 4, 1), np.float32)),
    "out is of type list, expected a tensor": dict(out=[1.0]),
    "out is of type float64, allowed: ": dict(out=np.zeros((4, 2, 8))),
}


@pytest.mark.parametrize("words", BAD)
def test_bad_input_is_one_line(words):
    change = dict(BAD[words])
    op = change.pop("op", "attention_merge")
    values = dict(parts=np.zeros((3, 4, 2, 8), np.float16), lses=np.zeros((3, 4, 2), np.float32),
                  out=np.zeros((4, 2, 8), np.float16))
    values |= change
    with pytest.raises((ValueError, TypeError)) as error:
        testing.assert_close(op, {k: v for k, v in values.items() if k != "out"}, {"out": values["out"]})
    assert words in str(error.value) and "\n" not in str(error.value), error.value


def test_long_problems_are_sampled():
    random = np.random.default_rng(3)
    q, k, v = (random.standard_normal((1, 1, 4096, 16)).astype(np.float16) for _ in range(3))
    arguments = dict(query=q, key=k, value=v, input_layout="BNSD", scale_value=0.25, sparse_mode=0, head_num=1,
                     keep_prob=1.0)
    top, total, out = run(arguments)
    outputs = dict(softmax_max=top, softmax_sum=total, attention_out=out)
    said = testing.assert_close("flash_attention_score", arguments, outputs)
    assert "rows sampled" in said, said
    out[0, 0, 4095] *= 1.05
    with pytest.raises(AssertionError, match="query 4095"):
        testing.assert_close("flash_attention_score", arguments, outputs)
