# SPDX-License-Identifier: MIT
"""Run gfx942 machine code on this machine: a kernel's assembly text, a grid, and numpy arrays.

The interpreter is written from AMD's published manual and LLVM's documentation, and is stricter than hardware: what
would go wrong only sometimes on an MI300X (a register read before its load has returned, a race between waves) is an
error here each time. Not modelled: caches, floating-point exceptions, time.
Source: "AMD Instinct MI300 Instruction Set Architecture", AMD; "User Guide for AMDGPU Backend", LLVM.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cdna.run.arguments import Bound, bind_arguments, copy_back
from cdna.run.counters import Counters
from cdna.run.errors import RunError
from cdna.run.machine import Machine, Observer
from cdna.run.memory import Memory
from cdna.run.program import load_listing, load_program
from cdna.run.state import Parameter, Program
from cdna.run.wait_states import check_wait_states

__all__ = ["Result", "Session", "prepare", "run"]


@dataclass(frozen=True)
class Result:
    """Result of a run.

    Attributes:
        counters: instructions by class, bytes, lines, bank conflicts, MFMA operations.
        executed: wave instructions.
        machine: the machine in its last state.
        loaded: first and last address, in this process, of each of the caller's arrays that something was read from.
    """

    counters: Counters
    executed: int
    machine: Machine
    loaded: tuple[tuple[int, int], ...] = ()

    @property
    def notes(self) -> list[str]:
        """Return what is legal only because the caller allowed it (``copies``), one line for each instruction."""
        text = {o.line: o.text for o in self.machine.code}
        return [
            f"line {line}: {text[line]}: {n} times a wave overwrote another wave's copy of a value, within "
            f"{self.machine.copies:g} of it"
            for line, n in sorted(self.machine.copied.items())
        ]


@dataclass(frozen=True)
class Session:
    """A launch that is ready: step ``machine`` as you like, then :meth:`finish` writes the arrays back."""

    machine: Machine
    bound: Bound

    def finish(self) -> Result:
        """Copy what the kernel stored into the caller's arrays."""
        copy_back(self.bound)
        loaded = tuple((start, start + size - 1) for a, start, size in self.bound.copies if a.loaded)
        return Result(self.machine.tally(), self.machine.executed, self.machine, loaded)


def _triple(name: str, value: int | Sequence[int]) -> tuple[int, int, int]:
    values = tuple(value) if isinstance(value, Sequence) else (value,)
    if not 1 <= len(values) <= 3 or any(not isinstance(v, int) or v < 1 for v in values):
        raise RunError(f"{name}={value!r}: one to three positive integers", rule="arguments")
    return (*values, *(1,) * (3 - len(values)))  # type: ignore[return-value]


def _flat(name: str, kind: Any, value: Any) -> list[tuple[str, str, Any]]:
    """Return name, type and value of one argument; a tuple of Triton's becomes its parts, constants drop out."""
    if isinstance(kind, str) and kind.startswith("("):
        kind = ast.literal_eval(kind)
    if isinstance(kind, tuple):
        if value is not _UNSET and (not isinstance(value, tuple | list) or len(value) != len(kind)):
            raise RunError(f"{name}={value!r:.60}: the kernel wants a tuple of {len(kind)}", rule="arguments")
        parts: Any = [_UNSET] * len(kind) if value is _UNSET else value
        return [x for i, (k, v) in enumerate(zip(kind, parts, strict=True)) for x in _flat(f"{name}[{i}]", k, v)]
    return [] if kind == "constexpr" else [(name, kind, value)]


def _typed(
    program: Program, signature: Mapping[str, str], arguments: Mapping[str, Any] | Sequence[Any]
) -> tuple[tuple[Parameter, ...], Mapping[str, Any]]:
    """Return the parameters with Triton's names and types, and the arguments by name, both without constants."""
    free = [n for n, t in signature.items() if t != "constexpr"]
    if not isinstance(arguments, Mapping):
        if len(arguments) > len(free):
            raise RunError(
                f"{len(arguments)} arguments for a kernel of {len(free)}: {', '.join(free)}", rule="arguments"
            )
        arguments = dict(zip(free, arguments, strict=False))
    if unknown := [n for n in arguments if n not in signature]:
        raise RunError(f"no parameter {unknown[0]!r}: the kernel has {', '.join(free)}", rule="arguments")
    flat = [x for n in free for x in _flat(n, signature[n], arguments.get(n, _UNSET))]
    visible = [p for p in program.parameters if not p.kind.startswith("hidden")]
    if len(flat) > len(visible):
        raise RunError(f"the signature names {len(flat)} arguments and the text {len(visible)}", rule="arguments")
    named = [p._replace(name=flat[i][0], type=flat[i][1]) if i < len(flat) else p for i, p in enumerate(visible)]
    named += [p for p in program.parameters if p.kind.startswith("hidden")]
    return tuple(named), {n: v for n, _, v in flat if v is not _UNSET}


_UNSET = object()


def prepare(
    kernel: Any,
    grid: int | Sequence[int],
    arguments: Mapping[str, Any] | Sequence[Any],
    *,
    name: str | None = None,
    block: int | Sequence[int] | None = None,
    shared: int | None = None,
    code_object: bytes | None = None,
    observer: Observer | None = None,
    limit: int = 1_000_000,
    count: bool = True,
    copies: float = 0.0,
    wait_states: bool = False,
    hardware_sums: bool = False,
) -> Session:
    """Prepare everything up to the first instruction; see :func:`run` for the arguments."""
    text = kernel if isinstance(kernel, str) else getattr(kernel, "assembly", None)
    if not isinstance(text, str):
        raise RunError(
            f"{kernel!r:.60} is no kernel: give assembly text or what compile_kernel returns", rule="arguments"
        )
    if not isinstance(copies, int | float) or not 0 <= copies < 1:
        raise RunError(f"copies={copies!r}: a part of a value, from 0 to less than 1", rule="arguments")
    program = (
        load_program(text, name, (), hardware_sums)
        if code_object is None
        else load_listing(text, name, code_object, hardware_sums)
    )
    if program.listing and code_object is None:
        raise RunError(
            "a disassembly does not say what the kernel is given at its start: pass the bytes of the file "
            "that it was made from as code_object=",
            rule="arguments",
        )
    signature: Mapping[str, str] = {}
    if not isinstance(kernel, str):
        shared = kernel.shared if shared is None else shared
        signature = kernel.signature
    parameters = program.parameters
    if signature:
        parameters, arguments = _typed(program, signature, arguments)
    settings = program.settings
    if block is None:
        if not settings.threads:
            raise RunError("the text does not say how many work-items a workgroup has: give block=", rule="arguments")
        block = settings.threads
    threads = _triple("block", block)
    if (n := threads[0] * threads[1] * threads[2]) > (settings.threads or 1024):
        raise RunError(
            f"block={block!r}: {n} work-items, and the kernel was compiled for at most {settings.threads or 1024}",
            rule="arguments",
        )
    lds = settings.lds + (shared or 0)
    if lds > 65536:
        raise RunError(f"{lds} bytes of LDS, and a workgroup of gfx942 has at most 65536", rule="arguments")
    if shared is None and not lds and any(r.op.startswith(("ds_read", "ds_write", "ds_add")) for r in program.body):
        raise RunError("the kernel uses LDS and its text does not say how much: give shared= (bytes)", rule="arguments")
    memory = Memory()
    places = _triple("grid", grid)
    bound = bind_arguments(memory, parameters, arguments, settings.kernarg, places, threads)
    machine = Machine(
        program, places, threads, memory, bound.kernarg, lds, observer=observer, limit=limit, count=count, copies=copies
    )
    if wait_states and not program.waits:
        check_wait_states(program, machine.code)
        program.waits = True
    return Session(machine, bound)


def run(
    kernel: Any,
    grid: int | Sequence[int],
    arguments: Mapping[str, Any] | Sequence[Any],
    *,
    name: str | None = None,
    block: int | Sequence[int] | None = None,
    shared: int | None = None,
    code_object: bytes | None = None,
    order: str | int = "together",
    observer: Observer | None = None,
    limit: int = 1_000_000,
    count: bool = True,
    copies: float = 0.0,
    wait_states: bool = False,
    hardware_sums: bool = False,
    only: Sequence[int] | None = None,
) -> Result:
    """Execute a gfx942 kernel; the arrays among the arguments hold its results afterwards.

    Args:
        kernel: assembly text (Triton's ``amdgcn``, clang's ``.s``, ``llvm-objdump -d``), or the
            :class:`~cdna.compile.Compiled` of ``compile_kernel``.
        grid: workgroups in x, y, z.
        arguments: numpy arrays or CPU tensors for pointers, numbers for values; in order, or by name where the names
            are known (a ``Compiled``). An array is used in place; views of one buffer share it. None is a null pointer.
        name: which kernel, if the text has several.
        block: work-items of a workgroup in x, y, z; what the text says by default.
        shared: bytes of dynamic LDS; needed for Triton's text, known from a ``Compiled``.
        code_object: with a disassembly, the bytes of the file that it was made from (``.hsaco``, ``.co``).
        order: ``together``, ``alone``, ``round_robin`` or a seed; see
            :meth:`~cdna.run.machine.Machine.run`.
        observer: called before each instruction with the wave and the operation.
        limit: instructions that one wave may execute.
        count: False leaves out bytes, lines and bank conflicts, which takes less time.
        copies: by which part float32 values may differ that several waves write to one place of LDS before a barrier.
            0 takes only equal bits for copies of one value; anything else is a race. Compilers let each wave compute a
            replicated sum, and two orders of addition round differently; ``result.notes`` says where that happened.
        wait_states: also refuse a text in which an ``s_nop`` is missing; see
            :mod:`cdna.run.wait_states`. Compilers put them in, people who write assembly forget them.
        hardware_sums: matrix instructions add up bit by bit as an MI300X was seen to, which takes several times as
            long; see :mod:`cdna.run.matrix_sums`. Otherwise a sum is exact and rounded once.
        only: numbers of the workgroups that run, x first, then y and z; None runs all. They see the true grid.

    Raises:
        RunError: one line that names the instruction and what is wrong. The arrays are then unchanged; only one of more
            than a gigabyte, which is not copied, may hold what was stored before.

    >>> import numpy as np
    >>> text = '''
    ... .amdgcn_target "amdgcn-amd-amdhsa--gfx942"
    ... .type twice,@function
    ... twice:
    ...   s_load_dwordx2 s[2:3], s[0:1], 0x0
    ...   v_lshlrev_b32_e32 v1, 2, v0
    ...   s_waitcnt lgkmcnt(0)
    ...   global_load_dword v2, v1, s[2:3]
    ...   s_waitcnt vmcnt(0)
    ...   v_add_f32_e32 v2, v2, v2
    ...   global_store_dword v1, v2, s[2:3]
    ...   s_endpgm
    ... .amdgpu_metadata
    ... amdhsa.kernels:
    ...   - .args:
    ...       - .offset:         0
    ...         .size:           8
    ...         .value_kind:     global_buffer
    ...     .max_flat_workgroup_size: 64
    ...     .name:           twice
    ... .end_amdgpu_metadata
    ... '''
    >>> x = np.arange(64, dtype=np.float32)
    >>> run(text, 1, [x]).executed, x[:4].tolist()
    (8, [0.0, 2.0, 4.0, 6.0])
    """
    session = prepare(
        kernel,
        grid,
        arguments,
        name=name,
        block=block,
        shared=shared,
        code_object=code_object,
        observer=observer,
        limit=limit,
        count=count,
        copies=copies,
        wait_states=wait_states,
        hardware_sums=hardware_sums,
    )
    session.machine.run(order, only=only)
    return session.finish()
