# SPDX-License-Identifier: MIT
"""Checks of notebook 39: two decoding kernels of the reader as puzzles of the dojo, and a tile of latent attention."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import torch

from cdna.dry_run.driver import dry_run
from rocm_guide.common.base import GuideError
from rocm_guide.exercises.common import no, yes
from rocm_guide.exercises.kernel_dojo import judge_of
from rocm_guide.kernels.mla_decode import DecodeTile, launch_mla

__all__ = ["check_decode", "check_mla_tile", "check_paged", "matrix_work"]


def matrix_work(mfma: Mapping[str, int], warps: int, rows: int, keys: int) -> float:
    """Return products of one step of latent attention, as a multiple of what the tile needs.

    ``mfma`` has the matrix instructions of one wave with their number; an instruction of 16x16x16 makes 4,096 products.
    ``rows`` heads times ``keys`` keys need 576 products for the scores and 512 for the sums.

    >>> matrix_work({"v_mfma_f32_16x16x16_bf16": 68}, 8, 32, 64)
    1.0
    """
    made = 0
    for op, count in mfma.items():
        size = re.search(r"(\d+)x(\d+)x(\d+)", op)
        assert size is not None  # every matrix instruction has its size in its name
        made += count * math.prod(int(n) for n in size.groups())
    return made * warps / (rows * keys * (576 + 512))


def check_mla_tile(config: Mapping[str, Any], arch: str = "gfx942") -> bool:
    """Check exercise 3: a tile of 16 heads that fits: nothing spilled, 2 waves per SIMD, at most 1.6 x the needed work.

    ``config`` has ``block`` (keys per step) and ``num_warps``.

    >>> check_mla_tile({"block": 17, "num_warps": 4})
    [HINT] block=17: a power of two from 16 to 128
    False
    """
    block, warps = config.get("block"), config.get("num_warps")
    if block not in (16, 32, 64, 128):
        return no(f"block={block!r}: a power of two from 16 to 128")
    if warps not in (1, 2, 4, 8, 16):
        return no(f"num_warps={warps!r}: a power of two from 1 to 16")
    try:
        with dry_run(arch, device="meta") as run:
            q, rope = (torch.empty(1, 16, n, dtype=torch.bfloat16, device="cuda") for n in (512, 64))
            cache = torch.empty(1, 32768, 576, dtype=torch.bfloat16, device="cuda")
            tile = DecodeTile(block, per_unit=2, least=128, warps=warps)
            launch_mla(q, rope, cache[..., :512], cache[..., 512:], None, 0.07, 8, {16: tile})
        r = run.launches[0].report
    except GuideError as e:
        return no(str(e))
    if not r.launches:
        return no(f"{r.findings[0].evidence}. Try: {r.findings[0].fix}")
    if r.resources.vgpr_spills:
        return no(f"{r.resources.vgpr_spills} registers spill: fewer keys per step, or more warps to share them")
    if r.occupancy.waves_per_simd < 2:
        limits = " and ".join(r.occupancy.limited_by)
        return no(f"{r.occupancy.waves_per_simd:g} wave per SIMD, limited by {limits}; 2 are wanted")
    work = matrix_work(r.isa.mfma, warps, 16, block)
    text = f"{r.resources.vgprs_allocated} VGPRs, {r.occupancy.waves_per_simd:g} waves, {work:.2f} x the needed work"
    if work > 1.6:
        own = "1 wave has scores of its own" if block == 16 else f"{block // 16} waves have scores of their own"
        return no(f"{text}: with {block} keys {own}, the others repeat")
    return yes(text)


check_decode = judge_of("decode")
check_paged = judge_of("paged_decode")
