# SPDX-License-Identifier: MIT
"""Which lane and register hold which element of A, B and D (and C) of a matrix instruction of CDNA3.

The formulas are written here from AMD's description, apart from those of the executor
(:mod:`cdna.run.matrix`), so that one can be held against the other; the tests do, for every shape.
They are also found by execution: a one in one element of A, numbers in B, run as gfx942 machine code; the lanes and
registers of D that are not zero are the row of that element.
Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, "Matrix Arithmetic Instructions"; "AMD Matrix
Instruction Calculator", https://github.com/ROCm/amd_matrix_instruction_calculator.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from cdna.base import InputError
from cdna.isa.mnemonics import MatrixShape, matrix_shape

__all__ = ["LaneMap", "MapError", "execute_matrix", "lane_map", "matrix_operations", "who_answers"]

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


_TYPES = {"f16": np.float16, "f32": np.float32, "xf32": np.float32, "f64": np.float64, "i8": np.int8}


def _encode(values: Any, kind: str) -> Any:
    """Encode small whole numbers as elements of an input type, in an array of its width."""
    if kind in _TYPES:
        return values.astype(_TYPES[kind])
    if kind == "bf16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    from cdna.run.arithmetic import FLOAT8

    codes = {float(v): n for n, v in reversed(list(enumerate(FLOAT8[kind]))) if v == v}
    return np.array([codes[float(v)] for v in values.ravel()], np.uint8).reshape(values.shape)


def _text(op: str, registers: tuple[int, int, int], sparse: bool) -> str:
    """Write a kernel of one wave that loads A and B, multiplies, and stores D.

    Register ``r`` of a lane lies at dword ``64 r + lane``.
    """
    names, at = [], 4
    for n in registers:
        names.append(f"v[{at}:{at + n - 1}]" if n > 1 else f"v{at}")
        at += n + n % 2
    first = [int(name.strip("v[").split(":")[0].rstrip("]")) for name in names]
    code = ["s_load_dwordx4 s[4:7], s[0:1], 0x0", "s_load_dwordx2 s[8:9], s[0:1], 0x10", "s_waitcnt lgkmcnt(0)"]
    for which, base in ((0, "s[4:5]"), (1, "s[6:7]")):
        for r in range(registers[which]):
            code.append(f"v_lshl_add_u32 v1, v0, 2, {256 * r}" if r else "v_lshlrev_b32_e32 v1, 2, v0")
            code.append(f"global_load_dword v{first[which] + r}, v1, {base}")
    code += [f"v_mov_b32_e32 v{first[2] + r}, 0" for r in range(registers[2])]
    code += ["v_mov_b32_e32 v2, 0x44444444", "s_waitcnt vmcnt(0)", "s_nop 7"]  # of four, the first and the second
    code += [f"{op} {names[2]}, {names[0]}, {names[1]}, {'v2' if sparse else '0'}", "s_nop 15", "s_nop 15"]
    for r in range(registers[2]):
        code.append(f"v_lshl_add_u32 v1, v0, 2, {256 * r}" if r else "v_lshlrev_b32_e32 v1, 2, v0")
        code.append(f"global_store_dword v1, v{first[2] + r}, s[8:9]")
    body = "\n".join(f"  {line}" for line in [*code, "s_endpgm"])
    where = "\n".join(
        f"      - .offset: {8 * i}\n        .size: 8\n        .value_kind: global_buffer" for i in range(3)
    )
    return (
        f'.amdgcn_target "amdgcn-amd-amdhsa--gfx942"\n.type one_hot,@function\none_hot:\n{body}\n'
        ".amdhsa_kernel one_hot\n  .amdhsa_next_free_vgpr 128\n  .amdhsa_accum_offset 128\n"
        "  .amdhsa_user_sgpr_kernarg_segment_ptr 1\n.end_amdhsa_kernel\n"
        f".amdgpu_metadata\namdhsa.kernels:\n  - .args:\n{where}\n    .max_flat_workgroup_size: 64\n"
        "    .name: one_hot\n.end_amdgpu_metadata\n"
    )


def _pack(m: LaneMap, values: Any, kind: str) -> Any:
    """Pack elements ``[block, row, column]`` as registers: dwords ``[register, lane]``, flat."""
    per = m.registers * 32 // m.bits
    held = np.zeros((64, per))
    held[m.lanes.ravel(), m.elements.ravel()] = values.ravel()
    raw = np.ascontiguousarray(_encode(held, kind)).view(np.uint32).reshape(64, m.registers)
    return np.ascontiguousarray(raw.T).ravel()


def execute_matrix(op: str, a: Any, b: Any) -> Any:
    """Execute one matrix instruction on A ``[block, row, k]`` and B ``[block, k, column]`` of small whole numbers.

    The operands are laid into registers by :func:`~cdna.explain.operand_map.lane_map`. For a sparse
    instruction A has the stored values, the first and second of every four along k.

    Returns:
        The registers of D, ``[register, lane]``, as numbers.
    """
    from cdna.run import run

    maps = [lane_map(op, operand) for operand in "ABD"]
    shape = maps[0].shape
    kinds = shape.in_type.split("_") if shape.in_type.startswith(("fp8", "bf8")) else [shape.in_type] * 2
    out = np.zeros(64 * maps[2].registers, np.uint32)
    text = _text(op, (maps[0].registers, maps[1].registers, maps[2].registers), shape.sparse)
    run(text, 1, [_pack(maps[0], a, kinds[0]), _pack(maps[1], b, kinds[1]), out], count=False)
    if shape.out_type == "f64":
        pairs = np.ascontiguousarray(out.reshape(-1, 2, 64).transpose(0, 2, 1))
        return pairs.view(np.float64).reshape(-1, 64)
    return out.view(np.int32 if shape.out_type == "i32" else np.float32).reshape(-1, 64).astype(np.float64)


def who_answers(op: str, row: int, k: int, block: int = 0) -> list[tuple[int, int, int]]:
    """Put a one into A at (row, k), 1, 2, 3, … into row k of B, and execute: who holds something but zero?

    Returns:
        ``(lane, register, column)`` for each value of D that is not zero; the column is the value less one.

    Raises:
        MapError: no such instruction or element; a sparse instruction.

    >>> who_answers("v_mfma_f32_16x16x16_f16", row=6, k=9)[:3]
    [(16, 2, 0), (17, 2, 1), (18, 2, 2)]
    """
    left, right = lane_map(op, "A"), lane_map(op, "B")
    left.holder(row, k, block)
    if left.shape.sparse:
        raise MapError(f"{op}: the positions of a sparse A are in a register of their own; take a v_mfma instruction")
    a, b = np.zeros(left.lanes.shape), np.zeros(right.lanes.shape)
    a[block, row, k] = 1
    columns = b.shape[2]
    # Numbers up to 8 fit every type: the low and the high digit of the column in two executions.
    low, high = np.arange(1, columns + 1) % 8, np.arange(1, columns + 1) // 8
    digits = []
    for digit in (low, high):
        b[block, k] = digit
        digits.append(execute_matrix(op, a, b))
    values = digits[0] + 8 * digits[1]
    return [(int(lane), int(r), int(values[r, lane]) - 1) for r, lane in np.argwhere(values)]
