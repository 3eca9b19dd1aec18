# SPDX-License-Identifier: MIT
"""Which tiles and steps of K each program of Hopper's GEMM has, and which stage of shared memory is next."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from rocm_guide.kernels.gluon import to_int64

__all__ = []


@gluon.jit
def share_of_work(tiles, steps, share, MODE: gl.constexpr):
    """What this program does: steps (begin, end) of the shared tiles, in how many pieces, and how many pieces after."""
    worker, workers = gl.program_id(0), gl.num_programs(0)
    if MODE == "stream":
        begin = (to_int64(share * steps) * worker // workers).to(gl.int32)
        end = (to_int64(share * steps) * (worker + 1) // workers).to(gl.int32)
        pieces = gl.where(end > begin, gl.cdiv(end, steps) - begin // steps, 0)
        others = tiles - share
    else:
        begin, end, pieces = 0, 0, 0
        others = tiles * share
    return begin, end, pieces, gl.maximum(gl.cdiv(others - worker, workers), 0)


@gluon.jit
def piece_of_work(i, begin, end, pieces, share, tiles, steps, MODE: gl.constexpr):
    """The ``i``-th piece of this program's work: its tile, the steps of K, from and to, and which part of K it is."""
    worker, workers = gl.program_id(0), gl.num_programs(0)
    if MODE == "stream":
        mine = i < pieces
        tile = gl.where(mine, begin // steps + pieces - 1 - i, share + worker + (i - pieces) * workers)
        first = gl.where(mine, gl.maximum(begin - tile * steps, 0), 0)
        last = gl.where(mine, gl.minimum(end - tile * steps, steps), steps)
        part = 0
    elif MODE == "split":
        # Programs that run at the same time have the same part of K: what they read is in the cache.
        part, tile = (worker + i * workers) // tiles, (worker + i * workers) % tiles
        first, last = steps * part // share, steps * (part + 1) // share
    else:
        tile, first, last, part = worker + i * workers, 0, steps, 0
    return tile, first, last, part


@gluon.jit
def place_of_tile(tile, tiles_m, tiles_n, group):
    """Row and column of a tile, counted in tiles, if these are walked ``group`` rows at a time, column by column."""
    per_group = group * tiles_n
    first = tile // per_group * group
    rows = gl.minimum(tiles_m - first, group)
    return first + tile % per_group % rows, tile % per_group // rows


@gluon.jit
def next_stage(stage, phase, STAGES: gl.constexpr):
    """The stage after this one, and the parity of its barriers: it changes with every round."""
    wraps = stage == STAGES - 1
    return gl.where(wraps, 0, stage + 1), phase ^ wraps.to(gl.int32)


@gluon.jit
def stage_before(stage, STAGES: gl.constexpr):
    """The stage before this one.

    It is computed, not carried along: where a name starts a loop as another name of the same value, Gluon (Triton 3.6
    and 3.9) takes ``before = stage`` in the loop for no change, and leaves it at its first value.
    """
    return gl.where(stage == 0, STAGES - 1, stage - 1)
