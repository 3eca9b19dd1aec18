# SPDX-License-Identifier: MIT
"""Shared by the tests of the two fused FP8 kernels: seeded cases, and what an FP8 result may be."""

from __future__ import annotations

import random

import torch

from rocm_guide.kernels.fp8 import decode_fp8, encode_fp8
from tests.kernels.this_machine import fp8_here

TYPES = (torch.float16, torch.bfloat16, torch.float32)
COLUMNS = (1, 2, 3, 7, 8, 16, 31, 64, 100, 127, 128, 129, 255, 256, 500, 512, 640, 777, 1000, 1024, 1025, 2048, 2050)
LARGE = (4096, 5000, 5120, 8192, 11008, 13312, 14336, 16384, 28672, 32768, 32770, 40000, 53248)


def cases(count: int, seed: int) -> list[tuple[int, int, torch.dtype, float | None]]:
    """(rows, columns, type, scale or None for per-row scales); large ones on a GPU only, where they take no time."""
    rng = random.Random(seed)
    columns = COLUMNS + (LARGE if torch.cuda.is_available() else ())
    found = {(rng.randint(1, 5), c, rng.choice(TYPES), rng.choice((None, 0.03))) for c in columns}
    while len(found) < count:
        rows = rng.choice((1, 2, 3, 4, 6) if not torch.cuda.is_available() else (1, 2, 3, 17, 64, 257, 1000))
        found.add((rows, rng.choice(columns), rng.choice(TYPES), rng.choice((None, 1.0, 0.25, 0.011, 3.0))))
    return sorted(found, key=str)


def check_fp8(q: torch.Tensor, wanted: torch.Tensor, error: torch.Tensor) -> None:
    """``q`` is what some number within ``error`` of ``wanted`` (float64, already divided by the scale) rounds to."""
    fmt = fp8_here()
    assert q.dtype == getattr(torch, f"float8_{fmt.name}") and q.shape == wanted.shape
    got = decode_fp8(q.cpu().view(torch.uint8), fmt).double()
    wanted, error = wanted.cpu(), error.cpu()
    assert torch.equal(got.isnan(), wanted.isnan()), "NaN at other places than in the reference"
    low, high = (decode_fp8(encode_fp8(w, fmt), fmt).double() for w in (wanted - error, wanted + error))
    bad = ~wanted.isnan() & ~((low <= got) & (got <= high))
    where = bad.nonzero()[:3].tolist()
    assert not bad.any(), (
        f"{int(bad.sum())} wrong of {bad.numel()}, first at {where}: {got[bad][:3]}, {wanted[bad][:3]}"
    )
    # A tolerance that hides everything would be no test: nearly all codes must be the ones of the exact value.
    exact = decode_fp8(encode_fp8(wanted, fmt), fmt).double()
    differ = (got != exact) & ~wanted.isnan()
    assert differ.sum() <= 1 + 0.002 * got.numel(), f"{int(differ.sum())} of {got.numel()} are rounded the other way"


def poison(monkeypatch, module) -> None:
    """Fill what the module's wrapper allocates, so that an element that the kernel does not write is seen."""
    plain = torch.empty

    def filled(*args, **kwargs):
        tensor = plain(*args, **kwargs)
        bytes_ = tensor.view(torch.uint8) if tensor.ndim and tensor.numel() else tensor
        bytes_.fill_(0x7F if tensor.dtype.itemsize == 1 else 0xFF)
        return tensor

    monkeypatch.setattr(torch, "empty", filled)
