# SPDX-License-Identifier: MIT
"""The matrix instructions: where each lane's elements lie in A, B, C and D, and the product.

Products and sums are taken in float64 (exactly, for 8- and 16-bit inputs and integers) and rounded once to the type
of the result. The hardware rounds partial sums in a way that AMD does not publish, so the last bit may differ.
EXEC is ignored, as on hardware.
Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, "Matrix Arithmetic Instructions"; layouts: "AMD Matrix
Instruction Calculator", https://github.com/ROCm/amd_matrix_instruction_calculator.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from rocm_guide.mi300x.isa.mnemonics import MatrixShape, matrix_shape
from rocm_guide.mi300x.run.vector.access import Access
from rocm_guide.mi300x.run.vector.convert import FLOAT8, bf16_to_f32, to_xf32
from rocm_guide.mi300x.run.wave import Wave

__all__ = ["SHAPES", "decode_matrix", "layout_ab", "layout_d"]

_F8 = ("fp8_fp8", "fp8_bf8", "bf8_fp8", "bf8_bf8")
# What gfx942 has: (sparse, input) -> (m, n, k, blocks).
SHAPES: dict[tuple[bool, str], tuple[tuple[int, int, int, int], ...]] = {
    (False, "f32"): ((32, 32, 1, 2), (16, 16, 1, 4), (4, 4, 1, 16), (32, 32, 2, 1), (16, 16, 4, 1)),
    (False, "xf32"): ((16, 16, 8, 1), (32, 32, 4, 1)),
    (False, "f64"): ((16, 16, 4, 1), (4, 4, 4, 4)),
    (False, "i8"): ((32, 32, 4, 2), (16, 16, 4, 4), (4, 4, 4, 16), (32, 32, 16, 1), (16, 16, 32, 1)),
    **{(False, t): ((32, 32, 4, 2), (16, 16, 4, 4), (4, 4, 4, 16), (32, 32, 8, 1), (16, 16, 16, 1))
       for t in ("f16", "bf16")},
    **{(False, t): ((16, 16, 32, 1), (32, 32, 16, 1)) for t in _F8},
    **{(True, t): ((16, 16, 32, 1), (32, 32, 16, 1)) for t in ("f16", "bf16")},
    **{(True, t): ((16, 16, 64, 1), (32, 32, 32, 1)) for t in ("i8", *_F8)},
}  # fmt: skip
_BITS = {"f32": 32, "xf32": 32, "f64": 64, "i8": 8, "f16": 16, "bf16": 16, **dict.fromkeys(_F8, 8)}


@lru_cache(maxsize=128)
def layout_ab(rows: int, k: int, blocks: int, each: int, is_f64: bool = False) -> Any:
    """For A ``[block, row, k]`` (or B with its columns as rows): which element, as ``lane * each + position``.

    ``each`` elements of a row lie in one lane; the next ones lie ``rows`` lanes further on.

    >>> layout_ab(32, 8, 1, 4)[0, 5].tolist()
    [20, 21, 22, 23, 148, 149, 150, 151]
    """
    b, i, kk = np.meshgrid(np.arange(blocks), np.arange(rows), np.arange(k), indexing="ij")
    lane = i + rows * (b + blocks * kk) if is_f64 else i + rows * (b + blocks * (kk // each))
    return lane * each + (0 if is_f64 else kk % each)


@lru_cache(maxsize=128)
def layout_d(m: int, n: int, blocks: int, is_f64: bool = False) -> Any:
    """For each result register and lane its place in D ``[block, row, column]``, flat.

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


def _widen(kind: str) -> Callable[[Any], Any]:
    """From raw registers ``[64, registers]`` to float64 ``[64 * elements]``."""
    if kind == "f16":
        return lambda r: r.view(np.float16).astype(np.float64).ravel()
    if kind == "bf16":
        return lambda r: bf16_to_f32(r.view(np.uint16)).astype(np.float64).ravel()
    if kind == "f32":
        return lambda r: r.view(np.float32).astype(np.float64).ravel()
    if kind == "xf32":
        return lambda r: to_xf32(r.view(np.float32)).astype(np.float64).ravel()
    if kind == "f64":
        return lambda r: r.view(np.float64).ravel()
    if kind == "i8":
        return lambda r: r.view(np.int8).astype(np.float64).ravel()
    table = FLOAT8[kind].astype(np.float64)
    return lambda r: table[r.view(np.uint8)].ravel()


def _lane_groups(blgp: int) -> Any:
    """BLGP: which lane of B each lane takes."""
    lane = np.arange(64)
    return (lane, lane % 32, lane % 32 + 32, (lane + 16) % 64, lane % 16, lane % 16 + 16, lane % 16 + 32,
            lane % 16 + 48)[blgp]  # fmt: skip


def _source(a: Access, i: int, count: int) -> Callable[[Wave], Any]:
    """The registers of A or B as ``[64, count]``."""
    n = a.rows(i, count)

    def read(w: Wave) -> Any:
        first = w.row(n)
        return np.ascontiguousarray(w.block[first : first + count].T)

    return read


def _accumulator(a: Access, i: int, count: int, dtype: Any) -> Callable[[Wave], Any]:
    """C as ``[values, 64]`` of its type, from registers or an inline constant."""
    o = a.take(i)
    wide = 2 if dtype == np.float64 else 1
    if o.kind != "v":
        if o.kind not in ("int", "float"):
            raise a.fail(f"{o.text} cannot be an accumulator")
        bits = o.constant("f64" if wide == 2 else "f32")
        value = np.array([bits], np.uint64 if wide == 2 else np.uint32).view(dtype)[0]
        return lambda w: value
    n = a.rows(i, count)
    if wide == 1:
        return lambda w: w.block[w.row(n) : w.row(n) + count].view(dtype)

    def pairs(w: Wave) -> Any:
        raw = w.block[w.row(n) : w.row(n) + count].reshape(count // 2, 2, 64)
        return np.ascontiguousarray(raw.transpose(0, 2, 1)).view(np.float64)[..., 0]

    return pairs


def _negations(a: Access, shape: MatrixShape) -> tuple[float, ...]:
    """f64 has signs where the others have the lane pattern of B."""
    signs = a.bits("neg", (0, 0, 0))
    if shape.in_type != "f64" and any(signs):
        raise a.fail("only the f64 matrix instructions have neg")
    return tuple(-1.0 if s else 1.0 for s in signs)


def decode_matrix(a: Access) -> Callable[[Wave], None] | None:
    """The function that executes a matrix instruction, or None if gfx942 has none of this name."""
    shape = matrix_shape(a.base)
    if shape is None or (shape.m, shape.n, shape.k, shape.blocks) not in SHAPES.get((shape.sparse, shape.in_type), ()):
        return None
    is_f64 = shape.in_type == "f64"
    kinds = shape.in_type.split("_") if shape.in_type in _F8 else [shape.in_type] * 2
    bits = _BITS[shape.in_type]
    m, n, k, blocks = shape.m, shape.n, shape.k, shape.blocks
    dtype = np.float64 if is_f64 else np.int32 if shape.out_type == "i32" else np.float32
    if shape.out_type != {np.float64: "f64", np.int32: "i32", np.float32: "f32"}[dtype]:
        return None
    each_b = n * k * blocks // 64
    each_a = each_b * m // n // (2 if shape.sparse else 1)
    a.all_lanes = True
    read_a, read_b = _source(a, 1, max(1, each_a * bits // 32)), _source(a, 2, max(1, each_b * bits // 32))
    registers = m * n * blocks // 64 * (2 if is_f64 else 1)
    read_c = _accumulator(a, 0 if shape.sparse else 3, registers, dtype)
    d = a.rows(0, registers, write=True)
    index_b, index_d = layout_ab(n, k, blocks, each_b, is_f64), layout_d(m, n, blocks, is_f64)
    widen_a, widen_b = _widen(kinds[0]), _widen(kinds[1])
    cbsz, abid, blgp = a.number("cbsz"), a.number("abid"), a.number("blgp")
    if not (0 <= cbsz < 8 and 0 <= abid < 16 and 0 <= blgp < 8) or (1 << cbsz > blocks and not shape.sparse):
        raise a.fail("cbsz, abid or blgp is out of range")
    sign_a, sign_b, sign_c = _negations(a, shape)
    clamp = "clamp" in a.mods
    a.used.add("clamp")
    if shape.sparse:
        get_a = _sparse(a, read_a, widen_a, shape, each_a, (cbsz, abid))
    else:
        index_a = layout_ab(m, k, blocks, each_a, is_f64)
        if cbsz:
            index_a = index_a[np.arange(blocks) >> cbsz << cbsz | abid & ((1 << cbsz) - 1)]

        def get_a(w: Wave) -> Any:
            return widen_a(read_a(w))[index_a]

    pattern = _lane_groups(blgp) if blgp else None

    def run(w: Wave) -> None:
        raw = read_b(w)
        if pattern is not None:
            raw = np.ascontiguousarray(raw[pattern])
        product = np.matmul(get_a(w), widen_b(raw)[index_b].transpose(0, 2, 1))
        total = product.ravel()[index_d] * (sign_a * sign_b) + sign_c * read_c(w).astype(np.float64)
        first = w.row(d)
        if dtype is np.float32:
            w.block.view(np.float32)[first : first + registers] = total
        elif dtype is np.int32:
            whole = total.astype(np.int64)
            whole = np.clip(whole, -(1 << 31), (1 << 31) - 1) if clamp else whole
            w.block[first : first + registers] = (whole & 0xFFFFFFFF).astype(np.uint32)
        else:
            pairs = np.ascontiguousarray(total).view(np.uint32).reshape(-1, 64, 2)
            w.block[first : first + registers] = pairs.transpose(0, 2, 1).reshape(registers, 64)

    return run


def _sparse(a: Access, read: Callable[[Wave], Any], widen: Callable[[Any], Any], shape: MatrixShape, each: int,
            select: tuple[int, int]) -> Callable[[Wave], Any]:  # fmt: skip
    """A of v_smfmac: of every four elements two are stored, and an index register says which.

    With cbsz 0, abid picks the 8-bit (16-bit inputs) or 16-bit set of indices; otherwise it is the first.
    """
    cbsz, abid = select
    n = a.rows(3, 1)
    sets = 32 // (2 * each)
    shift = np.uint32(0 if cbsz else abid % sets * 2 * each)
    m, k = shape.m, shape.k
    lane, e = np.meshgrid(np.arange(64), np.arange(each), indexing="ij")
    row, base = lane % m, lane // m * (2 * each) + e // 2 * 4
    places = (row * k + base).ravel()
    shifts = (2 * e).astype(np.uint32)

    def get(w: Wave) -> Any:
        which = (w.V[n] >> shift)[:, None] >> shifts & np.uint32(3)
        full = np.zeros(m * k)
        full[places + which.ravel()] = widen(read(w))
        return full.reshape(1, m, k)

    return get
