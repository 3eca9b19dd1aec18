# SPDX-License-Identifier: MIT
"""Four streams through memory: read, write, copy, triad. What they reach is the ceiling of every kernel that computes
little.

read sums x; write sets y = value; copy is y = x; triad is z = x + factor * y (two reads, one write, two FLOPs).
Source: J. McCalpin, "STREAM: Sustainable Memory Bandwidth", https://www.cs.virginia.edu/stream/.
Notebook 30 uses them as the ceiling. The file needs torch and triton and nothing else: copy it.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

__all__ = ["stream"]

#: Elements per step of one program, warps, programs per compute unit: 16 bytes per lane and access, on every GPU.
BLOCK, WARPS, PROGRAMS = 4096, 8, 8


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
    """Compute ``y = x``."""
    lane = tl.arange(0, BLOCK)
    for start in range(tl.program_id(0).to(tl.int64) * BLOCK, n, tl.num_programs(0) * BLOCK):
        x = tl.load(x_ptr + start + lane, mask=lane < n - start)
        tl.store(y_ptr + start + lane, x, mask=lane < n - start)


@triton.jit
def stream_triad(x_ptr, y_ptr, z_ptr, factor, n, BLOCK: tl.constexpr):
    """Compute ``z = x + factor * y``: two reads and a write for two FLOPs."""
    lane = tl.arange(0, BLOCK)
    for start in range(tl.program_id(0).to(tl.int64) * BLOCK, n, tl.num_programs(0) * BLOCK):
        mask = lane < n - start
        x = tl.load(x_ptr + start + lane, mask=mask).to(tl.float32)
        y = tl.load(y_ptr + start + lane, mask=mask).to(tl.float32)
        tl.store(z_ptr + start + lane, (x + factor * y).to(z_ptr.dtype.element_ty), mask=mask)


def architecture(x: torch.Tensor) -> str:
    """Return what a kernel on ``x`` is compiled for (``gfx942``, ``sm_90``, ``interpreter``), or raise ValueError."""
    if x.device.type == "cuda":
        if x.device.index not in (None, here := torch.cuda.current_device()):
            raise ValueError(f"tensors on {x.device}, Triton launches on cuda:{here}: use torch.cuda.device(x.device)")
        if torch.version.hip:
            return str(torch.cuda.get_device_properties(x.device).gcnArchName).split(":")[0]
        return "sm_{}{}".format(*torch.cuda.get_device_capability(x.device))
    if x.device.type == "cpu" and triton.knobs.runtime.interpret:
        return "interpreter"
    raise ValueError(f"tensors on {x.device}: move them to a GPU, or set TRITON_INTERPRET=1 before Python starts")


def unit_count(x: torch.Tensor) -> int:
    """Return the compute units of the GPU that ``x`` is on; 2 in the interpreter."""
    return int(torch.cuda.get_device_properties(x.device).multi_processor_count) if x.device.type == "cuda" else 2


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
        ValueError: another kind, number of inputs, shape, type or device.

    Example::

        y = stream("copy", None, x)
    """
    wanted = {"read": 1, "write": 0, "copy": 1, "triad": 2}
    if kind not in wanted:
        raise ValueError(f"kind={kind!r}: give {', '.join(wanted)}")
    if len(inputs) != wanted[kind] or (kind == "write" and out is None) or (kind == "read" and out is not None):
        raise ValueError(f"{kind} with {len(inputs)} inputs{'' if out is None else ' and out'}: see its arguments")
    given = [*inputs, *([] if out is None else [out])]
    for name, t in zip("xyz", given, strict=False):
        if t.device != given[0].device:
            raise ValueError(f"{name} is on {t.device}, x on {given[0].device}: put them on one device")
        if t.dtype not in (torch.float16, torch.bfloat16, torch.float32):
            raise ValueError(f"{name} is {t.dtype}: give float16, bfloat16 or float32".replace("torch.", ""))
        if t.shape != given[0].shape:
            raise ValueError(f"{name} has shape {tuple(t.shape)}: give {tuple(given[0].shape)}")
        if not t.is_contiguous():
            raise ValueError(f"{name} of shape {tuple(t.shape)} has strides {t.stride()}: call .contiguous()")
    architecture(given[0])  # a device that can run it
    n = given[0].numel()
    programs = max(1, min(unit_count(given[0]) * PROGRAMS, triton.cdiv(n, BLOCK)))
    if kind == "read":
        out = torch.zeros(programs, dtype=torch.float32, device=given[0].device)
    elif out is None:
        out = torch.empty_like(given[0])
    if n == 0:
        return out
    kernel = {"read": stream_read, "write": stream_write, "copy": stream_copy, "triad": stream_triad}[kind]
    middle = {"write": (value,), "triad": (factor,)}.get(kind, ())
    kernel[(programs,)](*inputs, out, *middle, n, BLOCK=BLOCK, num_warps=WARPS)
    return out


def reference_stream(kind: str, *inputs: torch.Tensor, factor: float = 2.0, value: float = 1.0) -> torch.Tensor:
    """Return what each stream computes, in torch: the sum of x, x, x + factor * y, or the value.

    ``write`` takes a tensor for its shape only.
    """
    x = inputs[0]
    if kind == "read":
        return x.double().sum()
    if kind == "triad":
        return x.double() + factor * inputs[1].double()
    return x.double() if kind == "copy" else x.double() * 0 + value
