# SPDX-License-Identifier: MIT
"""Lane maps found by execution: a matrix instruction in a kernel of its own, run as gfx942 machine code.

A one in one element of A, numbers in B: the lanes and registers of D that are not zero are the row of that element.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cdna.explain.operand_map import LaneMap, MapError, lane_map

__all__ = ["execute_matrix", "who_answers"]

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
