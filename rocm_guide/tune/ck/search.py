# SPDX-License-Identifier: MIT
"""Valid instances for a problem, ranked by predicted time: what ckProfiler does by measuring, before there is a GPU.

ckProfiler has some dozens of compiled instances for each operation and times all of them on the machine. Here they are
generated, checked by the rules, and ranked by :func:`rocm_guide.tune.ck.grid.predict`. The order is a prediction:
compile the first few, and measure them where the hardware is.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from rocm_guide.tune.ck.grid import Launch, Prediction, launch, predict
from rocm_guide.tune.ck.instance import BYTES, CkError, GemmInstance, Layout, Problem
from rocm_guide.tune.ck.presets import NO_D, PRESETS, transfer
from rocm_guide.tune.ck.rules import MAX_REGISTERS, check

__all__ = ["Candidate", "base_for", "candidates", "search"]


@dataclass(frozen=True)
class Candidate:
    """An instance with what is predicted of it."""

    instance: GemmInstance
    launch: Launch
    prediction: Prediction


def _vector(size: int, most: int) -> int:
    # The widest load that divides a size of the problem.
    return next(v for v in (16, 8, 4, 2, 1) if v <= most and size % v == 0)


def candidates(base: GemmInstance, problem: Problem) -> Iterator[GemmInstance]:
    """Yield instances with the types, layouts and operation of ``base`` that obey every rule for ``problem``.

    >>> sum(1 for _ in candidates(GemmInstance(), Problem(512, 512, 512))) > 50
    True
    """
    size = BYTES[base.compute_type]
    wide = 16 // size
    vectors = {
        "A": _vector(problem.K if base.ALayout == "Row" else problem.M, wide),
        "B": _vector(problem.K if base.BLayout == "Col" else problem.N, wide),
    }
    along_k = {"A": base.ALayout == "Row", "B": base.BLayout == "Col"}
    k1 = {x: wide if along_k[x] else max(2, wide // 4) for x in "AB"}
    store = _vector(problem.N, 16 // BYTES[base.EDataType])
    tiles = itertools.product((32, 64, 128, 256), (32, 64, 128, 256), (64 // size, 128 // size), (16, 32), (1, 2, 4))
    for m, n, k, xdl, waves in tiles:
        for down in (d for d in (1, 2, 4) if waves % d == 0):
            if m % (xdl * down) or n % (xdl * (waves // down)):
                continue
            m_xdl, n_xdl, threads = m // (xdl * down), n // (xdl * (waves // down)), 64 * waves
            if m_xdl * n_xdl * xdl * xdl // 64 >= MAX_REGISTERS:
                continue  # no register is left beside the accumulators
            across = max(1, min(n // n_xdl // store, threads))
            rows = min(xdl * down, threads // across)
            one = base.but(
                GemmSpec="MNKPadding",
                BlockSize=threads,
                MPerBlock=m,
                NPerBlock=n,
                KPerBlock=k,
                AK1=k1["A"],
                BK1=k1["B"],
                MPerXDL=xdl,
                NPerXDL=xdl,
                MXdlPerWave=m_xdl,
                NXdlPerWave=n_xdl,
                CShuffleMXdlPerWavePerShuffle=1,
                CShuffleNXdlPerWavePerShuffle=1,
                CDEBlockTransferClusterLengths_MBlock_MPerBlock_NBlock_NPerBlock=(1, rows, 1, across),
                CDEBlockTransferScalarPerVector_NPerBlock=store,
                **transfer("A", along_k["A"], m, threads, k, k1["A"], vectors["A"]),
                **transfer("B", along_k["B"], n, threads, k, k1["B"], vectors["B"]),
            )
            if not check(one, problem):
                yield one


def base_for(dtype: str, layout: Layout = "Col") -> GemmInstance:
    """Return the types and operation of the guide: F16 with AddRelu, BF16 alone, or I8 with ScaleScaleAddRelu.

    Raises:
        CkError: another type.
    """
    if dtype == "I8":
        return PRESETS["int8_large"].but(BLayout=layout)
    if dtype == "F16":
        return GemmInstance(BLayout=layout)
    if dtype == "BF16":
        types = dict.fromkeys(("ADataType", "BDataType", "EDataType"), dtype)
        return GemmInstance(BLayout=layout).but(**types, CShuffleDataType="F32", **NO_D)
    raise CkError(f"dtype={dtype!r}: choose from F16, BF16, I8")


def search(base: GemmInstance, problem: Problem, top: int = 10) -> list[Candidate]:
    """Return the ``top`` instances of least predicted time, the best first.

    Raises:
        CkError: no generated instance can take the problem.
    """
    found = [Candidate(i, launch(i, problem), predict(i, problem)) for i in candidates(base, problem)]
    if not found:
        raise CkError(f"{problem.M}x{problem.N}x{problem.K}: no generated instance takes this problem; pad it yourself")
    found.sort(key=lambda c: (c.prediction.seconds, c.prediction.matrix + c.prediction.lds + c.prediction.l1))
    return found[:top]
