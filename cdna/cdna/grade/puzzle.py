# SPDX-License-Identifier: MIT
"""A puzzle: a task, its reference in one line of PyTorch, cases that are planted for mistakes, and what the
compiled code is to look like; and the files in which puzzles stand.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cdna.base import InputError

__all__ = [
    "MASK",
    "OFFSET",
    "ONE",
    "Case",
    "Expect",
    "Fault",
    "GradeError",
    "Puzzle",
    "far_apart",
    "find_puzzle",
    "puzzles_of",
    "reserved",
]

MASK = "a mask is missing or off by one: the last block reaches past the end"
ONE = "one element is a whole row: the loop ends at the length, not before it, and the mask is i < n"
OFFSET = "an offset overflows 32 bits: .to(tl.int64) on the row before it is multiplied by the stride"
_LDS = "LDS, at most {:g} times the cycles that it takes without conflicts"


class GradeError(InputError):
    """A puzzle that does not exist, or something that cannot be graded."""


@dataclass(frozen=True)
class Case:
    """One set of arguments, and the mistake that it shows.

    Attributes:
        name: what is special about it, as it is printed.
        arguments: makes them, the same every time; tensors on the CPU.
        hint: what is probably wrong if this case fails and those before it did not.
        traffic: True if the bytes that the kernels move are counted in this case.
        needed: bytes of the arguments that have to be read, where that is not all of them.
        last: True if only the last program of each launch runs: the tensors are too large for all. Its addresses are
            judged, and, where the case has ``wanted``, every element that it has written.
        wanted: True if results of the last program are compared.
        sums: the size that sums have on the way, where they cancel: an error of a few thousandths of it is rounding.
    """

    name: str
    arguments: Callable[[], tuple[Any, ...]]
    hint: str
    traffic: bool = False
    needed: Callable[..., int] | None = None
    last: bool = False
    wanted: bool = True
    sums: float = 0.0


@dataclass(frozen=True)
class Fault:
    """A mistake that is known by what it computes.

    Attributes:
        hint: what is wrong when a result equals that of ``wrong``.
        wrong: takes what the reference takes; its result is compared within the puzzle's tolerance.
    """

    hint: str
    wrong: Callable[..., Any]


@dataclass(frozen=True)
class Expect:
    """The properties expected of the code for gfx942 at the puzzle's true shape.

    Attributes:
        load_bits: bits per lane of the loads that move most of the bytes.
        waves: waves per SIMD at least.
        workgroups: of the largest launch, at least.
        traffic: most bytes moved, as a multiple of the floor (every input read once, every output written once).
        store_bits: as load_bits, of the stores; 0 expects nothing.
        better_waves: waves per SIMD that are possible, where fewer are named and pass.
        mfma: whether the matrix cores are used.
        lds: whether LDS is used; None if it does not matter.
        lines_loaded, lines_stored: most lines of 128 bytes that the accesses touch, as a multiple of those that their
            bytes fill; counted by executing the machine code.
        conflicts: most cycles of LDS, as a multiple of those without bank conflicts; more is a warning, and fails only
            where ``lds`` is True.
        traffic_fix: what to do about too many bytes.
    """

    load_bits: int
    waves: float
    workgroups: int
    traffic: float
    store_bits: int = 0
    better_waves: float = 0
    mfma: bool = False
    lds: bool | None = None
    lines_loaded: float = 2.0
    lines_stored: float = 2.0
    conflicts: float = 1.5
    traffic_fix: str = "keep in registers what you read again"

    def __str__(self) -> str:
        """Return what is expected, as it is printed before a puzzle is begun."""
        parts = [f"loads of {self.load_bits} bits for each lane"]
        parts += [f"stores of {self.store_bits}"] * bool(self.store_bits)
        parts += [f"{max(self.waves, self.better_waves):g} waves for each SIMD", f"{self.workgroups:,} workgroups"]
        parts += [f"bytes {self.traffic:g} times the floor at most"]
        parts += ["the matrix cores"] * self.mfma
        parts += [] if self.lds is None else [_LDS.format(self.conflicts) if self.lds else "no LDS"]
        return ", ".join(parts)


@dataclass(frozen=True)
class Puzzle:
    """A kernel to write.

    Attributes:
        name: by which it is graded.
        task: what the function takes and returns.
        reference: the same in PyTorch; floating-point tensors arrive as float64.
        formula: the reference as it is printed.
        cases: small ones, the plainest first.
        shape: makes arguments of a realistic size on a device; used for the compiled code and for timing.
        small: makes arguments on the CPU with which the machine code is executed.
        expect: of the compiled code.
        faults: mistakes that are known by their results.
        dtype: torch's name of the type of the result.
        moves: whether to copy is the task, so that a copy by PyTorch is a way around it.
        writes: positions of the arguments that the solution is to change. They are results too: the reference returns
            them as they are to be, in this order, after what the solution returns.
        starter: the code of a kernel that is right and is to be made better, where the puzzle is a repair.
        gluon: whether the kernels are to be written in Gluon; the cases are then executed as gfx942 machine code, as
            they are for any puzzle that is solved so.
        absolute, relative: the error that is allowed: ``absolute + relative * abs(reference)``.
    """

    name: str
    task: str
    formula: str
    reference: Callable[..., Any]
    cases: tuple[Case, ...]
    shape: Callable[[str], tuple[Any, ...]]
    small: Callable[[], tuple[Any, ...]]
    expect: Expect
    faults: tuple[Fault, ...] = ()
    dtype: str = "float16"
    moves: bool = False
    writes: tuple[int, ...] = ()
    absolute: float = 1e-3
    relative: float = 2e-3
    starter: str = ""
    gluon: bool = False


def _module(place: str) -> Any:
    if not place.endswith(".py"):
        return importlib.import_module(place)
    if not Path(place).is_file():
        raise GradeError(f"{place}: no such file; give the file in which the puzzle stands")
    spec = importlib.util.spec_from_file_location(f"puzzles_{Path(place).stem}", place)
    assert spec is not None and spec.loader is not None  # of a name that ends in .py
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as e:
        raise GradeError(f"{place}: cannot be read ({type(e).__name__}: {e})") from e
    return module


def puzzles_of(place: str) -> dict[str, Puzzle]:
    """Return the puzzles at the top of a module, or of a file, by name: those of its own variables, and those of a
    dictionary ``PUZZLES``.

    Args:
        place: a module's dotted name, or the path of a file that ends in .py.

    Raises:
        GradeError: no such file, or one that cannot be executed.
    """
    module = vars(_module(place))
    found = [*module.values(), *module.get("PUZZLES", {}).values()]
    return {p.name: p for p in found if isinstance(p, Puzzle)}


def find_puzzle(place: str, name: str = "") -> Puzzle:
    """Return the puzzle of that name from a module or a file; its only one where no name is given.

    Raises:
        GradeError: there is none, or several and no name.
    """
    puzzles = puzzles_of(place)
    if not name and len(puzzles) == 1:
        return next(iter(puzzles.values()))
    if name not in puzzles:
        asked = f"no puzzle {name!r}" if name else "which puzzle?"
        raise GradeError(f"{place}: {asked}; there are {', '.join(puzzles) or 'none'}")
    return puzzles[name]


def far_apart(*shape: int, seed: int = 0, dtype: str = "float16") -> Any:
    """Return a tensor whose first dimension has three places, 2^30 elements apart; only they take memory.

    The stride fits into 32 bits, and twice the stride does not.

    >>> x = far_apart(3)
    >>> x.shape, x.stride(0) == 2**30
    (torch.Size([3, 3]), True)
    """
    import torch

    inner = torch.empty(shape).stride()
    x = torch.empty_strided((3, *shape), (1 << 30, *inner), dtype=getattr(torch, dtype))
    generator = torch.Generator().manual_seed(seed)
    for i in range(3):
        x[i] = torch.randn(*shape, generator=generator)
    return x


def reserved(*shape: int, dtype: str = "float16") -> Any:
    """Return a tensor of any size that takes no memory until it is written.

    >>> reserved(1 << 20, 4096).numel() == 2**32
    True
    """
    import torch

    return torch.empty(*shape, dtype=getattr(torch, dtype))
