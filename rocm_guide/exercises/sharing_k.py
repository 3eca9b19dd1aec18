# SPDX-License-Identifier: MIT
"""Checks of notebook 32: a split product, a product with one column, and a split sum that ends in its own launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cdna.dry_run import dry_run
from rocm_guide.exercises.common import executed, no, yes
from rocm_guide.exercises.kernel_dojo import judge_of

__all__ = ["check_gemv", "check_one_launch", "check_split_k"]

_ORDERS = ("together", "alone", "round_robin", 1, 2)  # of workgroups and waves
_UNITS = 304  # compute units of an MI300X


def check_one_launch(call: Callable[..., Any]) -> bool:
    """Check exercise 3: ``one_launch(x, w)`` returns X W^T in fp32 for fp16 ``x`` (up to 16 rows) and ``w``.

    K is shared out, one kernel is launched, and the bits are the same in whatever order its workgroups run.
    """
    generator = torch.Generator().manual_seed(32)
    x, w = (torch.randn(n, 2048, generator=generator).half() for n in (5, 96))
    wanted = x.double() @ w.double().T
    bits = set()
    for order in _ORDERS:
        got, launches, said = executed(call, (x, w), wanted, 1e-3, order=order)
        if said:
            return no(f"5 x 96 x 2,048, workgroups in order {order!r}: {said}")
        if len(launches) > 1:
            return no(f"right, in {len(launches)} launches: the workgroup that is last can add the parts")
        bits.add(got.contiguous().numpy().tobytes())
    if len(bits) > 1:
        many = f"{len(bits)} different results in {len(_ORDERS)} orders"
        return no(f"right, but {many}: store each part, and let the last workgroup add them in order")
    with dry_run("gfx942", device="meta") as large:
        call(*(torch.empty(n, 16384, dtype=torch.float16, device="cuda") for n in (16, 2304)))
    (launch,) = large.launches
    workgroups = launch.grid[0] * launch.grid[1] * launch.grid[2]
    if workgroups < _UNITS:
        few = f"16 x 2,304 x 16,384 has {workgroups} workgroups for {_UNITS} compute units"
        return no(f"right and repeatable, but {few}: more parts of K")
    return yes(f"right, the same bits in {len(_ORDERS)} orders, one launch, {workgroups} workgroups")


check_split_k = judge_of("split_k")
check_gemv = judge_of("skinny_gemv")
