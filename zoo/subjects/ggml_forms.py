"""ggml on the CPU: ggml_flash_attn_ext with ALiBi and with quantised keys and values.

Declared from ggml.h and ggml-common.h. max_bias > 0 multiplies the mask of head h of H by its ALiBi slope (Press et al. 2022):
with n the largest power of two up to H, m0^(h + 1) for the first n heads and m1^(2 (h - n) + 1) for the others, where m0 = 2^(-max_bias / n)
and m1 is its root. Here max_bias is 2 n, so that every slope is a power of two, and the mask is the wanted bias divided by it, exactly.
k and v of any type: q8_0 and q4_0 are blocks of 32 elements d q. The adapter stores whole numbers with d = 1, from which ggml reads the
inputs back without error; other inputs are declined. Quantised values are summed in fp32. Under quantised keys ggml rounds q to q8_0:
each block to multiples of its largest magnitude / 127. The adapter puts a 127 into each block of q, against a 0 in k, behind 31 elements
of the case: whole numbers then stay what they are, and no product changes.
"""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
import attncheck
from ggml import Q4_0, Q8_0, add_sinks, attend, mask_of

ZOO = {"title": "ggml flash_attn_ext", "environments": ["ggml-0.13", "whisper-1.8.2", "whisper-1.7.4"], "distribution": "pywhispercpp",
       "kernels": ["alibi", "values_q8", "values_q4", "keys_q8", "keys_q4"],
       "properties": {"": ["agreement", "exact_lattice", "row_view", "written_mask", "repeatable"]},
       "source": "https://github.com/ggml-org/ggml/blob/master/include/ggml.h"}
COMMON = "dtype=fp16 layout=bshd,bhsd,sbhd window_left=-1 window_right=-1 align=top_left kv_length=none outputs=out "
BLOCKS = COMMON + "value_dim=32..128/32 "
# Releases without sinks want one head dimension: a block of the keys is 31 elements and the guard.
KEYS = BLOCKS if add_sinks else COMMON + "dim=31 value_dim=32 "
PRECISION = "p=half hidden=times_zero exp=16 acc="


def slopes(heads):
    """max_bias and the slope of every head: powers of two."""
    n = 1 << heads.bit_length() - 1
    return 2.0 * n, np.ldexp(1.0, [-2 * (h + 1) if h < n else -(2 * (h - n) + 1) for h in range(heads)])


def finite(*tensors):
    if not all(np.isfinite(np.asarray(t, np.float32)).all() for t in tensors if t is not None):
        raise attncheck.Declined("a score or a sink of -inf, see GG-1")


@attncheck.kernel("attention", precision=PRECISION + "half", features=COMMON + "kv_heads=1..4 group=1..3 mask=none "
                  "bias_type=input bias=full,one_batch,one_head,shared,per_key,head_key,per_query,head")
def alibi(query, key, value, bias, mask, sink, scale, softcap):
    finite(query, key, sink)
    given = mask_of(query, key, bias, mask)
    if given is None:
        raise attncheck.Declined("GGML_ASSERT(mask): max_bias is a factor of the mask")
    max_bias, slope = slopes(query.shape[2])
    with np.errstate(over="ignore", under="ignore"):
        divided = (given.astype(np.float64) / slope[:, None, None]).astype(np.float16)
    if not np.array_equal(divided * slope[:, None, None], np.broadcast_to(given, divided.shape).astype(np.float64)):
        raise attncheck.Declined("a bias that is no multiple of its slope in fp16")
    return attend(query, key, value, divided, sink, scale, softcap, max_bias)


def guarded(t, guard):
    """Rows of blocks of 32: 31 elements, filled up with 0, and the guard."""
    rows = np.pad(t, [(0, 0)] * 3 + [(0, -t.shape[3] % 31)]).reshape(*t.shape[:3], -1, 31)
    return np.pad(rows, [(0, 0)] * 4 + [(0, 1)], constant_values=guard).reshape(*t.shape[:3], -1)


def quantised(query, key, value, bias, mask, sink, scale, softcap, key_type=None, value_type=None):
    finite(query, key, sink)
    if query.size == 0 or key.size == 0:
        raise attncheck.Declined("an empty tensor")
    if key_type and (query != np.round(query)).any():
        raise attncheck.Declined("a query that is not of whole numbers: q8_0 rounds it")
    q, k = (guarded(query, 127), guarded(key, 0)) if key_type else (query, key)
    return attend(q, k, value, mask_of(query, key, bias, mask), sink, scale, softcap, 0.0, key_type, value_type)


@attncheck.kernel("attention", precision=PRECISION + "fp32", features=BLOCKS)
def values_q8(query, key, value, bias, mask, sink, scale, softcap):
    return quantised(query, key, value, bias, mask, sink, scale, softcap, value_type=Q8_0)


@attncheck.kernel("attention", precision=PRECISION + "fp32", features=BLOCKS)
def values_q4(query, key, value, bias, mask, sink, scale, softcap):
    return quantised(query, key, value, bias, mask, sink, scale, softcap, value_type=Q4_0)


@attncheck.kernel("attention", precision=PRECISION + "fp32", features=KEYS)
def keys_q8(query, key, value, bias, mask, sink, scale, softcap):
    return quantised(query, key, value, bias, mask, sink, scale, softcap, key_type=Q8_0, value_type=Q8_0)


@attncheck.kernel("attention", precision=PRECISION + "fp32", features=KEYS)
def keys_q4(query, key, value, bias, mask, sink, scale, softcap):
    return quantised(query, key, value, bias, mask, sink, scale, softcap, key_type=Q4_0, value_type=Q4_0)
