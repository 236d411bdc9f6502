"""The reference evaluator of ONNX: the calls of ONNX-1.py, whose mask of bool with two rows is the case of ONNX-2. No attncheck."""

import runpy
from pathlib import Path

runpy.run_path(str(Path(__file__).with_name("ONNX-1.py")))
