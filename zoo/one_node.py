"""One operator of ONNX as a model of one node, run by ONNX Runtime on the CPU without graph optimisations, by OpenVINO's front end of ONNX,
or by the reference evaluator of the package onnx.

The environment has one of the three. RELEASE is that of ONNX Runtime; of the others every form is asked.
"""

import functools

import numpy as np
from onnx import TensorProto, helper

try:
    import onnxruntime
    openvino = None
    RELEASE = tuple(int(n) for n in onnxruntime.__version__.split(".")[:2])
except ModuleNotFoundError:
    onnxruntime, RELEASE = None, (99, 0)
    try:
        import openvino
    except ModuleNotFoundError:
        from onnx.reference import ReferenceEvaluator
        openvino = None

import attncheck

ONNX_TYPES = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16, "bool": TensorProto.BOOL,
              "int64": TensorProto.INT64, "int32": TensorProto.INT32}
# Whether heads and channels are open, too, as batch and lengths always are. OpenVINO compiles for the numbers that are given.
OPEN_HEADS = openvino is None
SETTINGS = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": "1"}  # of OpenVINO


def extents(name, array):
    """The shape that the model declares: None is any."""
    if OPEN_HEADS or name in ("attn_mask", "attention_bias") or array.ndim < 3:
        return (None,) * array.ndim
    return (None, array.shape[1], None, array.shape[3]) if array.ndim == 4 else (None, None, array.shape[2])


@functools.lru_cache(maxsize=512)
def session(op, domain, opset, inputs, outputs, attributes):
    """In the order of the operator: inputs (name or "", type, shape), outputs (name, type, rank)."""
    declared = [helper.make_tensor_value_info(n, ONNX_TYPES[t], shape) for n, t, shape in inputs if n]
    node = helper.make_node(op, [n for n, *_ in inputs], [n for n, *_ in outputs], domain=domain, **dict(attributes))
    graph = helper.make_graph([node], "g", declared,
                              [helper.make_tensor_value_info(n, ONNX_TYPES[t], [None] * r) for n, t, r in outputs if n])
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()
    if onnxruntime is None and openvino is None:
        return ReferenceEvaluator(model)
    if onnxruntime is None:
        core = openvino.Core()
        return core.compile_model(core.read_model(model), "CPU", SETTINGS)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def run(op, domain, opset, given, outputs, **attributes):
    """`given`: name -> array or None, in the order of the operator."""
    inputs = [("", "", ()) if a is None else (n, a.dtype.name, extents(n, a)) for n, a in given.items()]
    while not inputs[-1][0]:
        inputs.pop()
    feeds = {n: np.ascontiguousarray(a) for n, a in given.items() if a is not None}
    if any(a.size == 0 for n, a in feeds.items() if not n.startswith("past")):
        raise attncheck.Declined("an empty tensor")
    try:
        model = session(op, domain, opset, tuple(inputs), tuple(outputs), tuple(attributes.items()))
    except Exception as error:
        # Said before the first run, with the reason: a refusal, not a wrong result.
        if any(text in str(error) for text in ("is not a registered function/op", "scale must be greater than 0", "is under development",
                                               "OpConversionFailure")):
            raise attncheck.Declined(str(error)) from error
        raise
    return list(model(list(feeds.values())).values()) if openvino else model.run(None, feeds)
