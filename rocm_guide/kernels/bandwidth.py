# SPDX-License-Identifier: MIT
"""Four streams through memory: read, write, copy, triad. What they reach is the ceiling of every kernel that computes
little.

read sums x; write sets y = value; copy is y = x; triad is z = x + factor * y (two reads, one write, two FLOPs).
Source: J. McCalpin, "STREAM: Sustainable Memory Bandwidth", https://www.cs.virginia.edu/stream/.
Notebook 17 uses them as the ceiling.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

from rocm_guide.kernels.arguments import (
    KernelError,
    architecture,
    check_contiguous,
    check_dtype,
    check_same_device,
    check_shape,
    choose,
    unit_count,
)

if TYPE_CHECKING:
    import torch

__all__ = ["stream"]

#: Architecture -> elements per step of one program, warps, programs per compute unit. 16 bytes per lane and access.
CONFIGS: dict[str, dict[str, int]] = {
    "gfx942": {"BLOCK": 4096, "num_warps": 8, "programs": 8},
    "sm_90": {"BLOCK": 4096, "num_warps": 8, "programs": 8},
}


@triton.jit
def stream_read(x_ptr, sums_ptr, n, BLOCK: tl.constexpr):
    """Read n elements and keep one sum per program, so that the compiler cannot drop the loads."""
    total = tl.zeros((BLOCK,), tl.float32)
    lane = tl.arange(0, BLOCK)
    for start in range(tl.program_id(0).to(tl.int64) * BLOCK, n, tl.num_programs(0) * BLOCK):
        total += tl.load(x_ptr + start + lane, mask=lane < n - start, other=0.0).to(tl.float32)
    tl.store(sums_ptr + tl.program_id(0), tl.sum(total, 0))


@triton.jit
def stream_write(y_ptr, value, n, BLOCK: tl.constexpr):
    """Write ``value`` to n elements."""
    lane = tl.arange(0, BLOCK)
    filled = (tl.zeros((BLOCK,), tl.float32) + value).to(y_ptr.dtype.element_ty)
    for start in range(tl.program_id(0).to(tl.int64) * BLOCK, n, tl.num_programs(0) * BLOCK):
        tl.store(y_ptr + start + lane, filled, mask=lane < n - start)


@triton.jit
def stream_copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """``y = x``."""
    lane = tl.arange(0, BLOCK)
    for start in range(tl.program_id(0).to(tl.int64) * BLOCK, n, tl.num_programs(0) * BLOCK):
        x = tl.load(x_ptr + start + lane, mask=lane < n - start)
        tl.store(y_ptr + start + lane, x, mask=lane < n - start)


@triton.jit
def stream_triad(x_ptr, y_ptr, z_ptr, factor, n, BLOCK: tl.constexpr):
    """``z = x + factor * y``: two reads and a write for two FLOPs."""
    lane = tl.arange(0, BLOCK)
    for start in range(tl.program_id(0).to(tl.int64) * BLOCK, n, tl.num_programs(0) * BLOCK):
        mask = lane < n - start
        x = tl.load(x_ptr + start + lane, mask=mask).to(tl.float32)
        y = tl.load(y_ptr + start + lane, mask=mask).to(tl.float32)
        tl.store(z_ptr + start + lane, (x + factor * y).to(z_ptr.dtype.element_ty), mask=mask)


def stream(
    kind: str, out: torch.Tensor | None, *inputs: torch.Tensor, factor: float = 2.0, value: float = 1.0
) -> torch.Tensor:
    """Run one stream and return its output.

    Args:
        kind: ``"read"`` (x in; ``out`` is None, returns one fp32 sum per program), ``"write"`` (no input),
            ``"copy"`` (x in) or ``"triad"`` (x and y in).
        out: contiguous output of the inputs' shape and type; None allocates it (not for ``write``).
        inputs: contiguous fp16, bf16 or fp32 tensors of one shape.
        factor, value: of ``triad`` and ``write``.

    Raises:
        KernelError: another kind, number of inputs, shape, type or device.

    Example::

        y = stream("copy", None, x)
    """
    import torch

    wanted = {"read": 1, "write": 0, "copy": 1, "triad": 2}
    if kind not in wanted:
        raise KernelError(f"kind={kind!r}: give {', '.join(wanted)}")
    if len(inputs) != wanted[kind] or (kind == "write" and out is None) or (kind == "read" and out is not None):
        raise KernelError(f"{kind} with {len(inputs)} inputs{'' if out is None else ' and out'}: see its arguments")
    first = inputs[0] if inputs else out
    named = dict(zip("xyz", [*inputs, *([] if out is None else [out])], strict=False))
    assert first is not None  # "write" has out, the others have inputs
    check_same_device(**named)
    for name, t in named.items():
        check_dtype(name, t, (torch.float16, torch.bfloat16, torch.float32))
        check_shape(name, t, first.shape)
        check_contiguous(name, t)
    n, config = first.numel(), choose(CONFIGS, architecture(first))
    block, warps = config["BLOCK"], config["num_warps"]
    programs = max(1, min(unit_count(first) * config["programs"], triton.cdiv(n, block)))
    if kind == "read":
        out = torch.zeros(programs, dtype=torch.float32, device=first.device)
    elif out is None:
        out = torch.empty_like(first)
    if n == 0:
        return out
    kernel = {"read": stream_read, "write": stream_write, "copy": stream_copy, "triad": stream_triad}[kind]
    middle = {"write": (value,), "triad": (factor,)}.get(kind, ())
    tensors = (out,) if kind == "write" else (*inputs, out)
    kernel[(programs,)](*tensors, *middle, n, BLOCK=block, num_warps=warps)
    return out


def reference_stream(kind: str, *inputs: torch.Tensor, factor: float = 2.0, value: float = 1.0) -> torch.Tensor:
    """What each stream computes, in torch: the sum of x, x, x + factor * y, or the value.

    ``write`` takes a tensor for its shape only.
    """
    x = inputs[0]
    if kind == "read":
        return x.double().sum()
    if kind == "triad":
        return x.double() + factor * inputs[1].double()
    return x.double() if kind == "copy" else x.double() * 0 + value
