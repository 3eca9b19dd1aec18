# SPDX-License-Identifier: MIT
"""Answers of PyTorch about the GPU while a dry run lasts: the questions that Triton libraries ask before a launch.

A library asks ``torch.cuda.is_available()``, how many CUs there are, whether this is ROCm, and whether a tensor is on
the GPU. On a machine without one the answers would send it down its CPU path, and its Triton kernels would never be
launched. Used by :mod:`cdna.dry_run.driver`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

from cdna.arch import find_arch

__all__ = ["pretend_torch_answers", "pretend_torch_device"]

# A release of ROCm that knows all architectures in the table; libraries only compare it with a minimum.
ROCM_VERSION = "7.0.0"


class _Stream(SimpleNamespace):
    """Stands for the default stream: launches are recorded, so there is never anything to wait for."""

    def synchronize(self) -> None:
        """Do nothing: nothing runs, so nothing is awaited."""

    def wait_stream(self, stream: Any) -> None:
        """Do nothing: nothing runs, so nothing is awaited."""


def _answers(arch: str) -> dict[str, Any]:
    """Return ``torch.cuda`` names and what they answer for ``arch``."""
    row = find_arch(arch)
    name = f"AMD Instinct {row.gpu.split(' (')[0]}"
    properties = SimpleNamespace(
        name=name,
        gcnArchName=f"{row.name}:sramecc+:xnack-",
        major=row.capability[0],
        minor=row.capability[1],
        multi_processor_count=row.cus,
        total_memory=row.memory_bytes,
        warp_size=row.wave_size,
        max_threads_per_block=row.max_threads_per_workgroup,
        max_threads_per_multi_processor=row.max_waves_per_cu * row.wave_size,
        regs_per_multiprocessor=row.vgpr_file * row.wave_size * row.simds_per_cu,
        shared_memory_per_block=row.lds_bytes,
        shared_memory_per_multiprocessor=row.lds_bytes,
        L2_cache_size=4 << 20,
        is_integrated=0,
        is_multi_gpu_board=0,
    )
    stream = _Stream(cuda_stream=0, stream_id=0)
    nothing = contextlib.nullcontext
    return {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "device": lambda device=None: nothing(),
        "device_of": lambda tensor: nothing(),
        "stream": lambda stream=None: nothing(),
        "current_stream": lambda device=None: stream,
        "default_stream": lambda device=None: stream,
        "synchronize": lambda device=None: None,
        "get_device_name": lambda device=None: name,
        "get_device_capability": lambda device=None: row.capability,
        "get_device_properties": lambda device=None: properties,
        "mem_get_info": lambda device=None: (row.memory_bytes, row.memory_bytes),
        "get_arch_list": lambda: [row.name],
        "is_bf16_supported": lambda including_emulation=True: True,
        "is_current_stream_capturing": lambda: False,
        "empty_cache": lambda: None,
    }


def _function_mode(real: str) -> Any:
    """Make a torch function mode in which tensors on ``real`` say that they are on the GPU, and GPU allocations go
    there.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    tensor, gpu = torch.Tensor, torch.device("cuda", 0)
    looks = {id(tensor.device): gpu, id(tensor.is_cuda): True, id(tensor.is_cpu): False, id(tensor.is_meta): False}

    def redirect(value: Any) -> Any:
        is_gpu = (isinstance(value, torch.device) and value.type == "cuda") or (
            isinstance(value, str) and (value == "cuda" or value.startswith("cuda:"))
        )
        return torch.device(real) if is_gpu else value

    class GpuLook(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            kwargs = dict(kwargs or {})
            if func is type(gpu):
                return func(*args, **kwargs)
            owner = getattr(func, "__self__", None)
            asked = id(owner) in looks and func.__name__ == "__get__"
            if asked or func in (tensor.get_device, tensor.cuda, tensor.pin_memory):
                lives_there = tensor.device.__get__(args[0]).type == real
                if asked:
                    return looks[id(owner)] if lives_there else func(*args, **kwargs)
                if lives_there:
                    return 0 if func is tensor.get_device else args[0]
            if isinstance(kwargs.get("device"), int):
                kwargs["device"] = gpu
            kwargs = {k: redirect(v) for k, v in kwargs.items() if k != "pin_memory"}
            return func(*map(redirect, args), **kwargs)

    return GpuLook()


@contextlib.contextmanager
def pretend_torch_answers(arch: str) -> Iterator[None]:
    """Let ``torch.cuda`` and ``torch.version`` answer as a ROCm build on one GPU of ``arch`` would; undone on exit.

    The answers hold for the whole process. Tensors stay what they are; :func:`pretend_torch_device` dresses them too.

    >>> import torch
    >>> with pretend_torch_answers("gfx942"):
    ...     print(torch.version.hip, torch.cuda.get_device_properties(0).multi_processor_count)
    7.0.0 304
    """
    import torch

    with contextlib.ExitStack() as undo:
        for name, answer in _answers(arch).items():
            if hasattr(torch.cuda, name):
                undo.enter_context(mock.patch.object(torch.cuda, name, answer))
        undo.enter_context(mock.patch.object(torch.version, "hip", ROCM_VERSION))
        undo.enter_context(mock.patch.object(torch.version, "cuda", None))
        yield


@contextlib.contextmanager
def pretend_torch_device(arch: str, device: str = "cpu") -> Iterator[None]:
    """Let PyTorch answer as a ROCm build on one GPU of ``arch`` would; everything is put back on exit.

    Tensors on ``device`` (``"cpu"`` or ``"meta"``) say that they are on ``cuda:0``, and what is allocated on the GPU is
    allocated on ``device``. The answers hold for the whole process, the tensors' look for this thread.

    >>> import torch
    >>> with pretend_torch_device("gfx942"):
    ...     print(torch.cuda.get_device_name(), torch.zeros(2, device="cuda").device)
    AMD Instinct MI300X cuda:0
    >>> torch.zeros(2).device
    device(type='cpu')
    """
    import torch

    mode = _function_mode(device)
    engine = torch.autograd._engine_run_backward

    def run_backward(*args: Any, **kwargs: Any) -> Any:
        # PyTorch suspends the mode while it handles ``backward``, and Triton's backward kernels run inside that.
        with mode:
            return engine(*args, **kwargs)

    backward = mock.patch.object(torch.autograd, "_engine_run_backward", run_backward)
    with pretend_torch_answers(arch), backward, mode:
        yield
