"""ggml on the CPU: flash_attn_ext with a softcap where the last tile of keys is not full. No attncheck; expected: 1 everywhere.

Scores are 0 and values are 1. Needs pywhispercpp.
"""

import ctypes
import struct
import sysconfig
from ctypes import c_bool, c_float, c_int, c_int64, c_size_t, c_void_p


class Params(ctypes.Structure):
    _fields_ = [("mem_size", c_size_t), ("mem_buffer", c_void_p), ("no_alloc", c_bool)]


site = sysconfig.get_paths()["purelib"]
base, cpu = (ctypes.CDLL(f"{site}/libggml-{n}.so", mode=ctypes.RTLD_GLOBAL) for n in ("base", "cpu"))
for name, result, *arguments in (
        ("ggml_init", c_void_p, Params), ("ggml_get_data", c_void_p, c_void_p),
        ("ggml_new_tensor_4d", c_void_p, c_void_p, c_int, c_int64, c_int64, c_int64, c_int64),
        ("ggml_flash_attn_ext", c_void_p, *[c_void_p] * 5, c_float, c_float, c_float), ("ggml_new_graph", c_void_p, c_void_p),
        ("ggml_build_forward_expand", None, c_void_p, c_void_p)):
    getattr(base, name).restype, getattr(base, name).argtypes = result, arguments
cpu.ggml_graph_compute_with_ctx.argtypes = [c_void_p, c_void_p, c_int]
context = base.ggml_init(Params(1 << 26, None, False))


def tensor(rows, value):  # of fp32, 8 columns
    made = base.ggml_new_tensor_4d(context, 0, 8, rows, 1, 1)
    ctypes.memmove(base.ggml_get_data(made), struct.pack("f", value) * 8 * rows, 32 * rows)
    return made


for queries, keys, softcap in ((64, 1, 1), (64, 1, 0), (63, 1, 1), (64, 63, 1), (64, 64, 1), (64, 65, 1)):
    node = base.ggml_flash_attn_ext(context, tensor(queries, 0), tensor(keys, 0), tensor(keys, 1), None, 1, 0, softcap)
    graph = base.ggml_new_graph(context)
    base.ggml_build_forward_expand(graph, node)
    cpu.ggml_graph_compute_with_ctx(context, graph, 1)
    print(f"{queries} queries, {keys} keys, softcap {softcap}:", ctypes.cast(base.ggml_get_data(node), ctypes.POINTER(c_float))[0])
