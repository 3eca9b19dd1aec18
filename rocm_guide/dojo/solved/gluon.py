# SPDX-License-Identifier: MIT
"""A solution of the puzzle in Gluon."""

from __future__ import annotations

from typing import Any

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.amd import AMDMFMALayout, cdna3

__all__ = ["gluon_linear"]


@gluon.jit
def linear_kernel(x, w, y, M, N, K, x_stride, w_stride, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr):
    ROWS: gl.constexpr = gl.BlockedLayout([1, 8], [512 // BK, BK // 8], [4, 1], [1, 0])
    LDS: gl.constexpr = gl.SwizzledSharedLayout(4, 2, 8, [1, 0])
    MM: gl.constexpr = AMDMFMALayout(3, [16, 16, 16], True, [2, 2])
    m, n = gl.program_id(0).to(gl.int64) * BM, gl.program_id(1).to(gl.int64) * BN
    i = m + gl.arange(0, BM, layout=gl.SliceLayout(1, ROWS))[:, None]
    j = n + gl.arange(0, BN, layout=gl.SliceLayout(1, ROWS))[:, None]
    k = gl.arange(0, BK, layout=gl.SliceLayout(0, ROWS))[None, :]
    x_lds = gl.allocate_shared_memory(gl.float16, [BM, BK], LDS)
    w_lds = gl.allocate_shared_memory(gl.float16, [BN, BK], LDS)
    total = gl.zeros([BM, BN], gl.float32, layout=MM)
    for step in range(0, K, BK):
        inside = k < K - step
        x_lds.store(gl.load(x + i * x_stride + step + k, mask=(i < M) & inside, other=0.0))
        w_lds.store(gl.load(w + j * w_stride + step + k, mask=(j < N) & inside, other=0.0))
        left = x_lds.load(gl.DotOperandLayout(0, MM, 4))
        right = w_lds.permute([1, 0]).load(gl.DotOperandLayout(1, MM, 4))
        total = cdna3.mfma(left, right, total)
    row = m + gl.arange(0, BM, layout=gl.SliceLayout(1, MM))[:, None]
    column = n + gl.arange(0, BN, layout=gl.SliceLayout(0, MM))[None, :]
    gl.store(y + row * N + column, total, mask=(row < M) & (column < N))


def gluon_linear(x: Any, w: Any) -> Any:
    """Load 128 bits a lane, pass both tiles through swizzled LDS, and store what a lane's MFMA layout has in a row."""
    (M, K), N = x.shape, w.shape[0]
    y = torch.empty(M, N, dtype=torch.float32, device=x.device)
    grid = (triton.cdiv(M, 128), triton.cdiv(N, 128))
    linear_kernel[grid](x, w, y, M, N, K, x.stride(0), w.stride(0), BM=128, BN=128, BK=32)
    return y
