"""Keras over TensorFlow and over PyTorch on the CPU: two query heads on one key head. No attncheck."""

import importlib.util
import os

os.environ["KERAS_BACKEND"] = "torch" if importlib.util.find_spec("torch") else "tensorflow"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras  # noqa: E402
import numpy as np  # noqa: E402

print("keras", keras.__version__, "over", keras.backend.backend())
query, key = np.zeros((1, 1, 2, 1), np.float32), np.ones((1, 1, 1, 1), np.float32)
bias = np.zeros((1, 2, 1, 1), np.float32)
for name, given in (("plain", {}), ("is_causal", {"is_causal": True}), ("bias", {"bias": bias}), ("bias and is_causal", {"bias": bias, "is_causal": True})):
    for heads in (1, 2):
        keys = np.repeat(key, heads, axis=2)
        try:
            out = keras.ops.convert_to_numpy(keras.ops.dot_product_attention(query, keys, keys, **given)).ravel().tolist()
        except Exception as error:
            out = type(error).__name__ + ": " + str(error)[-110:].strip()
        print(f"{name}, key heads {heads}: {out}")
