# SPDX-License-Identifier: MIT
"""Whose memory a tensor's storage is: a mark on storages, and PyTorch's memory statistics from them.

A mark on the storage, and not on the tensor, is shared by all views, by ``.data`` and by what a checkpoint is read
into.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
BASE = torch._C.TensorBase
#: PyTorch's caching allocator hands out multiples of this many bytes.
_GRAIN = 512


class Ledger:
    """Bytes of the pretended GPU that storages hold, and the most that they held; PyTorch's memory statistics."""

    def __init__(self) -> None:
        self.held = self.peak = self.allocations = 0

    def take(self, size: int) -> None:
        self.held += size
        self.peak = max(self.peak, self.held)
        self.allocations += size > 0


ledger = Ledger()


class Block:
    """The mark of a storage: its memory is the GPU's. It is given back when the storage dies, and the mark with it."""

    def __init__(self, size: int) -> None:
        self.size = -(-size // _GRAIN) * _GRAIN
        ledger.take(self.size)

    def __del__(self) -> None:
        ledger.take(-self.size)


def storage_of(tensor: torch.Tensor) -> Any:
    """The storage of a tensor, of the one inside where ``torch.func`` wraps it; None where it has none."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None  # sparse, or a wrapper subclass


def on_gpu(tensor: torch.Tensor) -> bool:
    """Whether a tensor is on the pretended GPU."""
    return hasattr(storage_of(tensor), "_pretended_block")


def put_on_gpu(tensor: torch.Tensor) -> None:
    """Let the memory of a tensor, and of all its views, be the GPU's."""
    storage = storage_of(tensor)
    if storage is not None and not hasattr(storage, "_pretended_block"):
        storage._pretended_block = Block(storage.nbytes())


def real_device(tensor: torch.Tensor) -> torch.device:
    """Where PyTorch has the memory of a tensor; a subclass with functions of its own is not asked."""
    with torch._C.DisableTorchFunctionSubclass():
        return BASE.device.__get__(tensor)


def device_of(tensor: torch.Tensor) -> torch.device:
    """The device that a tensor says it is on."""
    return GPU if on_gpu(tensor) else real_device(tensor)


def wanted_device(device: Any) -> torch.device:
    """``"cuda"``, a number or a device, as a device."""
    if isinstance(device, int):
        return torch.device("cuda", device)
    return device if isinstance(device, torch.device) else torch.device(device)


def check_exists(device: torch.device) -> None:
    if device.type == "cuda" and device.index not in (None, 0):
        raise torch.AcceleratorError("HIP error: invalid device ordinal")


#: Generators of the GPU by their address: an operation sees another Python object of the same generator.
gpu_generators: weakref.WeakValueDictionary[int, torch.Generator] = weakref.WeakValueDictionary()
