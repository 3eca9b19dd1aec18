# SPDX-License-Identifier: MIT
"""Random GEMMs for the tests: shapes, types, strides, and how far a result may be off."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import torch

from tests.kernels.this_machine import INTERPRETED, OCP, eight_bit, hopper

FLOATS = [torch.float16, torch.float32]
BRAIN = [] if INTERPRETED else [torch.bfloat16]  # which the interpreter multiplies wrongly
TYPES = [*FLOATS, *eight_bit(), *BRAIN, torch.int8]
SIZES = (1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 80, 100, 127, 128, 129)
LARGE = (1, 5, 16, 64, 100, 128, 255, 256, 257, 300, 384, 512, 777, 1000, 1024)


@dataclass
class Case:
    """One product: ``a @ b`` with its float64 reference inputs."""

    a: torch.Tensor
    b: torch.Tensor
    rng: random.Random
    text: str = field(default="")
    full_sums: bool = False

    @property
    def magnitude(self) -> torch.Tensor:
        """The size of a random walk of the products: what fp32 rounding errors scale with.

        Where Hopper's matrix unit adds fp8 products it keeps about 14 bits: every product is
        cut off at 2^-13 of the largest number that it is added to, all in the same direction at worst. That is
        K * 2^-13 * max|a| * max|b|, here in the units of ``close`` (4 * 2^-23 * sqrt(K)).
        """
        a, b = self.a.double(), self.b.double()
        walk = ((a**2) @ (b**2)).sqrt()
        if not self.narrow or 0 in (*a.shape, *b.shape):
            return walk
        return walk + 2**8 * a.shape[1] ** 0.5 * a.abs().amax(1)[:, None] * b.abs().amax(0)[None, :]

    @property
    def narrow(self) -> bool:
        """Whether this product is added with few bits."""
        return not INTERPRETED and hopper() and self.a.dtype in OCP and not self.full_sums


def full_sums(monkeypatch, c: Case, modules) -> None:
    """For half of the fp8 products: Hopper adds them in full fp32, and they must meet the tolerance of all others."""
    for module in modules:
        monkeypatch.setattr(module, "promotion_interval", lambda a, arch, tile: 0)
    c.full_sums = True


def values(shape, dtype, rng: random.Random, device: str) -> torch.Tensor:
    """Normal numbers, sometimes zeros, large ones or a single one; int8 over its whole range."""
    g = torch.Generator().manual_seed(rng.randrange(1 << 30))
    if dtype == torch.int8:
        return torch.randint(-128, 128, shape, dtype=torch.int8, generator=g).to(device)
    x = torch.randn(shape, generator=g)
    kind = rng.random()
    if kind < 0.05:
        x = torch.zeros(shape)
    elif kind < 0.15:
        x = x * 100 if dtype not in (torch.float16,) else x * 20
    elif kind < 0.25:
        x = x * 0.01
    if INTERPRETED and dtype in (torch.float8_e5m2, torch.float8_e5m2fnuz):
        # The interpreter takes fp8 operands of a dot through fp16 and decodes these types' subnormals wrongly.
        x = torch.where(x.abs() < 2**-13, torch.zeros(()), x)
    return x.clamp(-200, 200).to(dtype).to(device)


def matrix(rows, cols, dtype, rng: random.Random, device: str, plain: bool = False) -> torch.Tensor:
    """Contiguous, transposed, a slice with a row distance of its own, or a slice that starts off alignment."""
    kind = 0 if plain else rng.randrange(4)
    if kind == 0:
        return values((rows, cols), dtype, rng, device)
    if kind == 1:
        return values((cols, rows), dtype, rng, device).T
    if kind == 2:
        return values((rows, cols + 16), dtype, rng, device)[:, :cols]
    return values((rows + 1, cols + 3), dtype, rng, device)[1:, 3:]


def case(seed: int, device: str, types=None, sizes=None, most_rows: int | None = None, plain: bool = False) -> Case:
    """The ``seed``-th random product."""
    rng = random.Random(seed)
    types = types or TYPES
    dtype = types[seed % len(types)]
    sizes = sizes or (SIZES if device == "cpu" else SIZES + LARGE)
    m, n, k = (rng.choice(sizes) for _ in range(3))
    if most_rows:
        m = rng.randint(1, most_rows)
    a, b = matrix(m, k, dtype, rng, device, plain), matrix(k, n, dtype, rng, device, plain)
    return Case(a, b, rng, f"{dtype} {m}x{n}x{k}")
