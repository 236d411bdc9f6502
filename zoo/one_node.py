"""One operator of ONNX as a model of one node, run by ONNX Runtime on the CPU without graph optimisations."""

import functools

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

import attncheck

ONNX_TYPES = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16, "bool": TensorProto.BOOL,
              "int64": TensorProto.INT64, "int32": TensorProto.INT32}


@functools.lru_cache(maxsize=512)
def session(op, domain, opset, inputs, outputs, attributes):
    """inputs and outputs: (name or "", type, rank) in the order of the operator."""
    declared = [helper.make_tensor_value_info(n, ONNX_TYPES[t], [None] * r) for n, t, r in inputs if n]
    node = helper.make_node(op, [n for n, *_ in inputs], [n for n, *_ in outputs], domain=domain, **dict(attributes))
    graph = helper.make_graph([node], "g", declared,
                              [helper.make_tensor_value_info(n, ONNX_TYPES[t], [None] * r) for n, t, r in outputs if n])
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run(op, domain, opset, given, outputs, **attributes):
    """`given`: name -> array or None, in the order of the operator."""
    inputs = [(n if a is not None else "", a.dtype.name if a is not None else "", a.ndim if a is not None else 0)
              for n, a in given.items()]
    while not inputs[-1][0]:
        inputs.pop()
    feeds = {n: np.ascontiguousarray(a) for n, a in given.items() if a is not None}
    if any(a.size == 0 for n, a in feeds.items() if not n.startswith("past")):
        raise attncheck.Declined("an empty tensor")
    try:
        model = session(op, domain, opset, tuple(inputs), tuple(outputs), tuple(attributes.items()))
    except Exception as error:
        # Said before the first run, with the reason: a refusal, not a wrong result.
        if any(text in str(error) for text in ("is not a registered function/op", "scale must be greater than 0", "is under development")):
            raise attncheck.Declined(str(error)) from error
        raise
    return model.run(None, feeds)
