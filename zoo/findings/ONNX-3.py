"""The reference evaluator of ONNX: Attention of opset 23 with grouped heads, hidden keys under a softcap, rows without keys, masks. No attncheck."""

import warnings

import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

warnings.simplefilter("ignore")
print(onnx.__version__)


def run(queries, heads, value, mask=None, **attributes):
    """Of zeros in Q and K: the output."""
    value = np.array(value, np.float32)
    given = {"Q": np.zeros((1, heads, queries, 1), np.float32), "K": np.zeros_like(value), "V": value}
    given |= {} if mask is None else {"M": np.array(mask)}
    node = helper.make_node("Attention", list(given), ["Y"], **attributes)
    inputs = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), None) for n, a in given.items()]
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("Y", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])
    try:
        return ReferenceEvaluator(model).run(None, given)[0].ravel().tolist()
    except Exception as error:
        return f"{type(error).__name__} {error}"[:70]


two = [[[[0.0], [1.0]]]]
print("4 query heads, 2 key heads, values 0 and 1, exact 0 0 1 1:", run(1, 4, [[[[0.0]], [[1.0]]]]))
print("causal, softcap 1, the second value is hidden from the first query, exact 0 0.5:", run(2, 1, two, is_causal=1, softcap=1.0))
print("a row without keys, exact 0:", run(1, 1, [[[[1.0]]]], [[[[False]]]]))
print("a mask of fp32 and four dimensions, exact 0.5:", run(1, 1, two, np.zeros((1, 1, 1, 2), np.float32)))
print("a mask of bool and one row, exact 0.5 0.5:", run(2, 1, two, np.ones((1, 1, 1, 2), bool)))
