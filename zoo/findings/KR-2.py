"""Keras over TensorFlow and over PyTorch on the CPU: a row whose keys are all masked. No attncheck; the operator `attention` gives 0."""

import importlib.util
import os

os.environ["KERAS_BACKEND"] = "torch" if importlib.util.find_spec("torch") else "tensorflow"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras  # noqa: E402
import numpy as np  # noqa: E402

query, key, value = np.zeros((1, 1, 1, 1), np.float32), np.zeros((1, 2, 1, 1), np.float32), np.array([1, 0], np.float32).reshape(1, 2, 1, 1)
out = keras.ops.dot_product_attention(query, key, value, mask=np.zeros((1, 1, 1, 2), bool))
print("keras", keras.__version__, "over", keras.backend.backend(), "values 1 and 0, both hidden:", keras.ops.convert_to_numpy(out).ravel())
