# SPDX-License-Identifier: MIT
"""Triton on the pretended GPU: what is launched is interpreted, and refuses what the GPU's launcher refuses."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
import triton
import triton.compiler.code_generator  # keeps functions of the language: not while a launch has replaced them
import triton.language as tl
from torch.utils._python_dispatch import _disable_current_modes
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.language.extra import libdevice
from triton.runtime import driver, interpreter
from triton.runtime.errors import InterpreterError
from triton.runtime.jit import JITFunction, TensorWrapper
from triton.tools.tensor_descriptor import TensorDescriptor

from cdna.arch import Arch, find_arch
from cdna.interpreter.patches import exact_conversions, quick_interpreter
from cdna.run.launches import executed_on_gfx942
from tests.pretended.in_torch import IN_TORCH
from tests.pretended.marks import CPU, GPU, on_gpu


def _make_driver(row: Arch) -> Any:
    """What Triton asks of the GPU; nothing is compiled for it or loaded."""
    properties = {
        "max_shared_mem": row.lds_bytes,
        "max_num_regs": row.vgpr_file * row.wave_size * row.simds_per_cu,
        "multiprocessor_count": row.cus,
        "arch": row.name,
        "warpSize": row.wave_size,
        "max_threads_per_sm": row.max_waves_per_cu * row.wave_size,
        "cooperativeLaunch": 1,
    }

    class PretendedDriver(DriverBase):
        utils = SimpleNamespace(get_device_properties=lambda device: properties)

        @classmethod
        def is_active(cls) -> bool:
            return True

        def map_python_to_cpp_type(self, ty: str) -> str:
            raise NotImplementedError(f"{ty}: a kernel is interpreted here")

        def get_current_target(self) -> Any:
            return GPUTarget("hip", row.name, row.wave_size)

        def get_current_device(self) -> int:
            return 0

        def set_current_device(self, device: Any) -> None:
            """There is one device."""

        def get_current_stream(self, device: Any = None) -> int:
            return 0

        def get_device_capability(self, device: Any = None) -> tuple[int, int]:
            return row.capability

        def get_active_torch_device(self) -> Any:
            return GPU

        def get_device_interface(self) -> Any:
            return torch.cuda

        def get_benchmarker(self) -> Callable[..., Any]:
            return bench

        def get_empty_cache_for_benchmark(self) -> Any:
            return torch.empty(1)

        def clear_cache(self, cache: Any) -> None:
            """Nothing is kept."""

    return PretendedDriver()


def bench(call: Callable[[], Any], *_: Any, quantiles: Any = None, return_mode: str = "mean", **__: Any) -> Any:
    """Stands for ``do_bench``: one call, and its milliseconds on the CPU's clock."""
    began = time.perf_counter()
    call()
    took = 1e3 * (time.perf_counter() - began)
    if quantiles is not None:
        return [took] * len(quantiles)
    return [took] if return_mode == "all" else took


def check_pointers(names: list[str], given: dict[str, Any]) -> None:
    """Raise what Triton's launcher raises for a tensor that the GPU cannot reach; its place counts all parameters."""
    for place, name in enumerate(names):
        value = given.get(name)
        value = getattr(value, "base", value)  # a tensor with another type, or a descriptor
        if isinstance(value, torch.Tensor) and value.numel() and not on_gpu(value):
            raise ValueError(f"Pointer argument (at {place}) cannot be accessed from Triton (cpu tensor?)")


def _interpreted(kernel: JITFunction[Any]) -> Any:
    """The same kernel for the interpreter, made once."""
    found = kernel.__dict__.get("_pretended")
    if found is None:
        found = kernel.__dict__["_pretended"] = interpreter.InterpretedFunction(kernel.fn)
    return found


def _plain(value: Any) -> Any:
    """The same memory for the interpreter, which copies what is on a GPU."""
    if isinstance(value, torch.Tensor):
        found = value.detach()
        size = found.untyped_storage().nbytes()
        storage = torch._C._construct_storage_from_data_pointer(found.untyped_storage().data_ptr(), CPU, size)
        made = torch.empty(0, dtype=found.dtype)
        return made.set_(storage, found.storage_offset(), found.size(), found.stride())
    if isinstance(value, TensorWrapper):
        return TensorWrapper(_plain(value.base), value.dtype)
    if isinstance(value, TensorDescriptor):
        return dataclasses.replace(value, base=_plain(value.base))
    if isinstance(value, tuple):
        parts = map(_plain, value)
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


def _convert(real: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """What the interpreter makes of an argument: a float becomes a number of fp32, as Triton passes it."""

    def convert(value: Any) -> Any:
        if isinstance(value, float):
            return tl.tensor(interpreter.TensorHandle(np.array([value], dtype=np.float32), tl.float32), tl.float32)
        return real(value)

    return convert


def _rsqrt(x):  # type: ignore[no-untyped-def]
    import triton.language as tl

    return tl.math.rsqrt(x)


def _tanh(x):  # type: ignore[no-untyped-def]
    import triton.language as tl

    return 2 / (1 + tl.math.exp(-2 * x)) - 1


#: Functions of libdevice that libraries import by name; their bodies are empty until a compiler fills them in.
_BODIES = {libdevice.rsqrt: _rsqrt, libdevice.tanh: _tanh}


@contextlib.contextmanager
def pretended_triton(arch: str) -> Iterator[None]:
    """Inside the ``with`` block a launch on tensors of the pretended GPU is interpreted, in this process.

    Where a kernel has the GPU's own instructions in it, or is in Gluon, gfx942's machine code is executed instead.

    A dry run inside the block brings a driver of its own, and compiles what is launched as ever.
    """
    launch, call, replace = JITFunction.run, JITFunction.__call__, interpreter._patch_lang
    nothing = SimpleNamespace(restore=lambda: None)
    own = _make_driver(find_arch(arch))
    running: list[Any] = []

    def run(self: JITFunction[Any], *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        if driver._active is not own:
            return launch(self, *args, grid=grid, warmup=warmup, **kwargs)
        if warmup:
            raise NotImplementedError(f"{self.__name__}.warmup: kernels are interpreted on the pretended GPU")
        for hook in self.pre_run_hooks:
            hook(*args, **kwargs)
        named = {k: v for k, v in kwargs.items() if k in self.arg_names}
        given = inspect.signature(self.fn).bind(*args, **named)
        given.apply_defaults()
        check_pointers(self.arg_names, given.arguments)
        if callable(grid):
            grid = grid({**given.arguments, **kwargs})
        with _disable_current_modes():
            known = IN_TORCH.get(f"{self.fn.__module__}.{self.__name__}")
            if known and known({name: _plain(value) for name, value in given.arguments.items()}):
                return None
            values = [_plain(value) for value in args]
            plain = {name: _plain(value) for name, value in named.items()}
            if not self.is_gluon():  # the interpreter knows no layouts
                scope = replace(SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
                running.append(self)
                try:
                    _interpreted(self).run(*values, grid=tuple(grid), warmup=False, **plain)
                    return None
                except InterpreterError as e:
                    if "inline_asm" not in str(e):
                        raise
                finally:
                    running.pop()
                    scope.restore()
            with executed_on_gfx942(count=False):  # slower, and the one that knows the GPU's own instructions
                launch(self, *values, grid=tuple(grid), warmup=False, **{**kwargs, **plain})
            return None

    def inside(self: JITFunction[Any], *args: Any, **kwargs: Any) -> Any:
        if not running:
            return call(self, *args, **kwargs)
        return _interpreted(self).rewrite()(*args, **kwargs)

    with contextlib.ExitStack() as undo:
        undo.callback(driver.set_active, driver._active)
        driver.set_active(own)
        for owner, name, value in (
            (JITFunction, "run", run),
            (JITFunction, "__call__", inside),
            (interpreter, "_implicit_cvt", _convert(interpreter._implicit_cvt)),
            (triton.testing, "do_bench", bench),
            (triton.testing, "do_bench_cudagraph", bench),
        ):
            undo.enter_context(mock.patch.object(owner, name, value))
        for empty, body in _BODIES.items():
            undo.callback(setattr, empty, "__code__", empty.__code__)
            empty.__code__ = body.__code__
        undo.enter_context(quick_interpreter())
        # A launch replaces the language's functions once and puts them back; the interpreter leaves some replaced.
        undo.enter_context(mock.patch.object(interpreter, "_patch_lang", lambda function: nothing))
        undo.enter_context(exact_conversions())
        yield
