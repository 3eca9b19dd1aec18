# SPDX-License-Identifier: MIT
"""From a caller's arguments to the bytes that a kernel reads: arrays get addresses, numbers their size.

Source: "User Guide for AMDGPU Backend", "Code Object V5 Metadata", "Initial Kernel Execution State", LLVM,
https://llvm.org/docs/AMDGPUUsage.html.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cdna.run.errors import RunError
from cdna.run.memory import Allocation, Memory
from cdna.run.state import Parameter

__all__ = []


class Bound(NamedTuple):
    """Arguments laid out: the kernarg bytes, and for each array what to copy back where."""

    kernarg: bytes
    copies: tuple[tuple[Allocation, int, int], ...]


class _Span(NamedTuple):
    name: str
    start: int
    end: int
    writable: bool
    place: int  # where the first byte lies in a 256-byte line


def _span(name: str, value: Any) -> tuple[int, _Span]:
    """Return the address of the first element, and the bytes that an array or a CPU tensor covers."""
    if isinstance(value, np.ndarray):
        low, high = np.lib.array_utils.byte_bounds(value) if value.size else (value.ctypes.data, value.ctypes.data)
        return value.ctypes.data, _Span(name, low, high, value.flags.writeable, low % 256)
    if hasattr(value, "untyped_storage"):
        # The storage says where the bytes are, also while a dry run lets the tensor call itself a GPU's.
        if (where := value.untyped_storage().device.type) != "cpu":
            raise RunError(f"{name}: a tensor on {where}; give one on the CPU", rule="arguments")
        first, item = value.data_ptr(), value.element_size()
        extent = sum((n - 1) * s for n, s in zip(value.shape, value.stride(), strict=True)) + 1 if value.numel() else 0
        # A GPU's allocations begin at a line; the CPU's at 64 bytes, wherever that happens to be.
        storage = value.untyped_storage().data_ptr()
        place = (first - storage if storage % 16 == 0 else first) % 256
        return first, _Span(name, first, first + extent * item, True, place)
    raise RunError(
        f"{name}={value!r:.60}: the kernel wants a pointer; give a numpy array or a CPU tensor", rule="arguments"
    )


_PACK = dict(
    zip(
        ["i1", "i8", "i16", "i32", "i64", "u1", "u8", "u16", "u32", "u64", "fp16", "fp32", "fp64"],
        "?bhiq?BHIQefd",
        strict=True,
    )
)
_PLAIN = {
    **{("int", 1 << _i): _code for _i, _code in enumerate("bhiq")},
    **{("float", 2 << _i): _code for _i, _code in enumerate("efd")},
}


def _number(p: Parameter, name: str, value: Any) -> bytes:
    if isinstance(value, np.generic):
        if value.dtype.itemsize != p.size:
            raise RunError(
                f"{name}={value!r}: {value.dtype.itemsize} bytes for an argument of {p.size}", rule="arguments"
            )
        return bytes(value.tobytes())
    if isinstance(value, bytes):
        if len(value) != p.size:
            raise RunError(f"{name}: {len(value)} bytes for an argument of {p.size}", rule="arguments")
        return value
    if not isinstance(value, int | float):
        raise RunError(f"{name}={value!r:.60}: the kernel wants a number of {p.size} bytes", rule="arguments")
    kind = "float" if isinstance(value, float) else "int"
    if p.type.startswith(("fp", "bf")):
        kind, value = "float", float(value)
    elif p.type.startswith(("i", "u")) and kind == "float":
        raise RunError(f"{name}={value!r}: the kernel wants {p.type}", rule="arguments")
    code = _PACK.get(p.type) or _PLAIN.get((kind, p.size))
    if code is None:
        raise RunError(
            f"{name}={value!r}: no {kind} has {p.size} bytes; give bytes or a numpy scalar", rule="arguments"
        )
    try:
        if code in "bhiq" and value >= 0:  # a kernel's int may be unsigned
            code = code.upper() if value >> (8 * struct.calcsize(f"<{code}") - 1) else code
        packed = struct.pack(f"<{code}", value)
    except (struct.error, OverflowError):
        raise RunError(f"{name}={value!r} does not fit {p.size} bytes", rule="arguments") from None
    if len(packed) != p.size:
        raise RunError(f"{name}={value!r}: {len(packed)} bytes for an argument of {p.size}", rule="arguments")
    return packed


def _merged(spans: Sequence[_Span]) -> list[_Span]:
    """Merge spans that share bytes."""
    out: list[_Span] = []
    for s in sorted(spans, key=lambda s: s.start):
        if out and s.start < out[-1].end:
            last = out.pop()
            name = last.name if s.name in last.name.split("/") else f"{last.name}/{s.name}"
            s = _Span(name, last.start, max(last.end, s.end), last.writable and s.writable, last.place)
        out.append(s)
    return out


def _hidden(kind: str, grid: tuple[int, int, int], block: tuple[int, int, int]) -> int:
    head, _, axis = kind.rpartition("_")
    if axis in ("x", "y", "z") and head in ("hidden_block_count", "hidden_group_size"):
        return (grid if head == "hidden_block_count" else block)["xyz".index(axis)]
    return 3 if kind == "hidden_grid_dims" else 0


def bind_arguments(
    memory: Memory,
    parameters: Sequence[Parameter],
    arguments: Mapping[str, Any] | Sequence[Any],
    kernarg_size: int,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
) -> Bound:
    """Give every array an address in ``memory`` and lay the arguments out.

    Raises:
        RunError: too many or too few arguments, an unknown name, a wrong type or size.
    """
    visible = [p for p in parameters if not p.kind.startswith("hidden")]
    names = [p.name or f"argument {i + 1}" for i, p in enumerate(visible)]
    if isinstance(arguments, Mapping):
        if unknown := [n for n in arguments if n not in names]:
            raise RunError(f"no parameter {unknown[0]!r}: the kernel has {', '.join(names)}", rule="arguments")
        given = [arguments.get(n, _MISSING) for n in names]
    else:
        given = [*arguments, *[_MISSING] * (len(names) - len(arguments))]
        if len(given) > len(names):
            raise RunError(f"{len(given)} arguments for a kernel of {len(names)}", rule="arguments")
    for p in parameters:
        wrong = p.size != 8 if p.kind == "global_buffer" else not 0 < p.size <= 4096
        if wrong or p.offset + p.size > 1 << 16:
            raise RunError(f"the metadata describes an argument of {p.size} bytes at {p.offset} ({p.kind}): damaged")
    if kernarg_size > 1 << 16:
        raise RunError(f"{kernarg_size} bytes of kernel arguments, and {1 << 16} is the most: the text is damaged")
    out = bytearray(max(kernarg_size, *(p.offset + p.size for p in parameters), 0) if parameters else kernarg_size)
    out += bytes(-len(out) % 64)  # compilers read whole 16-byte pieces; the segment is at least that long
    pointers: list[tuple[Parameter, int, _Span]] = []
    for p, name, value in zip(visible, names, given, strict=True):
        if p.kind == "global_buffer" or p.type.startswith("*"):
            if value is None:
                continue  # a null pointer
            if value is _MISSING and not p.name and _only_scratch_follows(visible, given, p):
                memory.missing.append(name)  # Triton's unused scratch pointers, which nothing reads, or forgotten
                continue
            if value is _MISSING:
                raise RunError(f"{name} is missing: the kernel takes {', '.join(names)}", rule="arguments")
            first, span = _span(name, value)
            pointers.append((p, first, span))
        elif value is _MISSING:
            raise RunError(f"{name} is missing: the kernel takes {', '.join(names)}", rule="arguments")
        else:
            out[p.offset : p.offset + p.size] = _number(p, name, value)
    for p in parameters:
        if p.kind.startswith("hidden"):
            out[p.offset : p.offset + p.size] = _hidden(p.kind, grid, block).to_bytes(p.size, "little")
    copies = []
    placed: list[tuple[_Span, Allocation]] = []
    for s in _merged([span for _, _, span in pointers if span.end > span.start]):
        raw = np.ctypeslib.as_array((ctypes.c_ubyte * (s.end - s.start)).from_address(s.start))
        made = memory.add(s.name, raw, s.place, s.writable)
        placed.append((s, made))
        copies.append((made, s.start, s.end - s.start))
    for p, first, span in pointers:
        address = 0
        for s, made in placed:
            if s.start <= span.start < s.end:
                address = made.base + first - s.start
        out[p.offset : p.offset + p.size] = address.to_bytes(p.size, "little")
    return Bound(bytes(out), tuple(copies))


class _Missing:
    pass


_MISSING = _Missing()


def _only_scratch_follows(visible: Sequence[Parameter], given: Sequence[Any], p: Parameter) -> bool:
    """Return whether nothing was given from here on, and what is left are at most two pointers."""
    at = visible.index(p)
    rest = visible[at:]
    return len(rest) <= 2 and all(v is _MISSING for v in given[at:]) and all(r.kind == "global_buffer" for r in rest)


def copy_back(bound: Bound) -> None:
    """Write what the kernel stored into the caller's arrays."""
    for a, start, size in bound.copies:
        if a.writable and a.copied:
            np.ctypeslib.as_array((ctypes.c_ubyte * size).from_address(start))[:] = a.data[:size]
