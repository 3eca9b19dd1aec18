# SPDX-License-Identifier: MIT
"""Launch settings of the decoding kernels: data, by architecture, and into how many parts the keys are cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rocm_guide.kernels.arguments import compiler_options, unit_count

if TYPE_CHECKING:
    import torch

__all__ = ["DecodeTile"]


def common_unit(*sizes: int) -> int:
    """Return 8 where all sizes are multiples of 8 and one is none of 16, so that the compiler is to be told, else 1.

    >>> common_unit(32008, 32008), common_unit(4096, 72), common_unit(4096, 128), common_unit(4096, 7)
    (8, 8, 1, 1)
    """
    return 8 if all(size % 8 == 0 for size in sizes) and any(size % 16 for size in sizes) else 1


MOST_PARTS = 512


@dataclass(frozen=True)
class DecodeTile:
    """Launch settings of a decoding kernel: keys per step, programs that share a compute unit, fewest keys per part.

    ``narrow_warps`` replaces ``warps`` where a row of keys has fewer than 64 bytes.
    """

    block: int
    per_unit: int
    least: int
    warps: int = 4
    stages: int = 1
    narrow_warps: int | None = None

    def options(self, arch: str, row_bytes: int = 64) -> dict[str, Any]:
        """The compile options of a launch on ``arch``."""
        warps = self.narrow_warps if self.narrow_warps and row_bytes < 64 else self.warps
        return compiler_options(arch, {"num_warps": warps, "num_stages": self.stages}, matrix=True)


#: By architecture. On an H100 one program per multiprocessor was best by 2 to 4 % (16, 1 and 4 parts for 8, 128 and 32
#: tiles).
DECODE_CONFIGS: dict[str, DecodeTile] = {
    "gfx942": DecodeTile(block=64, per_unit=4, least=256),
    "sm_90": DecodeTile(block=64, per_unit=1, least=256, stages=3),
    "interpreter": DecodeTile(block=16, per_unit=4, least=16),
}


def keys_per_step(config: DecodeTile, width: int) -> int:
    """Heads above 128 take half as many keys, so that a tile needs the same registers."""
    return config.block // 2 if width > 128 else config.block


def parts_for(q: torch.Tensor, tokens: int, tiles: int, config: DecodeTile) -> int:
    """How many parts to cut the keys into: as many as find a place on the GPU at once, none with too little to do."""
    places = config.per_unit * unit_count(q)
    return max(1, min(places // max(int(q.shape[0]) * tiles, 1), -(-tokens // config.least), MOST_PARTS))
