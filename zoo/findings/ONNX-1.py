"""The reference evaluator of ONNX: Attention of opset 23 with is_causal and a mask that hides nothing, of one row and of two. No attncheck."""

import warnings

import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

warnings.simplefilter("ignore")
print(onnx.__version__)
zeros, value = np.zeros((1, 1, 2, 2), np.float32), np.eye(2, dtype=np.float32)[None, None]
for kind, full in ((TensorProto.BOOL, np.ones), (TensorProto.FLOAT, np.zeros)):
    for rows in (1, 2):
        node = helper.make_node("Attention", ["Q", "K", "V", "M"], ["Y"], is_causal=1)
        inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "QKV"] + [helper.make_tensor_value_info("M", kind, None)]
        graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("Y", TensorProto.FLOAT, None)])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])
        mask = full((1, 1, rows, 2), bool if kind == TensorProto.BOOL else np.float32)
        try:
            out = ReferenceEvaluator(model).run(None, {"Q": zeros, "K": zeros, "V": value, "M": mask})[0][0, 0].tolist()
        except Exception as error:
            out = f"{type(error).__name__} {error}"[:90]
        print(f"mask of {'bool' if kind == TensorProto.BOOL else 'fp32'}, {rows} row(s): weights {out}, exact [[1.0, 0.0], [0.5, 0.5]]")
