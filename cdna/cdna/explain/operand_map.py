# SPDX-License-Identifier: MIT
"""Which lane and register hold which element of A, B and D (and C) of a matrix instruction of CDNA3.

The formulas are written here from AMD's description, apart from those of the executor
(:mod:`cdna.run.matrix`), so that one can be held against the other; the tests do, for every shape.
Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, "Matrix Arithmetic Instructions"; "AMD Matrix
Instruction Calculator", https://github.com/ROCm/amd_matrix_instruction_calculator. Introduced by notebook 13.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from cdna.base import InputError
from cdna.isa.mnemonics import MatrixShape, matrix_shape

__all__ = ["LaneMap", "MapError", "lane_map", "matrix_operations"]

_BITS = re.compile(r"\d+")


class MapError(InputError):
    """A matrix instruction or operand that does not exist."""


class Holder(NamedTuple):
    """Place of an element: the lane, the register among the operand's own (0, 1, …), and the part of that register.

    ``part`` counts elements narrower than 32 bits from the low end; a 64-bit element takes two registers.
    """

    lane: int
    register: int
    part: int


@dataclass(frozen=True)
class LaneMap:
    """One operand of one matrix instruction.

    Attributes:
        op, operand: the instruction, and "A", "B" or "D" (C lies like D).
        shape: what it multiplies.
        bits: of one element.
        lanes, elements: ``[block, row, column]``: the lane, and the number of the element among those of its lane.
    """

    op: str
    operand: str
    shape: MatrixShape
    bits: int
    lanes: Any
    elements: Any

    @property
    def registers(self) -> int:
        """32-bit registers of each lane that the operand takes."""
        return max(1, (int(self.elements.max()) + 1) * self.bits // 32)

    def holder(self, row: int, column: int, block: int = 0) -> Holder:
        """Return who holds one element.

        Raises:
            MapError: the operand has no such element.

        >>> lane_map("v_mfma_f32_16x16x16_f16", "A").holder(row=3, column=5)
        Holder(lane=19, register=0, part=1)
        """
        size = self.lanes.shape
        if not (0 <= block < size[0] and 0 <= row < size[1] and 0 <= column < size[2]):
            raise MapError(
                f"element ({row}, {column}) of block {block}: {self.operand} of {self.op} has {size[0]} blocks of "
                f"{size[1]} x {size[2]}"
            )
        lane, element = int(self.lanes[block, row, column]), int(self.elements[block, row, column])
        per = max(1, 32 // self.bits)
        return Holder(lane, element // per * max(1, self.bits // 32), element % per)

    def held(self, lane: int) -> list[tuple[int, int, int]]:
        """Return what a lane holds, element by element: ``(block, row, column)``.

        >>> lane_map("v_mfma_f32_16x16x16_f16", "D").held(17)
        [(0, 4, 1), (0, 5, 1), (0, 6, 1), (0, 7, 1)]
        """
        places = np.argwhere(self.lanes == lane)
        order = np.argsort(self.elements[tuple(places.T)])
        return [(int(b), int(r), int(c)) for b, r, c in places[order]]


def matrix_operations() -> list[str]:
    """Return every matrix instruction of gfx942 with a shape of its own, dense ones first.

    >>> len(matrix_operations()), matrix_operations()[0]
    (46, 'v_mfma_f32_32x32x1_2b_f32')
    """
    from cdna.run.matrix import SHAPES

    found = []
    for (sparse, kind), shapes in SHAPES.items():
        out = {"i8": "i32", "f64": "f64"}.get(kind, "f32")
        for m, n, k, blocks in shapes:
            many = f"_{blocks}b" if blocks > 1 else ""
            found.append(f"v_{'smfmac' if sparse else 'mfma'}_{out}_{m}x{n}x{k}{many}_{kind}")
    return found


def _source_map(side: int, depth: int, blocks: int, by_row: bool) -> tuple[Any, Any]:
    """Map A (``by_row``) or B: neighbours along k share a lane; then come the blocks, then the next stretch of k."""
    each = side * depth * blocks // 64
    b, i, k = np.meshgrid(np.arange(blocks), np.arange(side), np.arange(depth), indexing="ij")
    lanes, elements = i + side * (b + blocks * (k // each)), k % each
    return (lanes, elements) if by_row else (lanes.swapaxes(1, 2), elements.swapaxes(1, 2))


def _result_map(m: int, n: int, blocks: int, double: bool) -> tuple[Any, Any]:
    b, i, j = np.meshgrid(np.arange(blocks), np.arange(m), np.arange(n), indexing="ij")
    if double and m == 4:
        return j + 4 * b + 16 * i, 0 * i
    if double:
        return j + n * (i % 4), i // 4
    if m == 4:
        return j + 4 * b, i
    # Four rows in the registers of one lane, then the next lanes along the rows, then the next four registers.
    groups = 64 // n
    return j + n * (i // 4 % groups), b * (m * n // 64) + i // (4 * groups) * 4 + i % 4


def lane_map(op: str, operand: str = "D") -> LaneMap:
    """Return where the elements of an operand lie.

    Args:
        op: a matrix instruction, such as ``v_mfma_f32_32x32x8_f16``.
        operand: "A" (rows x k), "B" (k x columns), "C" or "D" (rows x columns). A of a sparse one (``v_smfmac``)
            holds two of every four values of k: its columns are the values that are stored.

    Raises:
        MapError: no matrix instruction, or no such operand.

    >>> d = lane_map("v_mfma_f32_32x32x8_f16", "D")
    >>> d.registers, d.holder(row=13, column=8)
    (16, Holder(lane=40, register=5, part=0))
    """
    shape = matrix_shape(op)
    if shape is None:
        raise MapError(f"{op!r}: no matrix instruction, such as v_mfma_f32_16x16x16_f16")
    kinds = re.findall(r"xf32|bf16|f16|f32|f64|i8|fp8|bf8", shape.in_type) or [shape.in_type]
    m, n, k, blocks = shape.m, shape.n, shape.k, shape.blocks
    if operand in ("C", "D"):
        lanes, elements = _result_map(m, n, blocks, shape.out_type == "f64")
        bits = 64 if shape.out_type == "f64" else 32
    elif operand in ("A", "B"):
        depth = k // 2 if shape.sparse and operand == "A" else k
        lanes, elements = _source_map(m if operand == "A" else n, depth, blocks, operand == "A")
        found = _BITS.search(kinds[0 if operand == "A" else -1])
        assert found is not None
        bits = int(found[0])
    else:
        raise MapError(f"operand={operand!r}: A, B, C or D")
    return LaneMap(op, "D" if operand == "C" else operand, shape, bits, lanes, elements)
