# SPDX-License-Identifier: MIT
"""Checks of notebook 20 (mi300x_architecture)."""

from __future__ import annotations

from collections.abc import Callable

from cdna.predict.specs import gpu
from rocm_guide.exercises.common import no, yes

__all__ = ["check_remap", "check_resident_threads", "check_token_time"]


def check_resident_threads(threads: int) -> bool:
    """Check exercise 1: how many threads an MI300A can hold at once.

    >>> check_resident_threads(228 * 4 * 8 * 64)
    [OK]   466,944 threads: 228 CUs x 4 SIMDs x 8 waves x 64 lanes
    True
    """
    spec = gpu("MI300A")
    if threads == spec.threads:
        return yes(f"{threads:,} threads: {spec.units} CUs x {spec.simds} SIMDs x {spec.max_waves} waves x 64 lanes")
    hints = {
        gpu("MI300X").threads: "that is the MI300X; look up the MI300A's number of compute units",
        spec.threads // 2: "16 waves per CU is the old figure; each of the four SIMDs holds eight",
        spec.waves: "those are waves; each has 64 lanes",
        spec.threads // 4: "8 waves is per SIMD, and a compute unit has four of them",
    }
    return no(f"threads={threads}: not yet. {hints.get(threads, 'CUs x SIMDs x waves per SIMD x lanes')}")


def check_token_time(milliseconds: float) -> bool:
    """Check exercise 2: the least time per token when all weights, 70e9 in bf16, are read once for each, on an MI300X.

    >>> check_token_time(70e9 * 2 / 5.3e12 * 1e3)
    [OK]   26.4 ms, so at most 38 tokens per second for one request
    True
    """
    parameters = 70e9
    right = parameters * 2 / (gpu("MI300X").bandwidth_tb_s * 1e12) * 1e3
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int | float):
        return no(f"milliseconds={milliseconds!r}: give one number")
    if abs(milliseconds - right) <= 0.01 * right:
        return yes(f"{right:.1f} ms, so at most {1e3 / right:.0f} tokens per second for one request")
    flops_time = 2 * parameters / (gpu("MI300X").peak_tflops("bf16") * 1e12) * 1e3
    hint = "bytes of all weights divided by bytes per second"
    if abs(milliseconds - flops_time) <= 0.05 * flops_time:
        hint = "that is the arithmetic; reading the weights takes far longer"
    elif abs(milliseconds - right / 2) <= 0.01 * right:
        hint = "a bf16 number has two bytes"
    elif abs(milliseconds * 1e3 - right) <= 0.01 * right:
        hint = "that is in seconds; the answer is asked in milliseconds"
    return no(f"milliseconds={milliseconds:g}: not yet. {hint}")


def check_remap(remap: Callable[[int, int, int], int]) -> bool:
    """Check exercise 3: ``remap(pid, programs, dies)`` gives each die, to which programs go in turn, one chunk.

    >>> check_remap(lambda pid, n, dies: (pid % dies) * (n // dies) + min(pid % dies, n % dies) + pid // dies)
    [OK]   every die works on one contiguous chunk, and no tile is done twice
    True
    """
    dies = 8
    for programs in (dies, 8 * dies, 76 * dies, 1, dies - 1, dies + 1, 38 * dies + 1, 128 * dies - 1):
        image = [remap(pid, programs, dies) for pid in range(programs)]
        if sorted(image) != list(range(programs)):
            return no(f"programs={programs}: not yet. every tile must be done exactly once (a permutation)")
        for die in range(dies):
            chunk = image[die::dies] or [0]  # a die may have nothing to do
            if sorted(chunk) != list(range(min(chunk), min(chunk) + len(chunk))):
                return no(
                    f"programs={programs}: not yet. programs die, die+{dies}, die+{2 * dies}, … run on one die; "
                    "they should become neighbours",
                )
    return yes("every die works on one contiguous chunk, and no tile is done twice")
