# SPDX-License-Identifier: MIT
"""A puzzle: a task, its reference in one line of PyTorch, cases that are planted for mistakes, and what the
compiled code is to look like.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rocm_guide.common.base import GuideError

__all__ = ["Case", "DojoError", "Expect", "Puzzle", "rows_far_apart"]


class DojoError(GuideError):
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
    """

    name: str
    arguments: Callable[[], tuple[Any, ...]]
    hint: str
    traffic: bool = False
    needed: Callable[..., int] | None = None


@dataclass(frozen=True)
class Expect:
    """The properties expected of the code for gfx942 at the puzzle's true shape; a field left alone expects nothing.

    Attributes:
        load_bits, store_bits: bits per lane of the accesses that move most of the bytes.
        waves: waves per SIMD at least.
        mfma: whether the matrix cores are used.
        lds: whether LDS is used; None if it does not matter.
        workgroups: of the largest launch, at least.
        traffic: most bytes moved, as a multiple of the floor (every input read once, every output written once).
    """

    load_bits: int = 0
    store_bits: int = 0
    waves: float = 1
    mfma: bool = False
    lds: bool | None = None
    workgroups: int = 0
    traffic: float = 0.0


@dataclass(frozen=True)
class Puzzle:
    """A kernel to write.

    Attributes:
        name: by which it is graded.
        task: what the function takes and returns.
        reference: the same in PyTorch; floating-point tensors arrive as float64.
        formula: the reference as it is printed.
        cases: small ones for the interpreter, the plainest first.
        shape: makes arguments of a realistic size on a device; used for the compiled code and for timing.
        expect: of the compiled code.
        starter: the code of a kernel that is right and is to be made better, where the puzzle is a repair.
        absolute, relative: the error that is allowed: ``absolute + relative * abs(reference)``.
    """

    name: str
    task: str
    formula: str
    reference: Callable[..., Any]
    cases: tuple[Case, ...]
    shape: Callable[[str], tuple[Any, ...]]
    expect: Expect
    absolute: float = 1e-3
    relative: float = 2e-3
    starter: str = ""


def rows_far_apart(columns: int) -> Any:
    """Return an fp16 matrix of three rows, 2^30 elements from one to the next; only the rows take memory.

    The stride fits into 32 bits, and twice the stride does not.

    >>> x = rows_far_apart(3)
    >>> x.shape, x.stride(0) == 2**30
    (torch.Size([3, 3]), True)
    """
    import torch

    x = torch.empty_strided((3, columns), (1 << 30, 1), dtype=torch.float16)
    for i in range(3):
        x[i] = torch.linspace(-1 - i, 1 + i, columns)
    return x
