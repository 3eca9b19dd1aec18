# SPDX-License-Identifier: MIT
"""Run the HIP kernels of this folder on the CPU, thread by thread, to check what they compute.

The matrix, conversion and lane-exchange instructions are replaced by models of their arithmetic (``cpu.h``); everything
else is the source that an MI300X would run.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from cdna.hip.cpu_library import open_cpu
from cdna.hip.toolchain import HipError

if TYPE_CHECKING:
    import torch

__all__ = ["cpu_rmsnorm_fp8", "cpu_skinny_gemm", "cpu_swiglu_fp8", "load_counts"]

_TYPES = ("float16", "bfloat16")


@dataclass(frozen=True)
class LoadCounts:
    """Loads from global memory: instructions of waves, bytes that lanes asked for, 128-byte lines touched by each."""

    instructions: int
    bytes: int
    lines: int

    @property
    def used(self) -> float:
        """The share of the touched lines that was asked for: 1 when every instruction is coalesced."""
        return self.bytes / (128 * self.lines) if self.lines else 1.0


@lru_cache(maxsize=16)
def _library(name: str | Path) -> ctypes.CDLL:
    library = open_cpu(name)
    library.guide_failure.restype = ctypes.c_char_p
    return library


def load_counts(name: str | Path) -> LoadCounts:
    """Return the loads of the kernels of source ``name`` since the last call."""
    out = (ctypes.c_uint64 * 3)()
    _library(name).guide_counts(out)
    return LoadCounts(*out)


def _type(tensor: torch.Tensor, what: str) -> int:
    kind = str(tensor.dtype).removeprefix("torch.")
    if kind not in _TYPES or tensor.device.type != "cpu" or not tensor.is_contiguous():
        raise HipError(f"{what} is {kind} on {tensor.device}: give a contiguous fp16 or bf16 tensor on the CPU")
    return _TYPES.index(kind)


def _on_a_line(tensor: torch.Tensor) -> torch.Tensor:
    """Return the same numbers at an address that starts a 128-byte cache line, as on a GPU, so that lines can be
    counted.
    """
    import torch

    room = torch.empty(tensor.numel() * tensor.element_size() + 128, dtype=torch.uint8)
    start = -room.data_ptr() % 128
    flat = room[start : start + tensor.numel() * tensor.element_size()]
    return flat.copy_(tensor.reshape(-1).view(torch.uint8)).view(tensor.dtype).reshape(tensor.shape)


def _call(source: str | Path, function: str, seed: int, *arguments: torch.Tensor | float | None) -> None:
    import torch

    library = _library(source)
    library.guide_seed(ctypes.c_uint32(seed))
    packed: list[object] = []
    for a in arguments:
        if isinstance(a, torch.Tensor) or a is None:
            packed.append(ctypes.c_void_p(None if a is None else a.data_ptr()))
        else:
            packed.append(ctypes.c_float(a) if isinstance(a, float) else ctypes.c_int(a))
    status = getattr(library, function)(*packed, None)
    if status:
        reason = library.guide_failure().decode() if status == 1 else "sizes that the kernel does not take"
        raise HipError(f"{function}: {reason or 'failed'}")


def cpu_rmsnorm_fp8(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    scale: float | None = None,
    *,
    eps: float = 1e-6,
    rung: int | None = None,
    seed: int = 0,
    source: Path | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Run ``rmsnorm_fp8.hip``, or a rung of ``ladder.hip``, on the CPU: (q in e4m3fnuz, updated residual, scales).

    Args:
        x, residual: (rows, columns), fp16 or bf16; columns a multiple of 8, at most 32,768.
        weight: (columns,), the same type.
        scale: for the whole tensor, or None for one for each row.
        rung: 1 to 6: that rung of the ladder (fp16, a scale, 8,192 or 16,384 columns).
        seed: 0 runs the waves in turn; another number in an order of its own.
        source: a file instead of ours, for example a copy with a change to try.

    Raises:
        HipError: no compiler, types or sizes that the kernel does not take, or a deadlock.
    """
    import torch

    kind = _type(x, "x")
    if _type(residual, "residual") != kind or _type(weight, "weight") != kind or residual.shape != x.shape:
        raise HipError("residual and weight must have the type of x, and residual its shape")
    if weight.shape != x.shape[1:]:
        raise HipError(f"weight has shape {tuple(weight.shape)}: give ({x.shape[-1]},)")
    rows, columns = x.shape
    x, residual, weight = _on_a_line(x), _on_a_line(residual), _on_a_line(weight)
    updated, out = _on_a_line(torch.full_like(x, float("nan"))), torch.full(x.shape, 0x80, dtype=torch.uint8)
    scales = torch.full((rows, 1), float("nan")) if scale is None else None
    if rung is None:
        given = (kind, x, residual, weight, updated, out, scales, rows, columns, float(eps), float(scale or 1.0))
        _call(source or "rmsnorm_fp8", "guide_rmsnorm_fp8", seed, *given)
    else:
        if kind or scale is None:
            raise HipError("the ladder is for fp16 with a scale")
        arguments = (rung, x, residual, weight, updated, out, rows, columns, float(eps), float(scale))
        _call(source or "ladder", "guide_ladder", seed, *arguments)
    return out.view(torch.float8_e4m3fnuz), updated, scales


def cpu_swiglu_fp8(
    x: torch.Tensor, scale: float | None = None, *, rung: int | None = None, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Run ``swiglu_fp8.hip``, or a rung of ``ladder.hip``, on the CPU: (q in e4m3fnuz, scales).

    Args:
        x: (rows, 2 * columns), fp16 or bf16; columns a multiple of 8.
        scale: for the whole tensor, or None for one for each row (then at most 32,768 columns).
        rung: 7 to 9: that rung of the ladder (fp16, a scale).
        seed: see :func:`cpu_rmsnorm_fp8`.

    Raises:
        HipError: see :func:`cpu_rmsnorm_fp8`.
    """
    import torch

    rows, columns = x.shape[0], x.shape[1] // 2
    out = torch.full((rows, columns), 0x80, dtype=torch.uint8)
    scales = torch.full((rows, 1), float("nan")) if scale is None else None
    kind, x = _type(x, "x"), _on_a_line(x)
    if rung is None:
        _call("swiglu_fp8", "guide_swiglu_fp8", seed, kind, x, out, scales, rows, columns, float(scale or 1.0))
    elif kind or scale is None:
        raise HipError("the ladder is for fp16 with a scale")
    else:
        _call("ladder", "guide_swiglu_ladder", seed, rung, x, out, rows, columns, float(scale))
    return out.view(torch.float8_e4m3fnuz), scales


def cpu_skinny_gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    scale: float = 1.0,
    *,
    splits: int = 1,
    dense: bool = False,
    seed: int = 0,
    source: Path | None = None,
) -> torch.Tensor:
    """Run ``skinny_gemm.hip`` on the CPU: ``scale * a @ b.T`` in fp16.

    Args:
        a: (rows, depth), float8_e4m3fnuz, 1 to 16 rows; up to 8 go through the sparse instruction.
        b: (columns, depth), float8_e4m3fnuz; columns a multiple of 32, depth of 256 times ``splits``.
        dense: use the dense instruction for 8 rows or fewer too.
        seed, source: see :func:`cpu_rmsnorm_fp8`; with producers and consumers, other orders are worth trying.

    Raises:
        HipError: see :func:`cpu_rmsnorm_fp8`.
    """
    import torch

    if a.dtype != torch.float8_e4m3fnuz or b.dtype != torch.float8_e4m3fnuz or a.shape[1] != b.shape[1]:
        raise HipError("a and b must be float8_e4m3fnuz and share their depth")
    rows, depth = a.shape
    columns = b.shape[0]
    c = torch.full((rows, columns), float("nan"), dtype=torch.float16)
    partial = torch.full((splits, rows, columns), float("nan"))
    tickets = torch.zeros(max(columns // 32, 1), dtype=torch.int32)
    arguments = (0, int(dense), a, b, c, partial, tickets, rows, columns, depth, splits, float(scale))
    _call(source or "skinny_gemm", "guide_skinny_gemm", seed, *arguments)
    return c
