# SPDX-License-Identifier: MIT
"""What the tests of the INT8 operators share: codes of any strides, and when a rounded code is right."""

from __future__ import annotations

import torch


def codes(*shape, seed=0, kind=0, device="cpu"):
    """Random int8 codes: contiguous, transposed, with rows of their own distance, or off alignment."""
    g = torch.Generator().manual_seed(seed + sum(shape))

    def make(*sizes):
        return torch.randint(-128, 128, sizes, dtype=torch.int8, generator=g).to(device)

    *batch, rows, columns = shape
    if kind == 1:
        return make(*batch, columns, rows).transpose(-1, -2)
    if kind == 2:
        return make(*batch, rows, columns + 16)[..., :columns]
    if kind == 3:
        return make(*batch, rows + 1, columns + 3)[..., 1:, 3:]
    return make(*shape)


def check_rounded(got, exact):
    """``got`` is ``exact`` (float64) to the nearest code; where float32 cannot tell a half, either neighbour."""
    assert got.dtype == torch.int8 and got.shape == exact.shape
    got, exact = got.cpu().double(), exact.cpu()
    inside = exact.clamp(-128, 127)
    # alpha and beta as float32 numbers, and a few roundings of float32, stand between the exact sum and the code.
    slack = 4 * torch.finfo(torch.float32).eps * (exact.abs() + 128)
    assert bool(((got - inside).abs() <= 0.5 + slack).all())
