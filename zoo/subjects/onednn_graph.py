"""oneDNN on the CPU: scaled dot-product attention as its graph API describes it, through ctypes.

Declared from "Scaled Dot-Product Attention (SDPA)" of the graph API's documentation: MatMul of query [N, H, S, D] and key [N, H, T, D] with transpose_b, Multiply by a scale
of one element, Add of an attention mask [N, 1 or H, S, T], SoftMax over the last axis, MatMul by value; fp32 here. Each
shape is a graph that is compiled anew; the library chooses what it fuses. There is no window, softcap, sink, grouped head and log-sum-exp.
"""

import ctypes
import functools
import sys
import sysconfig
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
import attncheck
from pairs import has_empty_row

ZOO = {"title": "oneDNN graph, SDPA", "environments": ["onednn-2023.2"], "distribution": "onednn-cpu-gomp", "kernels": ["sdpa", "sdpa_any_row"],
       "properties": {"sdpa_any_row": ["agreement"]}, "source": "https://uxlfoundation.github.io/oneDNN/dev_guide_graph_sdpa.html"}
DNNL = ctypes.CDLL(str(Path(sysconfig.get_paths()["data"]) / "lib/libdnnl.so.3"))
P, SIZE, I64 = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64
CPU, IN_ORDER, FUSION, STRIDED, F32 = 1, 1, 1, 2, 3  # of the enumerations of dnnl_types.h and dnnl_graph_types.h
ADD, MATMUL, MULTIPLY, SOFTMAX, AXIS, TRANSPOSE_B = 2, 39, 46, 64, 0x30, 0x66


# exp=20: its exponential is vectorised, and nothing is promised of it.
PRECISION = "hidden=times_zero exp=20"
FEATURES = ("dtype=fp32 layout=bshd,bhsd,sbhd group=1 window_left=-1 window_right=-1 align=top_left softcap=0 kv_length=none mask=none "
            "bias=none,full,one_head sink=none outputs=out")


class Logical(ctypes.Structure):
    _fields_ = [("id", SIZE), ("ndims", ctypes.c_int), ("dims", I64 * 12), ("type", ctypes.c_int), ("property", ctypes.c_int),
                ("layout", ctypes.c_int), ("strides", I64 * 12)]


def call(name, *arguments):
    status = getattr(DNNL, "dnnl_" + name)(*arguments)
    if status != 0:
        raise RuntimeError(f"dnnl_{name} returned {status}")


def made(name, *arguments):
    handle = P()
    call(name, ctypes.byref(handle), *arguments)
    return handle


@functools.cache
def machine():
    engine = made("engine_create", CPU, SIZE(0))
    return engine, made("stream_create", engine, IN_ORDER)


@functools.lru_cache(maxsize=64)
def compiled(q, k, v, mask):
    """Steps of (compiled partition, its inputs, its outputs) for shapes, in the order of the library."""
    scores, out = q[:3] + k[2:3], q[:3] + v[3:]
    names = dict(query=q, key=k, value=v, scale=(1,), mask=mask or (1,), dots=scores, scaled=scores, masked=scores, probs=scores, out=out)
    tensors = {name: Logical() for name in names}
    for i, (name, shape) in enumerate(names.items()):
        call("graph_logical_tensor_init_with_dims", ctypes.byref(tensors[name]), SIZE(i), F32, len(shape), (I64 * 12)(*shape), STRIDED, 0)
    graph, count = made("graph_graph_create", CPU), SIZE()
    steps = [(MATMUL, ("query", "key"), "dots"), (MULTIPLY, ("dots", "scale"), "scaled")]
    steps += [(ADD, ("scaled", "mask"), "masked")] if mask else []
    steps += [(SOFTMAX, ("masked" if mask else "scaled",), "probs"), (MATMUL, ("probs", "value"), "out")]
    for number, (kind, inputs, output) in enumerate(steps):
        op = made("graph_op_create", SIZE(number), kind, f"op{number}".encode())
        if number == 0:
            call("graph_op_set_attr_bool", op, TRANSPOSE_B, (ctypes.c_uint8 * 1)(1), SIZE(1))
        if kind == SOFTMAX:
            call("graph_op_set_attr_s64", op, AXIS, (I64 * 1)(-1), SIZE(1))
        for name in inputs:
            call("graph_op_add_input", op, ctypes.byref(tensors[name]))
        call("graph_op_add_output", op, ctypes.byref(tensors[output]))
        call("graph_add_op", graph, op)
    call("graph_graph_finalize", graph)
    call("graph_graph_filter", graph, FUSION)
    call("graph_graph_get_partition_num", graph, ctypes.byref(count))
    parts, plan, by_number = (P * count.value)(), [], list(tensors.values())
    call("graph_graph_get_partitions", graph, count, parts)
    for part in map(P, parts):
        ports = []
        for side in ("input", "output"):
            call(f"graph_partition_get_{side}_ports_num", part, ctypes.byref(count))
            found = (Logical * count.value)()
            call(f"graph_partition_get_{side}_ports", part, count, found)
            ports.append([by_number[t.id] for t in found])
        step = made("graph_compiled_partition_create", part)
        lists = [x for side in ports for x in (SIZE(len(side)), (ctypes.POINTER(Logical) * len(side))(*map(ctypes.pointer, side)))]
        call("graph_partition_compile", part, step, *lists, machine()[0])
        plan.append((step, *ports))
    return plan, tensors


@attncheck.kernel("attention", precision=PRECISION, features=FEATURES)
def sdpa_any_row(query, key, value, bias, scale):
    if query.size == 0 or key.size == 0 or value.size == 0:
        raise attncheck.Declined("an empty tensor")
    given = dict(zip(("query", "key", "value"), (np.ascontiguousarray(t.swapaxes(1, 2)) for t in (query, key, value))))
    given |= {} if bias is None else {"mask": np.ascontiguousarray(bias, np.float32)}
    plan, tensors = compiled(*(given[n].shape if n in given else None for n in ("query", "key", "value", "mask")))
    given |= {"scale": np.full(1, scale, np.float32)}
    buffers = {t.id: given[n] if n in given else np.empty(list(t.dims)[:t.ndims], np.float32) for n, t in tensors.items()}
    for step, *sides in plan:
        handles = [[made("graph_tensor_create", ctypes.byref(t), machine()[0], P(buffers[t.id].ctypes.data)) for t in side] for side in sides]
        call("graph_compiled_partition_execute", step, machine()[1], *(x for side in handles for x in (SIZE(len(side)), (P * len(side))(*side))))
        call("stream_wait", machine()[1])
        for handle in sum(handles, []):
            call("graph_tensor_destroy", handle)
    return buffers[tensors["out"].id].swapaxes(1, 2)


@attncheck.kernel("attention", precision=PRECISION, features=FEATURES)
def sdpa(query, key, value, bias, scale):
    if has_empty_row(query, key, bias):
        raise attncheck.Declined("a row without keys")
    return sdpa_any_row(query, key, value, bias, scale)
