# SPDX-License-Identifier: MIT
"""The smallest reproducer of a wrong result that is the compiler's: the sine of a large float64 with contraction."""

import numpy as np
import torch
import triton
import triton.language as tl

from cdna.run.launches import executed_on_gfx942


@triton.jit
def sine(x_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out_ptr + at, tl.sin(tl.load(x_ptr + at)))


def test_contraction_breaks_the_reduction_of_large_arguments():
    """AMD's library splits products exactly; fused with the sums that follow, a remainder is counted twice."""
    x = torch.linspace(-1e15, 1e15, 64, dtype=torch.float64)
    error = {}
    for fusion in (True, False):
        out = torch.empty_like(x)
        with executed_on_gfx942(count=False):
            sine[(1,)](x, out, 64, num_warps=1, enable_fp_fusion=fusion)
        error[fusion] = np.abs(out.numpy() - np.sin(x.numpy())).max()
    assert error[False] < 1e-15
    assert error[True] > 1e-3, "the compiler is right now: take the line out of docs/troubleshooting.md"
