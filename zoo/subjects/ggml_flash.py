"""ggml on the CPU: ggml_flash_attn_ext, through ctypes, from the libraries that pywhispercpp ships.

Declared from ggml.h: q [n_embd_k, n_batch, n_head, ne3] of fp32, k and v of any type, mask [n_kv, n_batch, ne32, ne33] of
fp16, added to the logits; scale, softcap, sinks [n_head] of fp32; the result [n_embd_v, n_head, n_batch, ne3] is fp32. There
is no causal flag, no window and no log-sum-exp. With fp16 keys and values the products of V are summed in fp16. Older
releases have no sinks, want one mask for all heads, and its rows filled up to a multiple of 64 (GGML_KQ_MASK_PAD).
"""

import ctypes
import sysconfig
from pathlib import Path

import numpy as np

import attncheck

ZOO = {"title": "ggml flash_attn_ext", "environments": ["ggml-0.13", "whisper-1.8.2", "whisper-1.7.4"], "distribution": "pywhispercpp",
       "kernels": ["flash", "flash_any_sink"],
       "properties": {"flash_any_sink": ["agreement", "non_finite"]}, "source": "https://github.com/ggml-org/ggml/blob/master/include/ggml.h"}
F32, F16 = 0, 1
SITE = Path(sysconfig.get_paths()["purelib"])


class InitParams(ctypes.Structure):
    _fields_ = [("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]


def library(name):
    return ctypes.CDLL(str(SITE / name), mode=ctypes.RTLD_GLOBAL)


base, cpu = library("libggml-base.so"), library("libggml-cpu.so")
P, I64, F, I = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float, ctypes.c_int


def declare(lib, name, result, *arguments):
    function = getattr(lib, name)
    function.restype, function.argtypes = result, arguments
    return function


init = declare(base, "ggml_init", P, InitParams)
free = declare(base, "ggml_free", None, P)
new_tensor = declare(base, "ggml_new_tensor_4d", P, P, I, I64, I64, I64, I64)
data_of = declare(base, "ggml_get_data", P, P)
flash_attn = declare(base, "ggml_flash_attn_ext", P, P, P, P, P, P, F, F, F)
add_sinks = declare(base, "ggml_flash_attn_ext_add_sinks", None, P, P) if hasattr(base, "ggml_flash_attn_ext_add_sinks") else None
new_graph = declare(base, "ggml_new_graph", P, P)
expand = declare(base, "ggml_build_forward_expand", None, P, P)
compute = declare(cpu, "ggml_graph_compute_with_ctx", I, P, P, I)
mask_rows = 1 if (SITE / "libggml-base.so.0").exists() else 64  # GGML_KQ_MASK_PAD, before 0.13
MEMORY = ctypes.create_string_buffer(256 << 20)


def tensor(context, array):
    """A tensor of ggml with the values of [n3, n2, n1, n0]; its extents are listed the other way round."""
    array = np.ascontiguousarray(array)
    made = new_tensor(context, F16 if array.dtype == np.float16 else F32, *array.shape[::-1])
    ctypes.memmove(data_of(made), array.ctypes.data, array.nbytes)
    return made


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
    if bias is not None and (mask is not None or bias.dtype != np.float16):
        raise attncheck.Declined("one mask, of fp16")
    if query.size == 0 or key.size == 0 or value.size == 0:
        raise attncheck.Declined("an empty tensor")
    if query.dtype not in (np.float16, np.float32):
        raise attncheck.Declined("dtype")
    if add_sinks is None and (sink is not None or any(t is not None and t.shape[:2] != (1, 1) for t in (bias, mask))):
        raise attncheck.Declined("sinks, or a mask for each head")
    if add_sinks is None and (key.dtype != np.float16 or query.shape[3] != value.shape[3]):
        raise attncheck.Declined("GGML_ASSERT: fattn: unsupported K-type, or two head dimensions")
    q, k, v = (t.swapaxes(1, 2) for t in (query, key, value))
    if sum(t.size for t in (q, k, v)) * 8 > len(MEMORY) // 2:
        raise attncheck.Declined("too large for this adapter")
    context = init(InitParams(len(MEMORY), ctypes.addressof(MEMORY), False))
    try:
        given = None
        if mask is not None or bias is not None:
            given = bias if mask is None else np.where(mask, np.float16(0), np.float16(-np.inf))
            # One mask for all heads, or one for each: rows and keys are written out.
            given = np.broadcast_to(given, given.shape[:2] + (q.shape[2], k.shape[2])).astype(np.float16)
            if mask_rows > 1:
                given = np.concatenate([given, np.zeros_like(given, shape=given.shape[:2] + (-q.shape[2] % mask_rows, k.shape[2]))], axis=2)
        node = flash_attn(context, tensor(context, q.astype(np.float32)), tensor(context, k), tensor(context, v),
                          None if given is None else tensor(context, given), scale, 0.0, softcap)
        if sink is not None:
            add_sinks(node, tensor(context, sink.reshape(1, 1, 1, -1)))
        graph = new_graph(context)
        expand(graph, node)
        if compute(context, graph, 1) != 0:
            raise RuntimeError("ggml_graph_compute failed")
        shape = query.shape[:3] + value.shape[3:]
        out = np.ctypeslib.as_array(ctypes.cast(data_of(node), ctypes.POINTER(F)), (int(np.prod(shape)),))
        return out.reshape(shape).astype(query.dtype)
    finally:
        free(context)
