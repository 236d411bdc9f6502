"""ggml on the CPU: ggml_flash_attn_ext, through ctypes, from the libraries that pywhispercpp ships.

Declared from ggml.h: q [n_embd_k, n_batch, n_head, ne3] of fp32, k and v of any type, mask [n_kv, n_batch, ne32, ne33] of
fp16, added to the logits; scale, softcap, sinks [n_head] of fp32; the result [n_embd_v, n_head, n_batch, ne3] is fp32. There
is no causal flag, no window and no log-sum-exp. With fp16 keys and values the products of V are summed in fp16. Older
releases have no sinks, want one mask for all heads, and its rows filled up to a multiple of 64 (GGML_KQ_MASK_PAD).
"""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
import attncheck
from ggml import attend, mask_of

ZOO = {"title": "ggml flash_attn_ext", "environments": ["ggml-0.13", "whisper-1.8.2", "whisper-1.7.4"], "distribution": "pywhispercpp",
       "kernels": ["flash", "flash_any_sink"],
       "properties": {"flash_any_sink": ["agreement", "non_finite"]}, "source": "https://github.com/ggml-org/ggml/blob/master/include/ggml.h"}
PRECISION = "acc=half p=half hidden=times_zero exp=16"
FEATURES = "dtype=fp16,fp32 layout=bshd,bhsd,sbhd window_left=-1 window_right=-1 align=top_left kv_length=none outputs=out"


@attncheck.kernel("attention", precision=PRECISION, features=FEATURES)
def flash(query, key, value, bias, mask, sink, scale, softcap):
    numbers = [t for t in (query, key, sink) if t is not None]
    if not all(np.isfinite(np.asarray(t, np.float32)).all() for t in numbers):
        raise attncheck.Declined("a score or a sink of -inf, see GG-1")
    return flash_any_sink(query, key, value, bias, mask, sink, scale, softcap)


@attncheck.kernel("attention", precision=PRECISION, features=FEATURES)
def flash_any_sink(query, key, value, bias, mask, sink, scale, softcap):
    return attend(query, key, value, mask_of(query, key, bias, mask), sink, scale, softcap)
