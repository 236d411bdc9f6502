"""Assertions and `attncheck judge`: right outputs pass, wrong ones are named, bad input is one line."""

from __future__ import annotations

import resource
import sys

import numpy as np
import pytest

from attncheck import testing
from conftest import EXAMPLES, KERNELS

sys.path[:0] = [str(KERNELS), str(EXAMPLES)]
import attention_numpy  # noqa: E402
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


def seconds_of_judging(judge) -> float:
    """Of the processor: other work on the machine does not count."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    judge()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_it_takes_less_than_a_tenth_of_a_second():
    """0.07 s on two threads; three times as long is wrong."""
    arguments, outputs = flash_call()
    times = [seconds_of_judging(lambda: testing.assert_close("flash_attention_score", arguments, outputs)) for _ in range(3)]
    assert min(times) < 0.2, times


def test_long_sequences_take_two_seconds():
    """1.5 s; every row by itself took 4.3 s."""
    q, k = (np.random.default_rng(4).standard_normal((1, 16384, 4, 64)).astype(np.float16) for _ in range(2))
    v = np.broadcast_to(np.arange(1, 65).astype(np.float16), q.shape)  # then the output is v
    assert seconds_of_judging(lambda: testing.assert_attention_close(v, q, k, v)) < 4


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
    assert "scale_value=0.07" in testing.assert_close("flash_attention_score", arguments, {"attention_out": out})


def neutral_call(queries=40, keys=24, **changed):
    q, k, v = (np.random.default_rng(8).standard_normal((2, length, heads, 16)).astype(np.float32)
               for length, heads in ((queries, 4), (keys, 2), (keys, 2)))
    given = dict(bias=None, mask=None, sink=None, kv_length=None, scale=0.25, softcap=0, window_left=-1, window_right=0, align=1)
    return q, k, v, attention_numpy.attention(q, k, v, **{**given, **changed})


def test_rows_that_see_nothing_have_an_lse_of_minus_infinity():
    q, k, v, made = neutral_call()
    lse = np.array(made["lse"])
    assert np.isneginf(lse[:, :, :16]).all() and np.isfinite(lse[:, :, 16:]).all()
    testing.assert_attention_close(made["out"], q, k, v, causal=True, lse=lse)
    lse[0, 0, 0] = 0
    with pytest.raises(AssertionError, match="expected -inf  got 0"):
        testing.assert_attention_close(made["out"], q, k, v, causal=True, lse=lse)


def test_the_likely_defect_has_a_name():
    q, k, v, made = neutral_call(24, 40)
    with pytest.raises(AssertionError, match="looks like  lse times ln 2 is right in all rows"):
        testing.assert_attention_close(made["out"], q, k, v, causal=True, lse=made["lse"] / np.float32(np.log(2)))
    with pytest.raises(AssertionError, match="looks like  out: .*window_right not applied, which explains 100 % of the error"):
        testing.assert_attention_close(neutral_call(24, 40, window_right=-1)[3]["out"], q, k, v, causal=True)
    lengths = neutral_call(24, 40, kv_length=[33, 7], window_right=-1)[3]["out"]
    with pytest.raises(AssertionError, match="kv_length of the next batch taken"):
        testing.assert_attention_close(lengths, q, k, v, kv_length=[7, 33])


def test_the_likely_defect_of_large_logits_has_a_name():
    q, k, v = (np.random.default_rng(7).standard_normal((1, 20, 2, 16)).astype(np.float32) for _ in range(3))
    q *= 16
    out = attention_numpy.attention(q, k, v, None, None, None, None, 0.25, 0, -1, -1, 0)["out"]
    testing.assert_attention_close(out, q, k, v)
    with pytest.raises(AssertionError, match="looks like  out: softcap not applied, which explains 100 % of the error"):
        testing.assert_attention_close(out, q, k, v, softcap=5.0)


def test_pages_and_sequences_that_are_misread_have_a_name():
    random = np.random.default_rng(8)
    lengths, page = [33, 80, 19], 16
    q = random.standard_normal((3, 1, 4, 16)).astype(np.float32)
    cache = random.standard_normal((2, 12, page, 2, 16)).astype(np.float32)
    table = np.arange(15, dtype=np.int32).reshape(3, 5) % 12

    def decoded(read):
        rows = [[t[table[b]].reshape(1, -1, 2, 16)[:, :read(n)] for t in cache] for b, n in enumerate(lengths)]
        return np.concatenate([np.array(attention_numpy.attention(
            q[b:b + 1], k, v, None, None, None, None, 0.25, 0, -1, -1, 0)["out"]) for b, (k, v) in enumerate(rows)])

    testing.assert_attention_decode_close(decoded(lambda n: n), q, *cache, table, lengths)
    with pytest.raises(AssertionError, match="the partly filled last page of each sequence left out"):
        testing.assert_attention_decode_close(decoded(lambda n: n // page * page), q, *cache, table, lengths)
    with pytest.raises(AssertionError, match="the last page of each sequence left out"):
        testing.assert_attention_decode_close(decoded(lambda n: (n - 1) // page * page), q, *cache, table, lengths)

    cu_q, cu_kv = [0, 7, 20, 44], [0, 15, 30, 80]
    q, k, v = (random.standard_normal((n, 2, 16)).astype(np.float32) for n in (44, 80, 80))

    def packed(starts):
        return np.concatenate([np.array(attention_numpy.attention(
            q[None, cu_q[b]:cu_q[b + 1]], *(t[None, starts[b]:starts[b] + cu_kv[b + 1] - cu_kv[b]] for t in (k, v)), None,
            None, None, None, 0.25, 0, -1, -1, 0)["out"])[0] for b in range(3)])

    testing.assert_attention_close(packed(cu_kv), q, k, v, cu_seqlens_q=cu_q, cu_seqlens_kv=cu_kv)
    with pytest.raises(AssertionError, match="keys of a sequence taken from where its queries begin"):
        testing.assert_attention_close(packed(cu_q), q, k, v, cu_seqlens_q=cu_q, cu_seqlens_kv=cu_kv)


def test_the_line_says_what_was_given():
    q, k, v, _ = neutral_call(24, 40)
    made = neutral_call(24, 40, scale=0.3, softcap=2.5, kv_length=[7, 33], window_right=-1)[3]
    said = testing.assert_attention_close(made["out"], q, k, v, scale=0.3, softcap=2.5, kv_length=[7, 33])
    line = said.splitlines()[0]
    assert "kv_length=[7,33]" in line and "scale=0.3" in line and "softcap=2.5" in line, line
    assert line.endswith("} with the given data") and "data=" not in line and "seed=" not in line, line


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


def test_judge_takes_usual_numbers_for_those_left_out(attncheck, tmp_path):
    q, k, v = (np.random.default_rng(3).standard_normal((1, length, 2, 16)).astype(np.float16) for length in (5, 9, 9))
    right = {True: 0, False: -1}
    for causal in right:
        made = attention_numpy.attention(q, k, v, None, None, None, None, 0.25, 0, -1, right[causal], 1)
        tensors = dict(query=q, key=k, value=v, out=made["out"])
        np.savez(tmp_path / "call.npz", **tensors, **({"window_right": 0} if causal else {}))
        status, said = attncheck("judge", "call.npz", "--op", "attention")
        assert status == 0 and "scale=rsqrt" in said and "align=bottom_right" in said, said
    np.savez(tmp_path / "call.npz", **{**tensors, "query": q[0]})
    status, said = attncheck("judge", "call.npz", "--op", "attention")
    assert status == 2 and len(said.splitlines()) == 1, said


def test_a_damaged_file_is_one_line(attncheck, tmp_path):
    np.savez(tmp_path / "call.npz", query=np.zeros((1, 2, 1, 2), np.float16))
    whole = (tmp_path / "call.npz").read_bytes()
    for old, new, words in [(b"(1, 2, 1, 2)", b"(1, \n, 1, 2)", "has the shape ("),
                            (b"(1, 2, 1, 2)", b"(1,-2, 1, 2)", "query has shape [1,-2,1,2], allowed"),
                            (b"(1, 2, 1, 2), }      ", b"(4294967296,4294967296,)}", "less than 2^63 elements"),
                            (b"PK\x05\x06", b"PK\x05\x07", "it is no .npz archive")]:
        assert old in whole and len(old) <= len(new)
        (tmp_path / "bad.npz").write_bytes(whole.replace(old + b" " * (len(new) - len(old)), new))
        status, said = attncheck("judge", "bad.npz", "--op", "attention")
        assert status == 2 and said.count("\n") == 1 and words in said, said


RANDOM = np.random.default_rng(5)
FORMS = {
    "plain": {},
    "bf16": dict(dtype="bfloat16"),
    "causal": dict(causal=True),
    "window": dict(window=(3, 2), align="top_left"),
    "softcap": dict(softcap=7.5),
    "bias": dict(bias=RANDOM.standard_normal((1, 4, 8, 12)).astype(np.float32)),
    "mask": dict(mask=RANDOM.random((2, 1, 8, 12)) < 0.7),
    "sink": dict(sink=RANDOM.standard_normal(4).astype(np.float32)),
    "kv_length": dict(kv_length=[5, 9]),
    "everything": dict(softcap=2.25, sink=np.zeros(4, np.float32), kv_length=[5, 0], causal=True,
                       mask=RANDOM.random((1, 1, 8, 12)) < 0.7, bias=np.ones((2, 1, 1, 12), np.float32), scale=0.3),
}


@pytest.mark.parametrize("form", FORMS)
def test_attention_in_the_words_of_frameworks(form):
    import ml_dtypes  # noqa: F401: names its types to NumPy

    more = dict(FORMS[form])
    dtype = np.dtype(more.pop("dtype", "float16"))
    q, k, v = (RANDOM.standard_normal((2, length, heads, 16)).astype(dtype) for length, heads in ((8, 4), (12, 2), (12, 2)))
    left, right = more.get("window", (-1, -1))
    made = attention_numpy.attention(
        q, k, v, more.get("kv_length"), more.get("bias"), more.get("mask"), more.get("sink"), more.get("scale", 0.25),
        more.get("softcap", 0), left, 0 if more.get("causal") else right, int(more.get("align") != "top_left"))
    out, lse = made["out"], made["lse"]
    said = testing.assert_attention_close(out, q, k, v, lse=lse, **more)
    assert "out, lse held" in said, said
    heads_first = [np.ascontiguousarray(t.transpose(0, 2, 1, 3)) for t in (out, q, k, v)]
    testing.assert_attention_close(*heads_first, layout="bhsd", **more)
    lse[1, 3, 7] = 12345
    with pytest.raises(AssertionError, match="batch 1, query 7, head 3"):
        testing.assert_attention_close(out, q, k, v, lse=lse, **more)
    out[0, 2, 1, 3] = np.nan
    with pytest.raises(AssertionError, match=r"batch 0, query 2, head 1, channel 3\].*got nan"):
        testing.assert_attention_close(out, q, k, v, **more)


def test_what_sampling_leaves_out_is_said():
    q, k, v = (np.random.default_rng(6).standard_normal((1, 2048, 2, 32)).astype(np.float32) for _ in range(3))
    # With equal values the output is the value, P is of no matter, and dQ, dK and dbias are 0.
    v[:] = v[0, 0, 0]
    s = np.einsum("bihd,bjhd->bhij", q, k) / np.float32(32**0.5)
    top = s.max(axis=-1, keepdims=True)
    p = np.exp(s - top)
    total = p.sum(axis=-1, keepdims=True)
    lse, dout = (top + np.log(total))[..., 0], np.ones_like(q)
    dv = np.repeat((p / total).sum(axis=2)[..., None], 32, axis=-1).transpose(0, 2, 1, 3)
    given = dict(dq=np.zeros_like(q), dk=np.zeros_like(q), dv=np.ascontiguousarray(dv), dout=dout, q=q, k=k, v=v, out=v)
    bias = dict(bias=np.zeros((1, 1, 1, 2048), np.float32), dbias=np.full((1, 1, 1, 2048), 7, np.float32))
    said = testing.assert_attention_grad_close(**given, **bias, lse=lse)
    assert "dq, dk, dv held" in said and "dbias: not judged at this size" in said, said
    with pytest.raises(ValueError, match="lse is missing: a gradient of this size is judged with the LSE"):
        testing.assert_attention_grad_close(**given)
    dv[0, 2047] *= 1.01
    with pytest.raises(AssertionError, match="dv"):
        testing.assert_attention_grad_close(**given | {"dv": dv}, lse=lse)


def test_pages_in_any_order():
    lengths, page = [9, 4, 0], 4
    table = np.array([[6, 2, 5, -7], [6, 1 << 40, 0, 0], [99, 99, 99, 99]], np.int64)  # the first page is shared
    q = RANDOM.standard_normal((3, 2, 4, 8)).astype(np.float16)
    cache = RANDOM.standard_normal((2, 7, page, 2, 8)).astype(np.float16)
    cache[:, [0, 1, 3, 4]] = np.nan  # pages of nobody
    cache[:, 5, 1:] = np.nan
    keys, values = (np.zeros((3, 9, 2, 8), np.float16) for _ in range(2))
    for b, length in enumerate(lengths):
        for j in range(length):
            keys[b, j], values[b, j] = cache[:, table[b, j // page], j % page]
    out, lse = np.zeros_like(q), np.full((3, 4, 2), -np.inf, np.float32)
    for b in range(2):
        own = slice(b, b + 1), slice(0, lengths[b])
        made = attention_numpy.attention(q[b:b + 1], keys[own], values[own], None, None, None, None, 8**-0.5, 1.5, 3, 0, 1)
        out[b], lse[b] = made["out"][0], made["lse"][0]
    judge = dict(query=q, key_cache=cache[0], value_cache=cache[1], block_table=table, kv_length=lengths, softcap=1.5,
                 window_left=3)
    testing.assert_attention_decode_close(out, **judge, lse=lse)
    wrong = table.copy()
    wrong[0, 1] = 6  # another page of the cache
    with pytest.raises(AssertionError, match="out is wrong|lse is wrong"):
        testing.assert_attention_decode_close(out, **judge | {"block_table": wrong}, lse=lse)
    wrong[0, 1] = 7
    with pytest.raises(ValueError, match=r"block_table\[0,1\] is 7, allowed: 0 to 6"):
        testing.assert_attention_decode_close(out, **judge | {"block_table": wrong})
    with pytest.raises(ValueError, match="kv_length of sequence 1 is 17, allowed: 0 to 16, 4 pages of 4"):
        testing.assert_attention_decode_close(out, **judge | {"kv_length": [9, 17, 0]})


def test_bad_input_in_the_words_of_frameworks():
    q = np.zeros((1, 2, 1, 4), np.float16)
    for words, change in {
        "q is of type NoneType, expected a tensor": dict(q=None),
        "layout is 'sbhd', allowed: 'bshd', 'bhsd'": dict(layout="sbhd"),
        "align is 'left', allowed: 'top_left', 'bottom_right'": dict(align="left"),
        "window is 3, expected two numbers of keys": dict(window=3),
        "window is (1.5, 0), expected whole numbers": dict(window=(1.5, 0)),
        "kv_length is [1.5], expected whole numbers": dict(kv_length=[1.5]),
        "kv_length is 2, expected whole numbers": dict(kv_length=2),
        "cu_seqlens_q is [0.0, 2.0], expected whole numbers": dict(cu_seqlens_q=[0.0, 2.0], cu_seqlens_kv=[0, 2], **dict.fromkeys(["out", "q", "k", "v"], q[0])),
        "scale is 'a', expected a number": dict(scale="a"),
        "softcap is -1": dict(softcap=-1),
        "scale is nan": dict(scale=float("nan")),
        "kv_length is [3], allowed: 0 to 2": dict(kv_length=[3]),
        "key is bf16 [1,2,1,4]": dict(k=q.view(np.uint16).astype(np.int32)),
        "mask has shape [2, 2], allowed: [1, 1, 2 or 1, 2 or 1], such as [1, 1, 2, 2]": dict(mask=np.ones((2, 2), bool)),
        "bias has shape [1, 1, 2, 3], allowed: [1, 1, 2 or 1, 2 or 1]": dict(bias=np.zeros((1, 1, 2, 3), np.float32)),
        "mask is of type float32, allowed: bool": dict(mask=np.ones((1, 1, 2, 2), np.float32)),
        "kv_length has 2 numbers, expected 1, one of each batch": dict(kv_length=[2, 2]),
        "window is (-2, 0), allowed: two numbers from -1, where -1 = unlimited": dict(window=(-2, 0)),
        "q has 2 heads, allowed: a multiple of the 3 heads of k; tensors [B, H, S, D] are of layout='bhsd'":
            dict(out=q.reshape(1, 1, 2, 4), q=q.reshape(1, 1, 2, 4), **dict.fromkeys("kv", np.zeros((1, 1, 3, 4), np.float16))),
        "q has 1 heads, allowed: a multiple of the 2 heads of k": dict.fromkeys("kv", np.zeros((1, 2, 2, 4), np.float16)),
        "q is of type float64, allowed: float16, bfloat16, float32": dict(q=q.astype(float)),
        "q has shape [1, 2, 4], allowed: [B, Sq, Hq, D], or ": dict(q=q[:, :, 0]),  # no word of its heads
        "out is fp16 [1,2,1,5], the other arguments ask for": dict(out=np.zeros((1, 2, 1, 5), np.float16)),
    }.items():
        given = dict(out=q, q=q, k=q, v=q) | change
        with pytest.raises((ValueError, TypeError)) as error:
            testing.assert_attention_close(**given)
        is_type = "k" in change and "v" not in change
        assert "\n" not in str(error.value) and (words in str(error.value) or is_type), error.value


SHAPES = {
    "q": "[B, Sq, Hq, D], or [Tq, Hq, D] with cu_seqlens_q and cu_seqlens_kv",
    "k": "[B, Skv, Hkv, D], or [Tkv, Hkv, D] with cu_seqlens_q and cu_seqlens_kv",
    "v": "[B, Skv, Hkv, Dv], or [Tkv, Hkv, Dv] with cu_seqlens_q and cu_seqlens_kv",
    "out": "[B, Sq, Hq, Dv], or [Tq, Hq, Dv] with cu_seqlens_q and cu_seqlens_kv",
}
SHAPES |= {"dq": SHAPES["q"], "dk": SHAPES["k"], "dv": SHAPES["v"], "dout": SHAPES["out"]}


@pytest.mark.parametrize("name", SHAPES)
def test_a_tensor_of_another_rank_is_named(name):
    given = np.zeros((5, 1, 16), np.float32)
    check, names = testing.assert_attention_close, ("q", "k", "v", "out")
    if name.startswith("d"):
        check, names = testing.assert_attention_grad_close, tuple(SHAPES)
    with pytest.raises(ValueError) as error:
        check(**dict.fromkeys(names, given[None]) | {name: given})
    assert str(error.value) == f"{name} has shape [5, 1, 16], allowed: {SHAPES[name]}"
    with pytest.raises(ValueError) as error:
        check(**dict.fromkeys(names, given))
    assert str(error.value) == f"q has shape [5, 1, 16], allowed: {SHAPES['q']}"


def test_a_rank_that_the_layout_does_not_have():
    given = np.zeros((1, 5, 1, 16), np.float32)
    packed = dict(cu_seqlens_q=[0, 5], cu_seqlens_kv=[0, 5])
    for words, tensor, more in [
        ("q has shape [1, 5, 1, 16], allowed: [Tq, Hq, D] with cu_seqlens_q and cu_seqlens_kv", given, packed),
        ("q has shape [5, 1, 16], allowed: [B, Hq, Sq, D] with layout='bhsd'", given[0], dict(layout="bhsd")),
        ("layout is 'bhsd', allowed with cu_seqlens_q and cu_seqlens_kv: 'bshd'", given[0], packed | {"layout": "bhsd"}),
        ("q has shape [5], allowed: [B, Sq, Hq, D], or ", given[0, :, 0, 0], {}),
    ]:
        with pytest.raises(ValueError) as error:
            testing.assert_attention_close(tensor, tensor, tensor, tensor, **more)
        assert str(error.value).startswith(words), error.value
    assert "out held" in testing.assert_attention_close(*[given[0]] * 4, **packed)


def test_packed_sequences_that_do_not_fit_are_one_line():
    q, kv = np.zeros((9, 2, 16), np.float32), np.zeros((12, 2, 16), np.float32)
    for words, change in {
        "cu_seqlens_kv is missing: packed sequences need both cu_seqlens_q and cu_seqlens_kv": dict(cu_seqlens_kv=None),
        "cu_seqlens_q begins with 4, allowed: 0, where the first sequence begins": dict(cu_seqlens_q=[4, 9]),
        "cu_seqlens_kv decreases from 12 to 9": dict(cu_seqlens_kv=[0, 12, 9]),
        "cu_seqlens_q ends at 8, q has 9 rows": dict(cu_seqlens_q=[0, 8]),
        "cu_seqlens_q has 3 numbers, cu_seqlens_kv 2: one more than sequences each": dict(cu_seqlens_q=[0, 4, 9]),
    }.items():
        given = dict(out=q, q=q, k=kv, v=kv, cu_seqlens_q=[0, 9], cu_seqlens_kv=[0, 12]) | change
        with pytest.raises(ValueError) as error:
            testing.assert_attention_close(**given)
        assert str(error.value) == words


def test_gradients_of_what_is_not_given_are_one_line():
    x = np.zeros((1, 3, 1, 8), np.float32)
    for name, of in (("dbias", "bias"), ("dsink", "sink")):
        with pytest.raises(ValueError, match=f"^{name} is given without {of}$"):
            testing.assert_attention_grad_close(*[x] * 8, **{name: np.zeros(1, np.float32)})


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("align", ["top_left", "bottom_right"])
def test_outputs_that_are_right_with_the_other_align_are_told_so(align, packed):
    q, k, v = (np.random.default_rng(7).standard_normal((1, length, 2, 16)).astype(np.float16) for length in (5, 9, 9))
    out = attention_numpy.attention(q, k, v, None, None, None, None, 0.25, 0, -1, 0, int(align != "top_left"))["out"]
    other = "bottom_right" if align == "top_left" else "top_left"
    more = dict(cu_seqlens_q=[0, 5], cu_seqlens_kv=[0, 9]) if packed else {}
    given = [t[0] if packed else t for t in (out, q, k, v)]
    testing.assert_attention_close(*given, causal=True, align=align, **more)
    with pytest.raises(AssertionError) as error:
        testing.assert_attention_close(*given, causal=True, align=other, **more)
    assert "out is wrong" in str(error.value), error.value
    assert f"The outputs are right with align={align!r}, given was {other!r}." in str(error.value), error.value
    with pytest.raises(AssertionError) as error:
        testing.assert_attention_close(*given, align=align, **more)
    assert "The outputs are right with causal=True, which was not given." in str(error.value), error.value
    with pytest.raises(AssertionError) as error:
        testing.assert_attention_close(*given, align=other, **more)
    assert f"The outputs are right with causal=True and align={align!r}, which were not given." in str(error.value), error.value
    given[0] = given[0] + np.float16(1)
    with pytest.raises(AssertionError) as error:
        testing.assert_attention_close(*given, causal=True, align=other, **more)
    assert "align='" not in str(error.value) and "are right with" not in str(error.value), error.value


def test_outputs_that_are_right_without_causal_are_told_so():
    q, k, v = (np.random.default_rng(7).standard_normal((1, 6, 2, 16)).astype(np.float16) for _ in range(3))
    out = attention_numpy.attention(q, k, v, None, None, None, None, 0.25, 0, -1, -1, 0)["out"]
    testing.assert_attention_close(out, q, k, v, window=np.array([-1, -1]))
    testing.assert_attention_close(*(t.astype(t.dtype.newbyteorder(">")) for t in (out, q, k, v)))
    with pytest.raises(AssertionError, match="The outputs are right with causal=False, given was True."):
        testing.assert_attention_close(out, q, k, v, causal=True)


def test_bad_pages_are_one_line():
    q, cache = np.zeros((2, 1, 3, 4), np.float16), np.zeros((2, 4, 2, 4), np.float16)
    for words, change in {
        "query has 3 heads, allowed: a multiple of the 2 heads of key_cache": dict(),
        "kv_length has 1 numbers, expected 2, one of each batch": dict(query=q[:, :, :2], kv_length=[1]),
        "window_left is -2, allowed: numbers from -1, where -1 = unlimited": dict(query=q[:, :, :2], window_left=-2),
        "query has shape [2, 3, 4], allowed: [B, Sq, Hq, D]; one new token of each sequence is query[:, None]": dict(query=q[:, 0]),
        "key_cache has shape [4, 2, 4], allowed: [pages, page_size, Hkv, D]": dict(key_cache=cache[0]),
        "page_size is 257, allowed: 1 to 256": dict(query=q[:, :, :2], key_cache=np.zeros((1, 257, 2, 4), np.float16)),
        "query has 3 heads, allowed: a multiple of the 4 heads of key_cache; key_cache is [pages, page_size, Hkv, D]":
            dict(key_cache=np.zeros((2, 3, 4, 4), np.float16)),
    }.items():
        given = dict(out=q, query=q, key_cache=cache, value_cache=cache, block_table=np.zeros((2, 1), np.int32), kv_length=[1, 1])
        with pytest.raises(ValueError) as error:
            testing.assert_attention_decode_close(**given | change)
        assert str(error.value) == words


BAD = {
    "no operator 'attn', known: ": dict(op="attn"),
    "lsez is no argument of attention_merge, those are: parts, lses, out, lse": dict(lsez=np.zeros(3)),
    "lses is missing": dict(lses=None),
    "lses is fp32 [3,4,1], the other arguments ask for fp32 [3,4,2]": dict(lses=np.zeros((3, 4, 1), np.float32)),
    "out is of type list, expected a tensor": dict(out=[1.0]),
    "out is of type float64, allowed: float16, bfloat16, float32": dict(out=np.zeros((4, 2, 8))),
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
