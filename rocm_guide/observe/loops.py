# SPDX-License-Identifier: MIT
"""What one more turn of a kernel's loop costs on gfx942: two executed lengths, and what lies between them.

A workgroup's machine code is executed at a short and at a long length. What both runs have, a kernel's start and end,
cancels out in the difference; what is left are the turns of the loop, in the model of :mod:`cdna.step.timeline`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from cdna.compile import Compiled
from cdna.costs import mfma_cycles
from cdna.dry_run.driver import dry_run
from cdna.predict.achieved import LikelyTime, likely
from cdna.predict.specs import gpu
from cdna.report import kernel_report
from cdna.step.steady import events_of
from cdna.step.timeline import timeline
from rocm_guide.kernels.attention import attention_forward
from rocm_guide.observe.predict import makespan

__all__ = ["LoopCost", "causal_cost", "causal_time", "loop_cost", "triton_attention"]


@dataclass(frozen=True)
class LoopCost:
    """One turn of a loop, and what surrounds the loop.

    Attributes:
        counts: instructions of one wave in a turn, by kind (:data:`cdna.isa.mnemonics.KINDS`).
        cycles: of a compute unit for a turn of each of its workgroups, in the model.
        matrix: cycles for which a SIMD's matrix core works in that time at its peak.
        start: cycles of the kernel outside the loop.
        banks: cycles that LDS is busy in the loop, against those without conflicts; 1.0 is ideal, 0 is no LDS.
        vgprs, waves, groups: registers of a lane, waves on a SIMD, workgroups on a compute unit.
    """

    counts: dict[str, float]
    cycles: float
    matrix: float
    start: float
    banks: float
    vgprs: int
    waves: float
    groups: int

    @property
    def left(self) -> float:
        """The share of a turn in which the busiest matrix core rests."""
        return 1 - self.matrix / self.cycles


def loop_cost(
    kernel: Compiled, launch: Callable[[int], tuple[Any, Any, int]], lengths: tuple[int, int], step: int
) -> LoopCost:
    """Execute one workgroup at two lengths and return what a turn of its loop costs, in the model.

    Args:
        kernel: compiled for gfx942.
        launch: for a length the grid, the arguments and the number of the workgroup.
        lengths: a shorter and a longer one.
        step: the length that one turn covers.

    Raises:
        RunError: the code does what the hardware does not allow.
    """
    report = kernel_report(kernel)
    groups = max(1, report.occupancy.workgroups_per_cu)
    runs = [events_of(kernel, *launch(length)) for length in lengths]
    turns, times = (lengths[1] - lengths[0]) / step, [timeline(run, groups=groups).cycles for run in runs]
    ops = [Counter(run.code[e.index].op for e in run.events[0]) for run in runs]
    kinds = [Counter(run.code[e.index].kind for e in run.events[0]) for run in runs]
    matrix = sum((n - ops[0][op]) * mfma_cycles(op) for op, n in ops[1].items() if op.startswith("v_mfma")) / turns
    busy, ideal = (getattr(runs[1].counters, n) - getattr(runs[0].counters, n) for n in ("lds_cycles", "lds_ideal"))
    cycles = (times[1] - times[0]) / turns
    return LoopCost(
        {kind: (n - kinds[0][kind]) / turns for kind, n in kinds[1].items()},
        cycles,
        matrix * report.occupancy.waves_per_simd,
        times[0] - cycles * lengths[0] / step,
        busy / ideal if ideal else 0.0,
        report.resources.vgprs or 0,
        report.occupancy.waves_per_simd,
        groups,
    )


def causal_cost(kernel: Compiled, queries: int, arguments: Any, step: int = 32) -> LoopCost:
    """Return what a turn of ``step`` keys costs in causal attention over one head of 512 tokens.

    Args:
        kernel, arguments: of a launch whose first workgroup has the last ``queries`` queries.
    """
    return loop_cost(kernel, lambda keys: ((512 // queries,), arguments, (512 - keys) // queries), (256, 512), step)


def triton_attention(x: torch.Tensor) -> tuple[Any, int, dict[str, Any]]:
    """Return the library's causal attention compiled for gfx942, queries of a workgroup, and arguments to execute it.

    Args:
        x: queries, keys and values in one, (1, 1, tokens, D).
    """
    found: list[tuple[Any, Any, dict[str, Any]]] = []
    with dry_run("gfx942", device="meta", on_launch=lambda *launch: found.append(launch)):
        attention_forward(*[torch.empty_like(x, device="cuda")] * 3, causal=True)
    ((kernel, _, arguments),) = found
    real = {"q": x, "k": x, "v": x, "out": torch.empty_like(x), "lse": torch.empty(x.shape[:3])}
    given = {n: real.get(n, value) for n, value in arguments.items() if kernel.signature[n] != "constexpr"}
    return kernel, arguments["BLOCK_M"], given


def causal_time(cost: LoopCost, queries: int, step: int, heads: int, tokens: int, size: int) -> LikelyTime:
    """Return the likely time of causal attention on an MI300X, whose workgroups with most keys come first.

    ``cost`` is of a turn of ``step`` keys for ``queries`` queries; ``heads`` of all sequences, ``size`` numbers wide.
    """
    spec = gpu("MI300X")
    turns = [queries * n / step for n in range(tokens // queries, 0, -1) for _ in range(heads)]
    cycles = makespan([cost.start + cost.cycles * n for n in turns], spec.units * cost.groups)
    matrix = 2 * heads * tokens**2 * size / spec.peak_tflops("fp16") / 1e6
    return likely({"compute units": cycles / spec.flops["fp32"][1]}, matrix=matrix)
