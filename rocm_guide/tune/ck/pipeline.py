# SPDX-License-Identifier: MIT
"""The kernel in slow motion: every piece of a CK instance in numpy, from the global loads to the stores, with traffic.

Each thread copies its slice of a tile to LDS in CK's layout, each wave reads its fragments from there, multiplies one
matrix instruction's depth after the other, and the result passes through LDS a slice at a time before it is stored.
What is touched is counted. Threads of a workgroup are numpy lanes: there is no time in this model and no race.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from rocm_guide.tune.ck.instance import BYTES, WAVE, CkError, GemmInstance, Lengths3, Problem
from rocm_guide.tune.ck.operations import operation
from rocm_guide.tune.ck.rules import require

__all__ = ["Traffic", "accumulator_places", "cluster_places", "lds_places", "run_slowly", "traffic"]

_NUMPY: dict[str, type[np.generic]] = {"F16": np.float16, "F32": np.float32, "I8": np.int8, "I32": np.int32}


@dataclass
class Traffic:
    """The bytes that a launch moves and the instructions that it executes; what padding adds is not moved."""

    global_loads: int = 0
    global_stores: int = 0
    lds_writes: int = 0
    lds_reads: int = 0
    mfma: int = 0


def traffic(instance: GemmInstance, problem: Problem) -> Traffic:
    """Count the traffic of a launch by formula, for any size, without computing anything.

    >>> traffic(GemmInstance(), Problem(512, 256, 256))
    Traffic(global_loads=1048576, global_stores=262144, lds_writes=1048576, lds_reads=1835008, mfma=4096)

    Raises:
        CkError: the instance or the problem breaks a rule.
    """
    require(instance, problem)
    i = instance
    assert i.mfma is not None  # a rule
    m, n, k = i.padded(problem)
    down, across, turns = m // i.MPerBlock, n // i.NPerBlock, k // i.KPerBlock
    groups, compute = down * across, BYTES[i.compute_type]
    tiles = problem.K * (across * problem.M * BYTES[i.ADataType] + down * problem.N * BYTES[i.BDataType])
    fragments = groups * k * (i.MPerBlock * i.NWaves + i.NPerBlock * i.MWaves) * compute
    shuffle = BYTES[i.CShuffleDataType] * m * n
    steps = i.KPerBlock // i.mfma.k * i.MXdlPerWave * i.NXdlPerWave64
    d_loads = 0
    for number, dtype in enumerate(i.DsDataType):
        shared = _shared_rows(i, problem, number)
        d_loads += (m * n // shared if shared else problem.M * problem.N) * BYTES[dtype]
    return Traffic(
        global_loads=tiles + d_loads,
        global_stores=problem.M * problem.N * BYTES[i.EDataType],
        lds_writes=groups * k * (i.MPerBlock + i.NPerBlock) * compute + shuffle,
        lds_reads=fragments + shuffle,
        mfma=groups * turns * i.waves * steps * (i.MPerXDL * i.NPerXDL // (i.mfma.m * i.mfma.n * i.mfma.blocks)),
    )


def _shared_rows(i: GemmInstance, p: Problem, number: int) -> int:
    """Return rows of a slice that a thread has, if this D is one row for all, which is loaded once for them; else 0."""
    if number >= len(p.StrideDs) or p.StrideDs[number] != 0:
        return 0
    return i.shuffle_slice[0] // i.CDEBlockTransferClusterLengths_MBlock_MPerBlock_NBlock_NPerBlock[1]


def cluster_places(whole: Lengths3, cluster: Lengths3, order: Lengths3) -> Any:
    """Return which elements each thread copies: an array (threads, elements, 3) of (K0, M or N, K1).

    >>> cluster_places((4, 64, 8), (4, 16, 1), (1, 0, 2))[1, :2].tolist()  # thread 1: the next K0, because 0 is faster
    [[1, 0, 0], [1, 0, 1]]
    """
    piece = [w // c for w, c in zip(whole, cluster, strict=True)]
    threads = np.arange(int(np.prod(cluster)))
    at = np.empty((len(threads), 3), np.int64)
    for dimension in reversed(order):
        at[:, dimension] = threads % cluster[dimension] * piece[dimension]
        threads = threads // cluster[dimension]
    inside = np.stack(np.meshgrid(*(np.arange(p) for p in piece), indexing="ij"), -1).reshape(-1, 3)
    return at[:, None, :] + inside[None]


def lds_places(whole: Lengths3, extra: int) -> Any:
    """Return the element of LDS for each (K0, M or N, K1): planes of K0, in each the rows, in each row K1 neighbours.

    >>> lds_places((4, 64, 8), 1)[1, 0, 0].item()  # one plane further: 64 rows and one extra, of 8 elements
    520
    """
    k0, rows, k1 = np.ogrid[: whole[0], : whole[1], : whole[2]]
    return (k0 * (whole[1] + extra) + rows) * whole[2] + k1


def accumulator_places(rows: int) -> Any:
    """Return the row and column of each accumulator of one matrix instruction's tile: an array (registers, 64, 2).

    For tiles of 32 x 32 and 16 x 16. Source: AMD matrix instruction calculator.

    >>> accumulator_places(32)[5, 33].tolist()  # register 5 of lane 33
    [13, 1]
    """
    register, lane = np.meshgrid(np.arange(rows * rows // WAVE), np.arange(WAVE), indexing="ij")
    groups = WAVE // rows
    return np.stack([register // 4 * 4 * groups + lane // rows * 4 + register % 4, lane % rows], -1)


class _Tile:
    """One of the two input tiles: its copy to LDS, and its way from there to the lanes."""

    def __init__(self, i: GemmInstance, x: str) -> None:
        self.whole = i.a_slice if x == "A" else i.b_slice
        extra = i.ABlockLdsExtraM if x == "A" else i.BBlockLdsExtraN
        names = "AK0_M_AK1" if x == "A" else "BK0_N_BK1"
        cluster = getattr(i, f"{x}BlockTransferThreadClusterLengths_{names}")
        places = cluster_places(self.whole, cluster, getattr(i, f"{x}BlockTransferThreadClusterArrangeOrder"))
        k0, self.rows, k1 = places[..., 0], places[..., 1], places[..., 2]
        self.depth = k0 * self.whole[2] + k1
        lds = lds_places(self.whole, extra)
        self.written = lds[k0, self.rows, k1]
        self.size = int(lds.max()) + 1
        # Lanes along K hold KPerThread neighbours each; one matrix instruction takes k_per_blk of each of them.
        assert i.mfma is not None
        step, lane, j = np.ogrid[: i.KPerThread // i.mfma.k_per_blk, : i.k_lanes, : i.mfma.k_per_blk]
        depth = (lane * i.KPerThread + step * i.mfma.k_per_blk + j).reshape(step.shape[0], -1)
        xdl = i.MPerXDL if x == "A" else i.NPerXDL
        waves = i.MWaves if x == "A" else i.NWaves
        repeat, wave, row = np.ogrid[: self.whole[1] // (waves * xdl), :waves, :xdl]
        row = (repeat * waves + wave) * xdl + row
        # (steps, depth) and (repeat, wave, row) -> (wave, repeat, steps, row, depth)
        self.fragment = lds[
            depth[None, None, :, None, :] // self.whole[2],
            row.transpose(1, 0, 2)[:, :, None, :, None],
            depth[None, None, :, None, :] % self.whole[2],
        ]

    def load(self, matrix: Any, row: int, depth: int, lds: Any, seen: Traffic) -> None:
        """Copy from global memory through the registers of the threads to LDS; outside of the matrix are zeros."""
        r, k = self.rows + row, self.depth + depth
        inside = (r < matrix.shape[0]) & (k < matrix.shape[1])
        values = np.where(inside, matrix[np.minimum(r, matrix.shape[0] - 1), np.minimum(k, matrix.shape[1] - 1)], 0)
        lds[self.written] = values
        seen.global_loads += int(inside.sum()) * matrix.itemsize
        seen.lds_writes += r.size * lds.itemsize


def run_slowly(
    instance: GemmInstance, problem: Problem, a: Any, b: Any, *ds: Any, **scalars: float
) -> tuple[Any, Traffic]:
    """Return E and the traffic of ``instance`` on numpy arrays: A (M, K), B (K, N), each D (M, N) or (N,).

    Sums are in float32 or int32, one matrix instruction's depth after the other; within one the order is numpy's. For
    fp16 the result differs from the hardware's by at most one unit in the last place of the sum, then of E.

    Raises:
        CkError: a rule is broken, types that numpy or this model do not have, or arrays of other shapes.
    """
    require(instance, problem)
    i, p = instance, problem
    for name, dtype in (("ADataType", i.ADataType), ("CShuffleDataType", i.CShuffleDataType)):
        if dtype not in _NUMPY:
            raise CkError(f"{name}={dtype}: the model computes {', '.join(_NUMPY)}")
    if i.mfma is None or i.mfma.blocks > 1:
        raise CkError(f"MPerXDL={i.MPerXDL}, NPerXDL={i.NPerXDL}: the model has 32 x 32 and 16 x 16")
    for name, array, shape in (("A", a, (p.M, p.K)), ("B", b, (p.K, p.N))):
        if array.shape != shape:
            raise CkError(f"{name}: shape {array.shape}, and the problem has {shape}")
    op = operation(i.CDEElementwiseOperation)
    if len(ds) != op.ds or set(scalars) != set(op.scalars):
        raise CkError(f"{i.CDEElementwiseOperation} takes {op.ds} D and the scalars {', '.join(op.scalars) or 'none'}")
    seen, tiles = Traffic(), (_Tile(i, "A"), _Tile(i, "B"))
    acc_type, out = _NUMPY[i.AccDataType], np.zeros((p.M, p.N), _NUMPY[i.EDataType])
    whole_ds = [(np.broadcast_to(d, (p.M, p.N)), _shared_rows(i, p, n)) for n, d in enumerate(ds)]
    m, n, k = i.padded(p)
    for top, left in itertools.product(range(0, m, i.MPerBlock), range(0, n, i.NPerBlock)):
        acc = np.zeros((i.MWaves, i.NWaves, i.MXdlPerWave, i.NXdlPerWave64, i.MPerXDL, i.NPerXDL), acc_type)
        lds = [np.full(t.size, 99, _NUMPY[i.compute_type]) for t in tiles]
        for depth in range(0, k, i.KPerBlock):
            tiles[0].load(a, top, depth, lds[0], seen)
            tiles[1].load(b.T, left, depth, lds[1], seen)
            _multiply(i, tiles, lds, acc, acc_type, seen)
        _store(i, acc, out, whole_ds, top, left, scalars, seen)
    return out, seen


def _multiply(
    i: GemmInstance, tiles: tuple[_Tile, _Tile], lds: list[Any], acc: Any, acc_type: Any, seen: Traffic
) -> None:
    """Execute all matrix instructions of a workgroup between two barriers."""
    for wm, wn in itertools.product(range(i.MWaves), range(i.NWaves)):
        a, b = lds[0][tiles[0].fragment[wm]].astype(acc_type), lds[1][tiles[1].fragment[wn]].astype(acc_type)
        seen.lds_reads += a.size * lds[0].itemsize + b.size * lds[1].itemsize
        for m0, n0, step in itertools.product(range(a.shape[0]), range(b.shape[0]), range(a.shape[1])):
            acc[wm, wn, m0, n0] += a[m0, step] @ b[n0, step].T
            seen.mfma += 1


def _store(
    i: GemmInstance,
    acc: Any,
    out: Any,
    ds: list[tuple[Any, int]],
    top: int,
    left: int,
    scalars: dict[str, float],
    seen: Traffic,
) -> None:
    """Run the epilogue: a slice of C to LDS, from there by rows through the elementwise operation to E."""
    op = operation(i.CDEElementwiseOperation)
    rows, columns = i.shuffle_slice
    m_step, n_step = i.CShuffleMXdlPerWavePerShuffle, i.CShuffleNXdlPerWavePerShuffle
    for m0, n0 in itertools.product(range(0, i.MXdlPerWave, m_step), range(0, i.NXdlPerWave64, n_step)):
        part = acc[:, :, m0 : m0 + m_step, n0 : n0 + n_step]
        # (MWave, NWave, m, n, row, column) -> rows (m, MWave, row) and columns (n, NWave, column), as in LDS.
        lds = part.transpose(2, 0, 4, 3, 1, 5).reshape(rows, columns).astype(_NUMPY[i.CShuffleDataType])
        seen.lds_writes += lds.nbytes
        seen.lds_reads += lds.nbytes
        at_m, at_n = top + m0 // m_step * rows, left + n0 // n_step * columns
        seen.global_loads += sum(rows * columns // shared * d.itemsize for d, shared in ds if shared)
        end_m, end_n = min(at_m + rows, out.shape[0]), min(at_n + columns, out.shape[1])
        if end_m <= at_m or end_n <= at_n:
            continue
        inside = lds[: end_m - at_m, : end_n - at_n]
        seen.global_loads += sum(inside.size * d.itemsize for d, shared in ds if not shared)
        seen.global_stores += inside.size * out.itemsize
        given = [d[at_m:end_m, at_n:end_n] for d, _ in ds]
        out[at_m:end_m, at_n:end_n] = op.compute(inside, *given, **scalars).astype(out.dtype)
