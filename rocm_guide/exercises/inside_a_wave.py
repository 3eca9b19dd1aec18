# SPDX-License-Identifier: MIT
"""Checks of notebook 25 (inside_a_wave)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cdna.run import RunError, run
from cdna.run.matrix import layout_d
from rocm_guide.exercises.common import FAULTS, no, yes

__all__ = ["TWO_LOADS", "check_place", "check_tail_mask", "check_waits"]

#: Exercise 2: y[i] = x[i]^2 + x[i + 64]; FIRST and SECOND stand for two counts.
TWO_LOADS = """
.amdgcn_target "amdgcn-amd-amdhsa--gfx942"
.type two_loads,@function
two_loads:
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32_e32 v1, 2, v0
  s_waitcnt lgkmcnt(0)
  global_load_dword v2, v1, s[4:5]
  global_load_dword v3, v1, s[4:5] offset:256
  s_waitcnt vmcnt(FIRST)
  v_mul_f32_e32 v2, v2, v2
  s_waitcnt vmcnt(SECOND)
  v_add_f32_e32 v2, v2, v3
  global_store_dword v1, v2, s[6:7]
  s_endpgm
.amdgpu_metadata
amdhsa.kernels:
  - .args:
      - .offset:         0
        .size:           8
        .value_kind:     global_buffer
      - .offset:         8
        .size:           8
        .value_kind:     global_buffer
    .max_flat_workgroup_size: 64
    .name:           two_loads
.end_amdgpu_metadata
"""


def check_tail_mask(tail_mask: Callable[[int, int], int]) -> bool:
    """Check exercise 1: ``tail_mask(cols, first)`` is the mask of the lanes of a wave whose column exists.

    Lane L of the wave has column ``first + L``; bit L of the mask says that it is below ``cols``.

    >>> check_tail_mask(lambda cols, first: (1 << max(0, min(64, cols - first))) - 1)
    [OK]   one bit for each lane that has a column, from none to all 64
    True
    """
    for cols, first in ((500, 448), (500, 0), (500, 512), (1, 0), (64, 0), (65, 64), (127, 64), (3, 64)):
        right = sum(1 << lane for lane in range(64) if first + lane < cols)
        try:
            mine = tail_mask(cols, first)
        except FAULTS as e:
            return no(f"tail_mask({cols}, {first}): not yet. it raises {type(e).__name__}: {e}")
        if isinstance(mine, bool) or not isinstance(mine, (int, np.integer)):
            kind = type(mine).__name__
            return no(f"tail_mask({cols}, {first}): not yet. return a whole number with 64 bits, not {kind}")
        if mine != right:
            if int(mine) < 0 or int(mine) >> 64:
                hint = "a mask has 64 bits: no lane when first is beyond the end, and never more than 64"
            elif mine == int(f"{right:064b}"[::-1], 2):
                hint = "lane 0 is the lowest bit"
            elif int(mine).bit_count() == right.bit_count() + 1:
                hint = "one lane too many: column cols does not exist any more"
            else:
                hint = "count the columns that are left, cols - first, and set as many bits"
            return no(f"tail_mask({cols}, {first}) = {hex(mine)}: not yet. {hint}")
    return yes("one bit for each lane that has a column, from none to all 64")


def check_waits(first: int, second: int) -> bool:
    """Check exercise 2: the weakest two waits with which :data:`TWO_LOADS` is right; the code is executed with them.

    >>> check_waits(0, 0)
    [HINT] vmcnt(0), vmcnt(0): not yet. the result is right, but the square waits for both loads and needs only one
    False
    """
    for n in (first, second):
        if isinstance(n, bool) or not isinstance(n, int) or not 0 <= n <= 63:
            return no(f"{n!r}: not yet. vmcnt counts from 0 to 63")
    name = f"vmcnt({first}), vmcnt({second})"
    x, y = np.arange(128, dtype=np.float32), np.zeros(64, np.float32)
    try:
        run(TWO_LOADS.replace("FIRST", str(first)).replace("SECOND", str(second)), 1, [x, y])
    except RunError as e:
        return no(f"{name}: not yet. {e}")
    assert np.array_equal(y, x[:64] ** 2 + x[64:])
    if first == 0:
        return no(f"{name}: not yet. the result is right, but the square waits for both loads and needs only one")
    return yes(f"{name}: the square is computed while the second load is under way")


def check_place(place: Callable[[int, int], tuple[int, int]]) -> bool:
    """Check exercise 3: ``place(i, j)`` gives (register, lane) of element (i, j) of the result of a 32x32x8 MFMA.

    Registers count from 0, the first of the sixteen that hold the result.
    """
    where = layout_d(32, 32, 1)
    for register in range(16):
        for lane in range(64):
            i, j = divmod(int(where[register, lane]), 32)
            try:
                mine = tuple(int(n) for n in place(i, j))
            except FAULTS as e:
                return no(f"place({i}, {j}): not yet. it raises {type(e).__name__}: {e}")
            if mine != (register, lane):
                if mine == (lane, register):
                    hint = "first the register, then the lane"
                elif len(mine) == 2 and mine[1] == lane:
                    hint = "the lane is right; rows come in groups of four registers, and every second group of four "
                    hint += "rows belongs to the other half of the wave"
                elif len(mine) == 2 and mine[1] % 32 == lane % 32:
                    hint = "lanes 0 to 31 and 32 to 63 take turns: four rows each"
                else:
                    hint = "the column is the lane's number within its half of the wave"
                return no(f"place({i}, {j}) = {mine}: not yet. {hint}")
    return yes("all 1,024 elements are where the hardware has them")
