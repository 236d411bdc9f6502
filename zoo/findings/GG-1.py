"""ggml on the CPU: flash_attn_ext, a wholly masked row with a sink of -inf. No attncheck; expected: 0. Needs pywhispercpp."""

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


def tensor(kind, data):  # kind 0: fp32, 1: fp16; one element
    made = base.ggml_new_tensor_4d(context, kind, 1, 1, 1, 1)
    ctypes.memmove(base.ggml_get_data(made), data, len(data))
    return made


half, single = b"\x00\x3c", bytes(c_float(1))  # 1
for sink in (0.0, float("-inf")):
    node = base.ggml_flash_attn_ext(context, tensor(0, single), tensor(1, half), tensor(1, half), tensor(1, b"\x00\xfc"), 1, 0, 0)
    base.ggml_flash_attn_ext_add_sinks(node, tensor(0, bytes(c_float(sink))))
    graph = base.ggml_new_graph(context)
    base.ggml_build_forward_expand(graph, node)
    cpu.ggml_graph_compute_with_ctx(context, graph, 1)
    print("sink", sink, "result", ctypes.cast(base.ggml_get_data(node), ctypes.POINTER(c_float))[0])
