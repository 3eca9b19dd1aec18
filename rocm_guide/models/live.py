# SPDX-License-Identifier: MIT
"""The bytes alive at a moment, tensor by tensor, on any device: what the memory formulae are compared with."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

__all__ = ["LiveBytes"]


class LiveBytes(TorchDispatchMode):
    """A counter of the bytes of every storage that an operation makes, until it is let go.

    A context manager. It sees what torch's operations return, so tensors that were there before are told to it with
    :meth:`watch`, and what an operation needs for itself is not counted.

    Attributes:
        now, peak: bytes alive at this moment, and most of them so far.

    >>> with LiveBytes() as live:
    ...     x = torch.zeros(1000)  # 4 bytes each
    ...     x = x + 1
    >>> live.now, live.peak
    (4000, 8000)
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self.seen: dict[int, int] = {}

    def watch(self, tensor: torch.Tensor) -> None:
        """Count a tensor that was there before."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self.seen:
            return
        self.seen[key] = storage.nbytes()
        self.now += storage.nbytes()
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._free, key)

    def _free(self, key: int) -> None:
        self.now -= self.seen.pop(key, 0)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self.watch(leaf)
        return out
