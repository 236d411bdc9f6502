"""ggml on the CPU: flash_attn_ext where exp(-inf - (-inf)) is formed. No attncheck; expected: 0, 0 and 1. Needs pywhispercpp."""

import ctypes
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
        ("ggml_flash_attn_ext_add_sinks", None, c_void_p, c_void_p), ("ggml_build_forward_expand", None, c_void_p, c_void_p)):
    getattr(base, name).restype, getattr(base, name).argtypes = result, arguments
cpu.ggml_graph_compute_with_ctx.argtypes = [c_void_p, c_void_p, c_int]
context = base.ggml_init(Params(1 << 24, None, False))


def tensor(kind, data, rows=1):  # kind 0: fp32, 1: fp16; one column
    made = base.ggml_new_tensor_4d(context, kind, 1, rows, 1, 1)
    ctypes.memmove(base.ggml_get_data(made), data, len(data))
    return made


def result(node):
    graph = base.ggml_new_graph(context)
    base.ggml_build_forward_expand(graph, node)
    cpu.ggml_graph_compute_with_ctx(context, graph, 1)
    return ctypes.cast(base.ggml_get_data(node), ctypes.POINTER(c_float))[0]


one, infinity, zero = b"\x00\x3c", b"\x00\x7c", bytes(2)
for sink in (0.0, float("-inf")):  # a wholly masked row
    node = base.ggml_flash_attn_ext(context, tensor(0, bytes(c_float(1))), tensor(1, one), tensor(1, one), tensor(1, b"\x00\xfc"), 1, 0, 0)
    base.ggml_flash_attn_ext_add_sinks(node, tensor(0, bytes(c_float(sink))))
    print("masked row, sink", sink, "result", result(node))
# Scores -inf and 0: all weight is on the second key.
keys, values = tensor(1, infinity + zero, 2), tensor(1, one + one, 2)
print("scores -inf, 0: result", result(base.ggml_flash_attn_ext(context, tensor(0, bytes(c_float(-1))), keys, values, None, 1, 0, 0)))
