"""The reference evaluator of ONNX: the calls of ONNX-3.py. No attncheck."""

import runpy
from pathlib import Path

runpy.run_path(str(Path(__file__).with_name("ONNX-3.py")))
