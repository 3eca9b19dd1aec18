# SPDX-License-Identifier: MIT
"""An MI300X that is not there, for tests of what the course does on one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from torch.utils.data import DataLoader

from tests.pretended.cuda import pretended_cuda
from tests.pretended.kernels import pretended_triton
from tests.pretended.tensors import pretended_tensors


@contextlib.contextmanager
def pretended_gpu(arch: str = "gfx942") -> Iterator[None]:
    """Inside the ``with`` block this process has one GPU of ``arch``, whose memory and arithmetic are the CPU's.

    ``torch.cuda`` answers as a ROCm build does. Tensors can be on ``cuda:0``, and raise what PyTorch raises where they
    meet others. Triton kernels are interpreted. ``torch.compile`` returns what it is given.

    What is not there: a clock of the GPU (events tell the CPU's time), other processes on that GPU (NCCL, children),
    graphs, compiled code, TunableOp. Data sets are loaded in this process: a worker would be a fork with the pretended
    tensors in it, and what it sends did not always arrive.
    """
    loader = mock.patch.object(DataLoader, "__init__", _without_workers)
    with pretended_cuda(arch), pretended_tensors(), pretended_triton(arch), loader:
        torch.compiler.set_stance("force_eager")
        try:
            yield
        finally:
            torch.compiler.set_stance("default")


_make_loader = DataLoader.__init__


def _without_workers(self: Any, *args: Any, **options: Any) -> None:
    """Make a DataLoader that reads in its own process."""
    options |= {"num_workers": 0, "prefetch_factor": None, "persistent_workers": False}
    _make_loader(self, *args, **options)
