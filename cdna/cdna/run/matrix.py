# SPDX-License-Identifier: MIT
"""The matrix instructions: where each lane's elements lie in A, B, C and D, and the product.

Products and sums are taken in float64 (exactly, for 8- and 16-bit inputs and integers) and rounded once to the type
of the result. The hardware rounds partial sums, too, so the last bits may differ: ``hardware_sums`` of
:func:`cdna.run.session.run` does as it does, see :mod:`cdna.run.matrix_sums`. How much that is, by type, prints
``python -m cdna.run.matrix_sums``. EXEC is ignored, as on hardware.
Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, "Matrix Arithmetic Instructions"; layouts: "AMD Matrix
Instruction Calculator", https://github.com/ROCm/amd_matrix_instruction_calculator (its way from an element of D to
register and lane is followed for every shape in cdna/tests/run/test_isa_details.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from cdna.isa.mnemonics import MatrixShape, matrix_shape
from cdna.run.access import Access
from cdna.run.arithmetic import FLOAT8, bf16_to_f32, to_xf32
from cdna.run.matrix_sums import hardware_product
from cdna.run.state import Run, Wave

__all__ = ["SHAPES", "layout_d"]

_F8 = ("fp8_fp8", "fp8_bf8", "bf8_fp8", "bf8_bf8")
# What gfx942 has: (sparse, input) -> (m, n, k, blocks).
SHAPES: dict[tuple[bool, str], tuple[tuple[int, int, int, int], ...]] = {
    (False, "f32"): ((32, 32, 1, 2), (16, 16, 1, 4), (4, 4, 1, 16), (32, 32, 2, 1), (16, 16, 4, 1)),
    (False, "xf32"): ((16, 16, 8, 1), (32, 32, 4, 1)),
    (False, "f64"): ((16, 16, 4, 1), (4, 4, 4, 4)),
    (False, "i8"): ((32, 32, 4, 2), (16, 16, 4, 4), (4, 4, 4, 16), (32, 32, 16, 1), (16, 16, 32, 1)),
    **{
        (False, t): ((32, 32, 4, 2), (16, 16, 4, 4), (4, 4, 4, 16), (32, 32, 8, 1), (16, 16, 16, 1))
        for t in ("f16", "bf16")
    },
    **{(False, t): ((16, 16, 32, 1), (32, 32, 16, 1)) for t in _F8},
    **{(True, t): ((16, 16, 32, 1), (32, 32, 16, 1)) for t in ("f16", "bf16")},
    **{(True, t): ((16, 16, 64, 1), (32, 32, 32, 1)) for t in ("i8", *_F8)},
}


@lru_cache(maxsize=128)
def layout_d(m: int, n: int, blocks: int, is_f64: bool = False) -> Any:
    """Return for each result register and lane its place in D ``[block, row, column]``, flat.

    >>> (layout_d(32, 32, 1)[5, 40] // 32, layout_d(32, 32, 1)[5, 40] % 32)
    (np.int64(13), np.int64(8))
    """
    values = m * n * blocks // 64
    v, lane = np.meshgrid(np.arange(values), np.arange(64), indexing="ij")
    if is_f64 and m == 4:
        block, i, j = lane // 4 % 4, lane // 16, lane % 4
    elif is_f64:
        block, i, j = 0 * v, 4 * v + lane // 16, lane % 16
    elif m == 4:
        block, i, j = lane // 4, v, lane % 4
    else:
        per = m * n // 64  # registers of one block
        groups = 64 // n
        block, inside = v // per, v % per
        i = inside // 4 * (4 * groups) + lane // n * 4 + inside % 4
        j = lane % n
    return (block * m + i) * n + j


# input type -> (type of the elements in a register, function to values that numpy multiplies)
_ELEMENTS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "f16": (np.float16, lambda x: x),
    "bf16": (np.uint16, bf16_to_f32),
    "f32": (np.float32, lambda x: x),
    "xf32": (np.float32, to_xf32),
    "i8": (np.int8, lambda x: x),
    "f64": (np.float64, lambda x: x),
    "fp8": (np.uint8, lambda x: FLOAT8["fp8"][x]),
    "bf8": (np.uint8, lambda x: FLOAT8["bf8"][x]),
}


def _lane_groups(blgp: int) -> Any:
    """Return which lane of B each lane takes by BLGP."""
    lane = np.arange(64)
    return (
        lane,
        lane % 32,
        lane % 32 + 32,
        (lane + 16) % 64,
        lane % 16,
        lane % 16 + 16,
        lane % 16 + 32,
        lane % 16 + 48,
    )[blgp]


def _raw(a: Access, i: int, count: int, dtype: Any) -> Callable[[Wave], Any]:
    """Return a reader of registers of A or B as elements ``[register, wave, lane, element]``."""
    n = a.rows(i, count)

    def read(w: Wave) -> Any:
        first = w.row(n)
        raw = w.block[first : first + count]
        if dtype == np.float64:  # one element in two registers
            raw = np.ascontiguousarray(raw.T)
        return raw.view(dtype).reshape(count * 4 // max(4, dtype().itemsize), -1, 64, max(1, 4 // dtype().itemsize))

    return read


def _source(a: Access, i: int, rows: int, k: int, blocks: int, kind: str, pattern: Any = None) -> Callable[[Wave], Any]:
    """Return a reader of A, or B with its columns as rows: ``[wave, block, row, k]`` in float64.

    A lane holds neighbouring elements of one row; the next ones of this row lie ``rows * blocks`` lanes further on.
    """
    dtype, widen = _ELEMENTS[kind]
    each = rows * k * blocks // 64
    read = _raw(a, i, max(1, each * dtype().itemsize // 4), dtype)

    def get(w: Wave) -> Any:
        raw = read(w)
        if pattern is not None:
            raw = raw[:, :, pattern]
        parts = raw.reshape(len(raw), raw.shape[1], k // each, blocks, rows, raw.shape[3])
        values = widen(np.ascontiguousarray(parts.transpose(1, 3, 4, 2, 0, 5)))
        return values.reshape(-1, blocks, rows, k).astype(np.float64)

    return get


def _accumulator(a: Access, i: int, count: int, dtype: Any) -> Callable[[Wave], Any]:
    """Return a reader of C as ``[value, wave, lane]`` in float64, from registers or an inline constant."""
    o = a.take(i)
    wide = 2 if dtype == np.float64 else 1
    if o.kind != "v":
        if o.kind not in ("int", "float"):
            raise a.fail(f"{o.text} cannot be an accumulator")
        bits = o.constant("f64" if wide == 2 else "f32")
        value = np.array([bits], np.uint64 if wide == 2 else np.uint32).view(dtype)[0].astype(np.float64)
        return lambda w: value
    n = a.rows(i, count)
    if wide == 1:
        return lambda w: w.block[w.row(n) : w.row(n) + count].view(dtype).reshape(count, -1, 64).astype(np.float64)

    def pairs(w: Wave) -> Any:
        raw = w.block[w.row(n) : w.row(n) + count].reshape(count // 2, 2, -1)
        return np.ascontiguousarray(raw.transpose(0, 2, 1)).view(np.float64).reshape(count // 2, -1, 64)

    return pairs


def _to_registers(m: int, n: int, blocks: int, is_f64: bool) -> Callable[[Any], Any]:
    """Return what turns D ``[wave, block, row, column]`` to ``[value, wave, lane]``; see :func:`layout_d`."""
    if m == 4 or is_f64:
        index = layout_d(m, n, blocks, is_f64)
        return lambda x: x.reshape(len(x), -1)[:, index].transpose(1, 0, 2)
    values, groups = m * n * blocks // 64, 64 // n

    def spread(x: Any) -> Any:
        parts = x.reshape(len(x), blocks, m // (4 * groups), groups, 4, n)
        return parts.transpose(1, 2, 4, 0, 3, 5).reshape(values, -1, 64)

    return spread


def _negations(a: Access, shape: MatrixShape) -> tuple[float, ...]:
    """Return the signs, which f64 has where the others have the lane pattern of B."""
    signs = a.bits("neg", (0, 0, 0))
    if shape.in_type != "f64" and any(signs):
        raise a.fail("only the f64 matrix instructions have neg")
    return tuple(-1.0 if s else 1.0 for s in signs)


def decode_matrix(a: Access, hardware_sums: bool) -> Run | None:
    """Return the function that executes a matrix instruction, or None if gfx942 has none of this name.

    ``hardware_sums`` adds up as an MI300X does (the sparse ones excepted), otherwise a sum is rounded once.
    """
    shape = matrix_shape(a.base)
    if shape is None or (shape.m, shape.n, shape.k, shape.blocks) not in SHAPES.get((shape.sparse, shape.in_type), ()):
        return None
    is_f64 = shape.in_type == "f64"
    kinds = shape.in_type.split("_") if shape.in_type in _F8 else [shape.in_type] * 2
    m, n, k, blocks = shape.m, shape.n, shape.k, shape.blocks
    dtype = np.float64 if is_f64 else np.int32 if shape.out_type == "i32" else np.float32
    if shape.out_type != {np.float64: "f64", np.int32: "i32", np.float32: "f32"}[dtype]:
        return None
    a.all_lanes = True
    cbsz, abid, blgp = a.number("cbsz"), a.number("abid"), a.number("blgp")
    if not (0 <= cbsz < 8 and 0 <= abid < 16 and 0 <= blgp < 8) or (1 << cbsz > blocks and not shape.sparse):
        raise a.fail("cbsz, abid or blgp is out of range")
    get_a = _sparse(a, shape, kinds[0], (cbsz, abid)) if shape.sparse else _source(a, 1, m, k, blocks, kinds[0])
    get_b = _source(a, 2, n, k, blocks, kinds[1], _lane_groups(blgp) if blgp else None)
    registers = m * n * blocks // 64 * (2 if is_f64 else 1)
    get_c = _accumulator(a, 0 if shape.sparse else 3, registers, dtype)
    d = a.rows(0, registers, write=True)
    spread = _to_registers(m, n, blocks, is_f64)
    sign_a, sign_b, sign_c = _negations(a, shape)
    clamp = "clamp" in a.mods
    a.used.add("clamp")
    a.lanewise = True
    picked = np.arange(blocks) >> cbsz << cbsz | abid & ((1 << cbsz) - 1) if cbsz and not shape.sparse else None

    stepwise = hardware_sums and not shape.sparse and dtype is not np.int32
    places = layout_d(m, n, blocks, is_f64)

    def gathered(c: Any, waves: int) -> Any:
        """Turn C ``[value, wave, lane]`` to ``[wave, block, row, column]``."""
        out = np.empty((waves, m * n * blocks))
        out[:, places] = np.broadcast_to(c, (len(places), waves, 64)).transpose(1, 0, 2)
        return out.reshape(waves, blocks, m, n)

    def run(w: Wave) -> None:
        first = get_a(w)
        if picked is not None:
            first = first[:, picked]
        if stepwise:
            c = gathered(sign_c * get_c(w), len(first))
            total = spread(hardware_product(first * (sign_a * sign_b), get_b(w), c, (kinds[0], kinds[1])))
        else:
            total = spread(np.matmul(first, get_b(w).swapaxes(2, 3)))
            if is_f64:
                total *= sign_a * sign_b
            total += sign_c * get_c(w) if is_f64 else get_c(w)
        rows = w.block[w.row(d) : w.row(d) + registers]
        if dtype is np.float32:
            rows.view(np.float32).reshape(total.shape)[:] = total
        elif dtype is np.int32:
            whole = total.astype(np.int64)
            whole = np.clip(whole, -(1 << 31), (1 << 31) - 1) if clamp else whole
            rows.reshape(total.shape)[:] = (whole & 0xFFFFFFFF).astype(np.uint32)
        else:
            pairs = np.ascontiguousarray(total).view(np.uint32).reshape(len(total), -1, 2)
            rows[:] = pairs.transpose(0, 2, 1).reshape(registers, -1)

    return run


def _sparse(a: Access, shape: MatrixShape, kind: str, select: tuple[int, int]) -> Callable[[Wave], Any]:
    """Return a reader of A of v_smfmac: of every four elements two are stored, and an index register says which.

    With cbsz 0, abid picks the 8-bit (16-bit inputs) or 16-bit set of indices; otherwise it is the first.
    """
    cbsz, abid = select
    m, k = shape.m, shape.k
    dtype, widen = _ELEMENTS[kind]
    each = m * k // 128
    read = _raw(a, 1, max(1, each * dtype().itemsize // 4), dtype)
    n = a.rows(3, 1)
    sets = 32 // (2 * each)
    shift = np.uint32(0 if cbsz else abid % sets * 2 * each)
    lane, e = np.meshgrid(np.arange(64), np.arange(each), indexing="ij")
    row, base = lane % m, lane // m * (2 * each) + e // 2 * 4
    places = row * k + base
    shifts = (2 * e).astype(np.uint32)

    def get(w: Wave) -> Any:
        raw = read(w)
        values = widen(np.ascontiguousarray(raw.transpose(1, 2, 0, 3))).reshape(-1, 64, each)
        which = (w.V[n] >> shift).reshape(-1, 64, 1) >> shifts & np.uint32(3)
        full = np.zeros((len(values), m * k))
        np.put_along_axis(full, (places + which).reshape(len(values), -1), values.reshape(len(values), -1), 1)
        return full.reshape(-1, 1, m, k)

    return get
