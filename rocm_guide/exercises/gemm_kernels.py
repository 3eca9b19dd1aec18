# SPDX-License-Identifier: MIT
"""Checks of the exercises of notebook 31: each says what is missing, and returns whether the answer holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rocm_guide.exercises.common import say

__all__ = ["check_busy", "check_skinny", "check_touch"]


def check_busy(busy: Callable[[int, int, int, int, int], float]) -> bool:
    """Check exercise 1: ``busy(m, n, bm, bn, units)``, the share of time that compute units work,
    whole tiles dealt out.

    >>> check_busy(lambda m, n, bm, bn, units: (m // bm) * (n // bn) / units)
    [HINT] 4096 x 4864, tiles 256 x 128: you say 2.000, but no more than 1 is possible. Divide by full rounds
    False
    """
    cases = (
        (4096, 4864, 256, 128, 304),
        (4096, 4096, 128, 128, 304),
        (4097, 4096, 128, 128, 304),
        (100, 100, 128, 128, 304),
        (2560, 3584, 128, 256, 132),
    )
    for m, n, bm, bn, units in cases:
        tiles = -(-m // bm) * -(-n // bn)
        right = tiles / (-(-tiles // units) * units)
        shown = f"{m} x {n}, tiles {bm} x {bn}"
        try:
            given = busy(m, n, bm, bn, units)
        except (TypeError, ZeroDivisionError) as e:
            return say(False, f"{shown}: busy(m, n, bm, bn, units) fails: {e}")
        if not isinstance(given, int | float) or isinstance(given, bool):
            return say(False, f"{shown}: you say {given!r}; a number from 0 to 1 is wanted")
        if given > 1:
            return say(False, f"{shown}: you say {given:.3f}, but no more than 1 is possible. Divide by full rounds")
        if abs(given - right) > 1e-6:
            hint = "tiles at the edge count too: round up" if m % bm or n % bn else "rounds times units is what is paid"
            return say(False, f"{shown} on {units} units: you say {given:.3f}; {hint}")
    return say(True, "4097 rows cost a whole row of tiles more than 4096: the last round decides")


def check_touch(touch: Callable[[int, int, int], Mapping[int, Iterable[int]]]) -> bool:
    """Check exercise 2: ``touch(tiles, steps, workers)``, for each tile the workers whose stretch reaches into it,
    in order.

    Stretches are those of stream-K: worker w does steps total * w // workers up to total * (w + 1) // workers.

    >>> check_touch(lambda tiles, steps, workers: {t: [t % workers] for t in range(tiles)})
    [HINT] 3 tiles of 4 steps, 2 workers: tile 1 is touched by [0, 1], you say [1]
    False
    """
    for tiles, steps, workers in ((3, 4, 2), (5, 8, 4), (4, 4, 4), (1, 16, 5), (7, 3, 10), (140, 64, 132)):
        shown = f"{tiles} tiles of {steps} steps, {workers} workers"
        right: dict[int, list[int]] = {t: [] for t in range(tiles)}
        for w in range(workers):
            first, last = tiles * steps * w // workers, tiles * steps * (w + 1) // workers
            for t in range(first // steps, -(-last // steps) if last > first else 0):
                right[t].append(w)
        try:
            given = {t: list(ws) for t, ws in touch(tiles, steps, workers).items()}
        except (TypeError, AttributeError, ZeroDivisionError, KeyError) as e:
            return say(False, f"{shown}: touch(tiles, steps, workers) fails: {type(e).__name__}: {e}")
        for t in range(tiles):
            if given.get(t) != right[t]:
                return say(False, f"{shown}: tile {t} is touched by {right[t]}, you say {given.get(t)}")
    return say(True, "the last worker in each list finishes the tile, and waits only for those before it")


def check_skinny(config: Mapping[str, Any], arch: str = "gfx942") -> bool:
    """Check exercise 3: ``{"bn", "bk", "warps", "groups"}`` for 16 x 2304 x 16384 in fp8 on an MI300X.

    Wanted: 304 workgroups or more, loads in the loop of 128 bits only, nothing spilled, and at least 4 waves per SIMD.

    >>> check_skinny({"bn": 128, "bk": 128, "warps": 4, "groups": 1})
    [HINT] loads in the loop are {128: 4, 64: 1} (bits per lane: instructions); x is narrow: 16 x bk values, 256 lanes
    False
    """
    import torch

    from cdna.dry_run.driver import dry_run
    from rocm_guide.kernels.gemm_skinny import SkinnyTile, gemm_skinny

    missing = [k for k in ("bn", "bk", "warps", "groups") if not isinstance(config.get(k), int | float)]
    if missing:
        return say(False, f"give a number for {', '.join(missing)}")
    for name in ("bn", "bk", "warps"):
        if config[name] < 1 or int(config[name]) & (int(config[name]) - 1) or config[name] != int(config[name]):
            return say(False, f"{name}={config[name]!r}: a power of two is wanted")
    if config["bn"] * config["bk"] > 65_536:  # the compiler would take minutes to say so
        return say(False, f"{config['bn']} x {config['bk']} bytes of weight at a time: LDS holds 65,536 in all")
    if config["bn"] < 16 or config["bk"] < 32:
        return say(False, f"{config['bn']} x {config['bk']}: a matrix instruction for fp8 takes 16 x 32 and more")
    if not config["groups"] > 0:
        return say(False, f"groups={config['groups']}: workgroups for each compute unit, more than 0")
    tile = SkinnyTile(config["bn"], config["bk"], config["warps"], 2, config["groups"])
    try:
        with dry_run(arch, device="meta") as run:
            x, w = (torch.empty(s, 16384, dtype=torch.float8_e4m3fnuz, device="cuda") for s in (16, 2304))
            gemm_skinny(x, w, tile=tile)
    except ValueError as e:
        return say(False, str(e))
    r = run.reports[0]
    groups = run.launches[0].grid[0] * run.launches[0].grid[1]
    if not r.launches:
        return say(False, f"{r.findings[0].evidence}. Try: {r.findings[0].fix}")
    if r.resources.vgpr_spills:
        return say(False, f"{r.resources.vgpr_spills} registers spill: fewer rows of the weight at a time")
    if set(r.isa.global_loads_in_loops) != {128}:
        lanes = 64 * config["warps"]
        text = f"loads in the loop are {r.isa.global_loads_in_loops} (bits per lane: instructions)"
        return say(False, f"{text}; x is narrow: 16 x bk values, {lanes} lanes")
    if groups < 304:
        return say(False, f"{groups} workgroups for 304 compute units: share K out among more of them (groups)")
    if r.occupancy.waves_per_simd < 4:
        limit = " and ".join(r.occupancy.limited_by)
        return say(False, f"{r.occupancy.waves_per_simd:g} waves per SIMD, limited by {limit}; 4 are wanted")
    return say(True, f"{groups} workgroups, {r.occupancy.waves_per_simd:g} waves per SIMD, {r.lds:,} B of LDS each")
