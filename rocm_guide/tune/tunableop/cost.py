# SPDX-License-Identifier: MIT
"""The time that a tuning takes, from what TunableOp does with each candidate."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from cdna.predict.specs import gpu

if TYPE_CHECKING:
    from rocm_guide.tune.tunableop.gemm import Gemm

__all__ = ["call_seconds", "tuning_seconds"]

_BYTES = {"float": 4, "tf32": 4, "double": 8, "c10::complex<float>": 8, "c10::complex<double>": 16}


def call_seconds(
    g: Gemm,
    *,
    tflops: float | None = None,
    bandwidth_tb_s: float | None = None,
    efficiency: float = 0.5,
    launch_us: float = 10.0,
) -> float:
    """Return an estimate of one call: max(FLOPs / peak, bytes / bandwidth) / efficiency + launch.

    Without ``tflops`` and ``bandwidth_tb_s`` they are MI300X's dense bfloat16 peak and its memory bandwidth, from
    :mod:`cdna.predict.specs`; half of either is a usual share to reach.

    >>> from rocm_guide.tune.tunableop.gemm import parse_gemm
    >>> f"{call_seconds(parse_gemm('GemmTunableOp_BFloat16_TN,tn_4096_1_4096_ld_4096_4096_4096')) * 1e6:.1f} us"
    '22.7 us'
    """
    machine = gpu("MI300X")
    tflops = machine.peak_tflops("bf16") if tflops is None else tflops
    bandwidth_tb_s = machine.bandwidth_tb_s if bandwidth_tb_s is None else bandwidth_tb_s
    width = _BYTES.get(g.dtypes[0], 1 if g.dtypes[0].startswith("Float8") else 2)
    moved = width * (g.batch or 1) * (g.m * g.k + g.k * g.n + g.m * g.n)
    return max(g.flops / (tflops * 1e12), moved / (bandwidth_tb_s * 1e12)) / efficiency + launch_us * 1e-6


def tuning_seconds(
    gemms: Iterable[Gemm],
    *,
    candidates: int = 1500,
    budget_ms: float = 30.0,
    iterations: int = 100,
    **machine: float,
) -> tuple[float, float]:
    """Return the lowest and highest time in seconds that tuning these products takes;
    ``machine`` goes to :func:`call_seconds`.

    Every candidate is called once and then 2 + 3 times; one that is 1.5x slower than the best so far stops there
    (lowest). One that survives is called 2 + 10 and 2 times more, and then for ``iterations`` calls or ``budget_ms``
    milliseconds, whichever is less (highest). The number of candidates is an assumption: TunableOp's own logs show
    1,068 and 4,454 for one float32 product on gfx90a.
    Source: PyTorch, aten/src/ATen/cuda/tunable/TunableOp.h; "Accelerating models on ROCm using PyTorch TunableOp".

    >>> from rocm_guide.tune.tunableop.gemm import parse_gemm
    >>> low, high = tuning_seconds([parse_gemm("GemmTunableOp_BFloat16_TN,tn_4096_1_4096_ld_4096_4096_4096")])
    >>> round(low, 2), round(high, 1)
    (0.2, 4.1)
    """
    low = high = 0.0
    for g in gemms:
        call = call_seconds(g, **machine)
        low += candidates * 6 * call
        high += candidates * (6 + 12 + 2 + max(1, min(iterations, int(budget_ms * 1e-3 / call)))) * call
    return low, high
