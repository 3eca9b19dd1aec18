# SPDX-License-Identifier: MIT
"""Checks of notebook 36 (composable_kernel)."""

from __future__ import annotations

from rocm_guide.exercises.common import no, yes
from rocm_guide.tune.ck.grid import launch
from rocm_guide.tune.ck.instance import BYTES, GemmInstance, Problem
from rocm_guide.tune.ck.presets import PRESETS
from rocm_guide.tune.ck.rules import check

__all__ = ["check_instance", "check_lds", "check_loads"]


def check_lds(answer: int) -> bool:
    """Check exercise 1: bytes of LDS of the document's instance with KPerBlock=64.

    >>> check_lds(49376)
    [OK]   7 planes of 257 rows and one of 256 for A, 129 and 128 for B, 8 x 2 bytes each: still 65,536 or less
    True
    """
    i = PRESETS["document_prose"].but(KPerBlock=64)
    if answer == i.lds_bytes:
        a, b = "7 planes of 257 rows and one of 256 for A", "129 and 128 for B"
        return yes(f"{a}, {b}, 8 x 2 bytes each: still 65,536 or less")
    tiles = (i.MPerBlock + i.NPerBlock) * i.KPerBlock
    hints = {
        2
        * PRESETS[
            "document_prose"
        ].lds_bytes: "the last plane of each tile has no extra row, and there is one per tile",
        tiles * 2: "each plane but the last is followed by an extra row (ABlockLdsExtraM, BBlockLdsExtraN)",
        i.lds_bytes // 2: "count bytes: an element of fp16 has two",
        (tiles + i.KPerBlock // 8 * 2 * 8) * 2: "the last plane of each tile has no extra row",
        PRESETS["document_prose"].lds_bytes: "that is KPerBlock=32",
    }
    return no(f"{answer}: not yet. {hints.get(answer, 'KPerBlock / K1 planes; rows and an extra one; K1 elements')}")


def check_loads(answer: int) -> bool:
    """Check exercise 2: bytes of A and B that 3840 x 4096 x 4096 in fp16 loads with tiles of 256 x 128, all workgroups.

    >>> check_loads(1509949440)
    [OK]   each of A's rows is loaded by 32 workgroups, each of B's columns by 15
    True
    """
    m, n, k = 3840, 4096, 4096
    right = (n // 128 * m + m // 256 * n) * k * BYTES["F16"]
    if answer == right:
        return yes("each of A's rows is loaded by 32 workgroups, each of B's columns by 15")
    hints = {
        (m + n) * k * 2: "that is each matrix once; every workgroup loads its rows and its columns",
        right // 2: "count bytes: an element of fp16 has two",
        (n // 256 * m + m // 128 * n) * k * 2: "A is loaded once for each tile along N, and a tile has 128 columns",
        right + m * n * 2: "D is not asked for",
    }
    return no(f"{answer}: not yet. {hints.get(answer, 'workgroups x (256 rows + 128 columns) x K x 2 bytes')}")


def check_instance(instance: GemmInstance) -> bool:
    """Check exercise 3: an instance for 64 x 4096 x 4096 in fp16, B by columns, with 75 % of 304 units busy or more.

    It must obey every rule, waste none of the arithmetic on padding, and load 128 bits at a time.
    """
    problem = Problem(64, 4096, 4096)
    if not isinstance(instance, GemmInstance):
        return no(f"{type(instance).__name__}: not yet. give a GemmInstance")
    if (instance.ADataType, instance.BDataType, instance.BLayout) != ("F16", "F16", "Col"):
        return no("not yet. A and B are fp16, B by columns")
    if refusals := check(instance, problem):
        return no(f"not yet. {refusals[0]}")
    grid = launch(instance, problem)
    if grid.useful < 1:
        return no(f"not yet. {1 - grid.useful:.0%} of the arithmetic is padding: no tile larger than 64 rows")
    if grid.busy < 0.75:
        return no(f"not yet. {grid.groups} workgroups keep {grid.busy:.0%} busy; smaller tiles make more of them")
    if min(instance.ABlockTransferSrcScalarPerVector, instance.BBlockTransferSrcScalarPerVector) < 8:
        return no("not yet. load eight fp16 numbers, 128 bits, at a time")
    return yes(f"{grid.groups} workgroups, {grid.busy:.0%} of the units' time")
