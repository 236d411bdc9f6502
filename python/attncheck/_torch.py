"""Tensors of torch: views of the suite's memory on the CPU, copies on a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from attncheck._arguments import ML_DTYPES
from attncheck._calls import Bridge, check_output
from attncheck._errors import CandidateError, OutputError
from attncheck._kernels import Device

# Types that NumPy does not have travel as integers of the same width.
_CARRIER = {"bfloat16": np.uint16, "float8_e5m2": np.uint8, "float8_e4m3fn": np.uint8}


class TorchDevice:
    """A device of torch itself."""

    def __init__(self, name: str) -> None:
        """Raises CandidateError for a name that torch does not know or a device that is not there."""
        try:
            self._device = torch.device(name)
            torch.empty(1, device=self._device)
        except (RuntimeError, AssertionError) as error:
            text = str(error).splitlines()[0]
            raise CandidateError(f"device is {name!r}: {text}") from error

    def to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self._device)

    def to_host(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.cpu()

    def synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


class TorchBridge(Bridge):
    """Gives tensors and takes tensors; with a device they are copied there and back."""

    def __init__(self, device: str | Device) -> None:
        self._device: Device | None = None
        if device != "cpu":
            self._device = TorchDevice(device) if isinstance(device, str) else device

    def give(self, array: np.ndarray, output: bool) -> torch.Tensor:
        tensor = _tensor_of(array)
        return self._device.to_device(tensor) if self._device else tensor

    def take(self, name: str, value: Any, target: np.ndarray) -> None:
        if not isinstance(value, torch.Tensor):
            raise OutputError(name, f"{name} is of type {type(value).__name__}, expected torch.Tensor")
        check_output(name, tuple(value.shape), str(value.dtype).removeprefix("torch."), target)
        if self._device:
            value = self._device.to_host(value)
        if value.device.type != "cpu":
            raise OutputError(name, f"{name} is on {value.device}, expected cpu; see device= of the mark")
        _tensor_of(target).copy_(value.detach())

    def take_filled(self, value: torch.Tensor, target: np.ndarray) -> None:
        if self._device:
            _tensor_of(target).copy_(self._device.to_host(value).detach())

    def wait(self) -> None:
        if self._device:
            self._device.synchronize()


def _tensor_of(array: np.ndarray) -> torch.Tensor:
    """A tensor of the same memory; of a copy where torch has no such view."""
    name = array.dtype.name
    carried = array.view(_CARRIER[name]) if name in ML_DTYPES else array
    if any(stride < 0 for stride in carried.strides):
        carried = carried.copy()  # torch has no negative strides; only inputs have them
    if not carried.flags.writeable:
        # torch does not know read-only memory. A kernel that writes there is found by the suite.
        carried = np.asarray(_Writable(carried))
    tensor = torch.from_numpy(carried)
    return tensor.view(getattr(torch, name)) if name in ML_DTYPES else tensor


class _Writable:
    """The memory of a read-only array without its flag."""

    def __init__(self, array: np.ndarray) -> None:
        interface = dict(array.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.__array_interface__ = interface
        self._keeps_alive = array
