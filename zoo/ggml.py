"""ggml_flash_attn_ext on the CPU through ctypes, from the libraries that pywhispercpp ships."""

import ctypes
import sysconfig
from pathlib import Path

import numpy as np

import attncheck

F32, F16, Q4_0, Q8_0 = 0, 1, 2, 8
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


def blocks(array, kind):
    """The bytes of blocks of 32 whole numbers under the scale 1, from which ggml reads back the same numbers; Declined for others.

    q8_0 is {half d; int8 q[32]} of d q; q4_0 is {half d; 16 bytes} of d (q - 8), the second half of the block in the high bits.
    """
    array = np.asarray(array, np.float32)
    whole = np.nan_to_num(array).round().astype(np.int64)
    low, high = (-8, 7) if kind == Q4_0 else (-127, 127)
    if array.shape[-1] % 32 or not (whole == array).all() or (whole < low).any() or (whole > high).any():
        raise attncheck.Declined(f"other than blocks of 32 whole numbers from {low} to {high}")
    whole = whole.reshape(-1, 32)
    numbers = whole.astype(np.int8).view(np.uint8) if kind == Q8_0 else (whole[:, :16] + 8 | whole[:, 16:] + 8 << 4).astype(np.uint8)
    one = np.broadcast_to(np.ones(1, np.float16).view(np.uint8), (len(whole), 2))
    return np.concatenate([one, numbers], axis=1).tobytes()


def tensor(context, array, kind=None):
    """A tensor of ggml with the values of [n3, n2, n1, n0]; its extents are listed the other way round."""
    array = np.ascontiguousarray(array)
    kind = kind or (F16 if array.dtype == np.float16 else F32)
    given = blocks(array, kind) if kind in (Q4_0, Q8_0) else array.tobytes()
    made = new_tensor(context, kind, *array.shape[::-1])
    ctypes.memmove(data_of(made), given, len(given))
    return made


def attend(query, key, value, mask, sink, scale, softcap, max_bias=0.0, key_type=None, value_type=None):
    """out of [B,S,H,D], and a mask of fp16 or None that is written out for queries and keys."""
    if query.size == 0 or key.size == 0 or value.size == 0:
        raise attncheck.Declined("an empty tensor")
    if query.dtype not in (np.float16, np.float32):
        raise attncheck.Declined("dtype")
    if add_sinks is None and (sink is not None or mask is not None and mask.shape[:2] != (1, 1)):
        raise attncheck.Declined("sinks, or a mask for each head")
    if add_sinks is None and (key.dtype != np.float16 or query.shape[3] != value.shape[3]):
        raise attncheck.Declined("GGML_ASSERT: fattn: unsupported K-type, or two head dimensions")
    q, k, v = (t.swapaxes(1, 2) for t in (query, key, value))
    if sum(t.size for t in (q, k, v)) * 8 > len(MEMORY) // 2:
        raise attncheck.Declined("too large for this adapter")
    if mask is not None and mask_rows > 1:
        mask = np.concatenate([mask, np.zeros_like(mask, shape=mask.shape[:2] + (-q.shape[2] % mask_rows, k.shape[2]))], axis=2)
    context = init(InitParams(len(MEMORY), ctypes.addressof(MEMORY), False))
    try:
        node = flash_attn(context, tensor(context, q.astype(np.float32)), tensor(context, k, key_type), tensor(context, v, value_type),
                          None if mask is None else tensor(context, mask), scale, max_bias, softcap)
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


def mask_of(query, key, bias, mask):
    """The mask of fp16 that is added to the logits, written out for rows and keys, for all heads or for each."""
    if bias is not None and (mask is not None or bias.dtype != np.float16):
        raise attncheck.Declined("one mask, of fp16")
    if mask is None and bias is None:
        return None
    given = bias if mask is None else np.where(mask, np.float16(0), np.float16(-np.inf))
    return np.broadcast_to(given, given.shape[:2] + (query.shape[1], key.shape[1])).astype(np.float16)
