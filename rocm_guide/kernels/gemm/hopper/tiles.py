# SPDX-License-Identifier: MIT
"""The tiles of the GEMM on NVIDIA's Hopper (:mod:`rocm_guide.kernels.gemm.hopper.kernel`), and what each costs.

Which of them a product gets: :mod:`rocm_guide.kernels.gemm.hopper.configs`, which also says where the costs are from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = []

#: Of a multiprocessor.
ALL_REGISTERS = 1 << 16
#: Up to so many operations of 16 bits, by programs of a cluster, a kernel overlaps with the one before it. On an H100
#: products that follow each other then take 0.8 us less, with clusters 1.4 us; but 70 products of 20 us and more took
#: 1 % longer without clusters, one 16 %, perhaps as their programs come to lie elsewhere than in order.
OVERLAP_WORK = {1: 6e9, 2: 4e10, 4: 4e10}


def ends_of_groups(blocks: tuple[int, ...], most: int) -> tuple[int, ...]:
    """How many blocks of columns end with the first instruction, with the second, and so on, if one can have ``most``
    columns; 0: one for each block.

    >>> ends_of_groups((128, 64, 16), 256), ends_of_groups((256, 64), 256), ends_of_groups((128, 64), 0)
    ((3,), (1, 2), (1, 2))
    """
    found, columns = [0], 0
    for block in blocks:
        if columns == 0 or columns + block <= most:
            found[-1], columns = found[-1] + 1, columns + block
        else:
            found.append(found[-1] + 1)
            columns = block
    return tuple(found)


@dataclass(frozen=True)
class HopperTile:
    """How one GEMM is launched: each of ``parties`` warpgroups has ``rows`` rows of the tile, and all its columns.

    The columns are in one to three ``blocks``, each a power of two.

    Up to ``stages`` of ``bk`` columns of A wait in shared memory, C leaves in strips of ``strip`` columns (the last block
    may have fewer), ``group`` rows of tiles are walked together, ``per`` programs share a multiprocessor. ``parts``: of K, each summed by itself.
    ``stream``: programs share out steps of K, not tiles (see :mod:`rocm_guide.kernels.gemm.stream_k`). ``copied``: "a",
    "b" or "ab" are copied to rows of whole lines of the cache first. ``ctas``: 2 or 4 for clusters of programs, one
    below the other, that fetch B together. ``flip``: what is computed is C^T = B^T A^T, so its rows are columns of C.

    What it costs on an H100: ``rate``, TFLOPS of a full GPU far from the ends of a product, and ``step``, the least
    microseconds that one step of ``bk`` takes, however few programs there are.
    """

    rows: int
    blocks: tuple[int, ...]
    bk: int
    stages: int
    strip: int = 64
    group: int = 8
    parties: int = 2
    per: int = 1
    stream: bool = False
    parts: int = 1
    copied: str = ""
    ctas: int = 1
    flip: bool = False
    rate: float = 600.0
    step: float = 0.3

    @property
    def bm(self) -> int:
        """Rows of a tile of C (of C^T, if flipped), or of all of a cluster."""
        return self.parties * self.rows * self.ctas

    @property
    def width(self) -> int:
        """Columns of a tile of C."""
        return sum(self.blocks)

    def overlaps(self, work: float) -> bool:
        """Whether it starts while the kernel before it is still finishing, for a product of ``work`` operations: not if
        its programs wait for each other, nor if K is in parts, whose sums are then added by another kernel."""
        return self.parts == 1 and not self.stream and work <= OVERLAP_WORK[self.ctas] * self.bk / 64

    def columns_at_once(self, bits: int) -> int:
        """How many columns an instruction may have that multiplies several blocks; 0 if there is nothing to unite.

        fp8 holds its sums twice, and a thread has 255 registers; with three warpgroups it starts with 128, and the
        assembler knows of no more.
        """
        most = 192 if bits == 8 or self.parties == 3 else 256
        return most if len(ends_of_groups(self.blocks, most)) < len(self.blocks) else 0

    def instructions_apart(self, bits: int) -> int:
        """How many more instructions there are in a step if each block is one of its own."""
        return len(self.blocks) - len(ends_of_groups(self.blocks, self.columns_at_once(bits)))

    def stages_in(self, memory: int, columns: int, size: int) -> int:
        """How many of its stages so many bytes hold, if a stage of B has ``columns`` (as wide as the tile, or wider)
        and an element ``size`` bytes: beside two strips of C for each warpgroup and a narrow one, also where
        they have half as many columns of fp32, and the barriers."""
        rows = self.parties * self.rows
        narrow = self.blocks[-1] if self.blocks[-1] < self.strip else 0
        left = memory // self.per - 4 * rows * (self.strip + narrow) - 1024
        return min(self.stages, left // ((rows + columns) * self.bk * size))

    @property
    def registers(self) -> tuple[int, ...]:
        """Registers of a thread of each warpgroup that multiplies, the first aside, and of one that fetches."""
        return {1: (40,), 2: (232, 40), 3: (160, 160, 32)}[self.parties]

    def options(self, overlap: bool) -> dict[str, Any]:
        """The compile options: several programs share a multiprocessor's registers.

        The assembler wants at least 90 for one instruction that multiplies 64 x 128, whatever the warpgroup has.
        """
        threads = 128 * (self.parties + 1)
        most = ALL_REGISTERS // (threads * self.per) // 8 * 8 if self.per > 1 else None
        found = {"num_warps": 4, "maxnreg": most, "launch_pdl": overlap}
        return {**found, "num_ctas": self.ctas} if self.ctas > 1 else found

    def __str__(self) -> str:
        how = " stream" if self.stream else f" in {self.parts}" if self.parts > 1 else ""
        how += f", {self.per} at a time" if self.per > 1 else ""
        how += {1: "", 2: ", in pairs", 4: ", in fours"}[self.ctas] + (", flipped" if self.flip else "")
        return f"{self.bm}x{self.width}x{self.bk}{how}{f', {self.copied} copied' if self.copied else ''}"


#: By bits of the element type.
HOPPER_TILES: dict[int, tuple[HopperTile, ...]] = {
    16: (
        HopperTile(64, (256,), 64, 4, rate=856, step=0.35),
        HopperTile(128, (128,), 64, 4, 32, rate=811, step=0.35),
        HopperTile(64, (128, 64), 64, 5, 32, 8, rate=845, step=0.3),
        HopperTile(64, (128,), 64, 6, rate=779, step=0.22),
        HopperTile(64, (256,), 64, 5, 32, parties=1, rate=950, step=0.376),
        HopperTile(64, (128,), 64, 4, 32, parties=1, per=2, rate=654, step=0.297),
        HopperTile(64, (64,), 64, 4, 32, parties=1, per=3, rate=264, step=0.162),
        HopperTile(64, (128, 32), 64, 5, 32, 8, rate=811, step=0.26),
        HopperTile(128, (128, 64), 64, 3, 32, 8, rate=785, step=0.45),
        HopperTile(64, (64, 32), 64, 7, 32, 8, rate=712, step=0.307),
        HopperTile(64, (128, 16), 64, 5, 32, 8, rate=755, step=0.25),
        HopperTile(64, (64, 16), 64, 7, 32, 8, rate=613, step=0.19),
        HopperTile(64, (256,), 64, 4, ctas=2, rate=857, step=0.35),
        HopperTile(64, (128, 64), 64, 5, 32, 8, ctas=2, rate=797, step=0.4),
        HopperTile(64, (128, 32), 64, 5, 32, 8, ctas=2, rate=740, step=0.26),
        HopperTile(128, (128, 64), 64, 3, 32, 8, ctas=2, rate=766, step=0.45),
        HopperTile(64, (128,), 64, 5, 32, parties=3, rate=794, step=0.264),
        HopperTile(64, (128, 64), 64, 4, 32, 8, parties=3, rate=843, step=0.296),
        HopperTile(64, (128, 64, 16), 64, 4, 16, 8, parties=3, rate=804, step=0.304),
        HopperTile(64, (128, 32), 64, 4, 32, 8, parties=3, ctas=2, rate=779, step=0.28),
        HopperTile(64, (128, 64), 64, 4, 32, 8, parties=3, ctas=2, rate=837, step=0.296),
        HopperTile(64, (128, 64, 16), 64, 4, 16, 8, parties=3, ctas=2, rate=802, step=0.304),
        HopperTile(64, (256, 32), 64, 4, 32, 8, rate=829, step=0.344),
        HopperTile(64, (256, 64), 64, 3, 32, 8, rate=724, step=0.36),
        HopperTile(64, (128, 64, 32), 64, 4, 32, 8, ctas=2, rate=767, step=0.312),
        HopperTile(64, (64,), 64, 12, 32, 8, parties=1, ctas=4, rate=989, step=0.174),
        HopperTile(64, (64, 32), 64, 10, 32, 8, parties=1, ctas=4, rate=514, step=0.135),
        HopperTile(64, (128,), 64, 9, 32, parties=1, ctas=4, rate=666, step=0.164),
        HopperTile(64, (128, 16), 64, 8, 32, 8, parties=1, ctas=4, rate=624, step=0.18),
        HopperTile(64, (128,), 64, 6, 32, ctas=2, rate=748, step=0.25),
        HopperTile(64, (128,), 64, 6, 32, ctas=4, rate=808, step=0.351),
        HopperTile(64, (128, 64), 64, 5, 32, 8, ctas=4, rate=872, step=0.3),
        HopperTile(64, (128, 64, 16), 64, 5, 16, 8, ctas=4, rate=860, step=0.3),
        HopperTile(64, (256,), 64, 4, 32, ctas=4, rate=872, step=0.35),
        HopperTile(64, (128, 64, 16), 64, 4, 16, 8, parties=3, ctas=4, rate=830, step=0.3),
        HopperTile(64, (64, 32, 16), 64, 6, 32, 8, rate=746, step=0.25),
        HopperTile(64, (128, 32, 16), 64, 5, 32, 8, rate=822, step=0.3),
        HopperTile(64, (128, 64, 32), 64, 4, 32, 8, rate=860, step=0.33),
        HopperTile(64, (128, 16), 64, 5, 16, 8, parties=3, rate=825, step=0.28),
        HopperTile(64, (128, 32), 64, 4, 32, 8, parties=3, rate=836, step=0.3),
        HopperTile(64, (64, 8), 64, 12, 32, 16, parties=1, rate=450, step=0.164),
        HopperTile(64, (64, 16), 64, 11, 32, 16, parties=1, rate=480, step=0.154),
        HopperTile(64, (64, 32), 64, 10, 32, 32, parties=1, rate=514, step=0.135),
        HopperTile(64, (64, 32, 8), 64, 10, 32, 16, parties=1, rate=548, step=0.142),
        HopperTile(64, (64, 32, 16), 64, 9, 32, 16, parties=1, rate=582, step=0.150),
        HopperTile(64, (128, 8), 64, 8, 32, 16, parties=1, rate=650, step=0.172),
        HopperTile(64, (128, 32), 64, 7, 32, 32, parties=1, rate=687, step=0.208),
        HopperTile(64, (128, 64), 64, 6, 32, 32, parties=1, rate=760, step=0.264),
        HopperTile(64, (64,), 64, 12, 32, 32, parties=1, ctas=2, rate=420, step=0.174),
        HopperTile(64, (64, 8), 64, 12, 32, 16, parties=1, ctas=2, rate=450, step=0.164),
        HopperTile(64, (64, 16), 64, 11, 32, 16, parties=1, ctas=2, rate=480, step=0.154),
        HopperTile(64, (64, 32), 64, 10, 32, 32, parties=1, ctas=2, rate=514, step=0.135),
        HopperTile(64, (64, 32, 8), 64, 10, 32, 16, parties=1, ctas=2, rate=548, step=0.142),
        HopperTile(64, (64, 32, 16), 64, 9, 32, 16, parties=1, ctas=2, rate=582, step=0.150),
        HopperTile(64, (128,), 64, 9, 32, 32, parties=1, ctas=2, rate=650, step=0.164),
        HopperTile(64, (128, 8), 64, 8, 32, 16, parties=1, ctas=2, rate=650, step=0.172),
        HopperTile(64, (128, 32), 64, 7, 32, 32, parties=1, ctas=2, rate=687, step=0.208),
        HopperTile(64, (128, 64), 64, 6, 32, 32, parties=1, ctas=2, rate=760, step=0.264),
        HopperTile(64, (64, 8), 64, 12, 32, 16, parties=1, ctas=4, rate=450, step=0.164),
        HopperTile(64, (64, 16), 64, 11, 32, 16, parties=1, ctas=4, rate=480, step=0.154),
        HopperTile(64, (64, 32, 8), 64, 10, 32, 16, parties=1, ctas=4, rate=548, step=0.142),
        HopperTile(64, (64, 32, 16), 64, 9, 32, 16, parties=1, ctas=4, rate=582, step=0.150),
        HopperTile(64, (128, 8), 64, 8, 32, 16, parties=1, ctas=4, rate=650, step=0.172),
        HopperTile(64, (128, 32), 64, 7, 32, 32, parties=1, ctas=4, rate=687, step=0.208),
        HopperTile(64, (64, 8), 64, 8, 32, 16, rate=569, step=0.190),
        HopperTile(64, (64, 16, 8), 64, 7, 16, 16, rate=662, step=0.248),
        HopperTile(64, (64, 32, 8), 64, 7, 32, 16, rate=729, step=0.278),
        HopperTile(64, (128, 8), 64, 6, 32, 16, rate=779, step=0.250),
        HopperTile(64, (128, 32, 8), 64, 5, 32, 16, rate=800, step=0.280),
        HopperTile(64, (128, 64, 8), 64, 5, 32, 16, rate=852, step=0.300),
        HopperTile(64, (128, 64, 16), 64, 5, 16, 16, rate=860, step=0.300),
        HopperTile(64, (64, 16), 64, 7, 32, 16, ctas=2, rate=613, step=0.190),
        HopperTile(64, (64, 32), 64, 7, 32, 32, ctas=2, rate=712, step=0.307),
        HopperTile(64, (64, 32, 8), 64, 7, 32, 16, ctas=2, rate=729, step=0.278),
        HopperTile(64, (64, 32, 16), 64, 6, 32, 16, ctas=2, rate=746, step=0.250),
        HopperTile(64, (128, 8), 64, 6, 32, 16, ctas=2, rate=779, step=0.250),
        HopperTile(64, (128, 16), 64, 5, 32, 16, ctas=2, rate=779, step=0.250),
        HopperTile(64, (128, 64, 8), 64, 5, 32, 16, ctas=2, rate=852, step=0.300),
        HopperTile(64, (128, 64, 16), 64, 5, 16, 16, ctas=2, rate=860, step=0.300),
        HopperTile(64, (64, 32), 64, 7, 32, 32, ctas=4, rate=712, step=0.307),
        HopperTile(64, (64, 32, 8), 64, 7, 32, 16, ctas=4, rate=729, step=0.278),
        HopperTile(64, (64, 32, 16), 64, 6, 32, 16, ctas=4, rate=746, step=0.250),
        HopperTile(64, (128, 8), 64, 6, 32, 16, ctas=4, rate=779, step=0.250),
        HopperTile(64, (128, 32), 64, 5, 32, 32, ctas=4, rate=779, step=0.260),
        HopperTile(64, (128, 64, 8), 64, 5, 32, 16, ctas=4, rate=852, step=0.300),
        HopperTile(64, (64, 32), 64, 5, 32, 32, parties=3, rate=649, step=0.264),
        HopperTile(64, (64, 32, 8), 64, 5, 32, 16, parties=3, rate=687, step=0.264),
        HopperTile(64, (128, 8), 64, 5, 16, 16, parties=3, rate=810, step=0.272),
        HopperTile(64, (128, 32, 8), 64, 4, 32, 16, parties=3, rate=829, step=0.292),
        HopperTile(64, (128, 64, 8), 64, 4, 32, 16, parties=3, rate=840, step=0.300),
        HopperTile(64, (64, 32, 8), 64, 5, 32, 16, parties=3, ctas=2, rate=687, step=0.264),
        HopperTile(64, (128,), 64, 5, 32, 32, parties=3, ctas=2, rate=794, step=0.264),
        HopperTile(64, (128, 8), 64, 5, 16, 16, parties=3, ctas=2, rate=810, step=0.272),
        HopperTile(64, (128, 16), 64, 5, 16, 16, parties=3, ctas=2, rate=825, step=0.280),
        HopperTile(64, (128, 32, 8), 64, 4, 32, 16, parties=3, ctas=2, rate=829, step=0.292),
        HopperTile(64, (128, 64, 8), 64, 4, 32, 16, parties=3, ctas=2, rate=840, step=0.300),
        HopperTile(64, (128, 64, 8), 64, 4, 32, 16, parties=3, ctas=4, rate=840, step=0.300),
        HopperTile(128, (128, 32), 64, 4, 16, 32, rate=811, step=0.400),
        HopperTile(128, (128, 32, 8), 64, 3, 32, 16, rate=811, step=0.412),
        HopperTile(128, (128, 32), 64, 4, 16, 32, ctas=2, rate=811, step=0.400),
        HopperTile(64, (32,), 64, 12, 32, 16, parties=1, rate=230, step=0.12),
        HopperTile(64, (32,), 64, 12, 32, 16, parties=1, ctas=2, rate=230, step=0.12),
        HopperTile(64, (32,), 64, 12, 32, 16, parties=1, ctas=4, rate=230, step=0.12),
        HopperTile(64, (32, 8), 64, 12, 32, 16, parties=1, rate=280, step=0.12),
        HopperTile(64, (32, 8), 64, 12, 32, 16, parties=1, ctas=2, rate=280, step=0.12),
        HopperTile(64, (32, 8), 64, 12, 32, 16, parties=1, ctas=4, rate=280, step=0.12),
        HopperTile(64, (32, 16), 64, 12, 32, 16, parties=1, rate=330, step=0.12),
        HopperTile(64, (32, 16), 64, 12, 32, 16, parties=1, ctas=2, rate=330, step=0.12),
        HopperTile(64, (32, 16), 64, 12, 32, 16, parties=1, ctas=4, rate=330, step=0.12),
    ),
    8: (
        HopperTile(64, (128, 128), 128, 4, 32, 8, rate=1553, step=0.4),
        HopperTile(64, (128, 64), 128, 5, 32, 8, rate=1545, step=0.35),
        HopperTile(64, (128,), 128, 6, rate=1540, step=0.35),
        HopperTile(64, (128,), 128, 4, 32, parties=1, per=2, rate=1903, step=0.291),
        HopperTile(64, (64,), 128, 4, 32, parties=1, per=3, rate=1155, step=0.196),
        HopperTile(64, (128, 32), 128, 5, 32, 8, rate=1421, step=0.32),
        HopperTile(64, (64, 32), 128, 7, 32, 8, rate=1221, step=0.27),
        HopperTile(64, (128, 16), 128, 5, 32, 8, rate=1296, step=0.294),
        HopperTile(64, (64, 16), 128, 7, 32, 8, rate=1091, step=0.317),
        HopperTile(64, (128, 128), 128, 4, 32, 8, ctas=2, rate=1508, step=0.4),
        HopperTile(64, (128, 64), 128, 5, 32, 8, ctas=2, rate=1510, step=0.35),
        HopperTile(64, (128,), 128, 6, ctas=2, rate=1450, step=0.319),
        HopperTile(64, (64, 32), 128, 5, 32, 8, parties=3, rate=1313, step=0.248),
        HopperTile(64, (128,), 128, 5, 32, parties=3, ctas=2, rate=1500, step=0.264),
        HopperTile(64, (128,), 128, 9, 32, parties=1, ctas=2, rate=982, step=0.281),
        HopperTile(64, (128,), 128, 9, 32, parties=1, ctas=4, rate=1014, step=0.264),
        HopperTile(64, (128, 32), 128, 5, 32, 8, ctas=2, rate=1379, step=0.3),
        HopperTile(64, (64, 16), 128, 7, 32, 8, ctas=4, rate=1087, step=0.342),
        HopperTile(64, (64, 32, 16), 128, 6, 32, 8, rate=1374, step=0.3),
        HopperTile(64, (128, 32, 16), 128, 5, 32, 8, rate=1467, step=0.35),
        HopperTile(64, (64, 8), 128, 12, 32, 16, parties=1, rate=698, step=0.273),
        HopperTile(64, (64, 32), 128, 10, 32, 32, parties=1, rate=797, step=0.273),
        HopperTile(64, (64, 32, 16), 128, 9, 32, 16, parties=1, rate=902, step=0.273),
        HopperTile(64, (128, 8), 128, 8, 32, 16, parties=1, rate=1008, step=0.273),
        HopperTile(64, (64, 8), 128, 12, 32, 16, parties=1, ctas=2, rate=698, step=0.273),
        HopperTile(64, (64, 16), 128, 11, 32, 16, parties=1, ctas=2, rate=744, step=0.273),
        HopperTile(64, (64, 32), 128, 10, 32, 32, parties=1, ctas=2, rate=797, step=0.273),
        HopperTile(64, (64, 32, 16), 128, 9, 32, 16, parties=1, ctas=2, rate=902, step=0.273),
        HopperTile(64, (128, 8), 128, 8, 32, 16, parties=1, ctas=2, rate=1008, step=0.273),
        HopperTile(64, (128, 16), 128, 8, 32, 16, parties=1, ctas=2, rate=1008, step=0.273),
        HopperTile(64, (64, 32), 128, 10, 32, 32, parties=1, ctas=4, rate=797, step=0.273),
        HopperTile(64, (64, 32, 8), 128, 10, 32, 16, parties=1, ctas=4, rate=849, step=0.273),
        HopperTile(64, (64, 32, 16), 128, 9, 32, 16, parties=1, ctas=4, rate=902, step=0.273),
        HopperTile(64, (128, 8), 128, 8, 32, 16, parties=1, ctas=4, rate=1008, step=0.273),
        HopperTile(64, (128, 16), 128, 8, 32, 16, parties=1, ctas=4, rate=1008, step=0.273),
        HopperTile(64, (64, 32, 8), 128, 7, 32, 16, rate=1298, step=0.285),
        HopperTile(64, (128, 8), 128, 6, 32, 16, rate=1495, step=0.314),
        HopperTile(64, (128, 32, 8), 128, 5, 32, 16, rate=1495, step=0.330),
        HopperTile(64, (64, 32), 128, 7, 32, 32, ctas=2, rate=1221, step=0.270),
        HopperTile(64, (64, 32, 8), 128, 7, 32, 16, ctas=2, rate=1298, step=0.285),
        HopperTile(64, (64, 32, 16), 128, 6, 32, 16, ctas=2, rate=1374, step=0.300),
        HopperTile(64, (128, 8), 128, 6, 32, 16, ctas=2, rate=1495, step=0.314),
        HopperTile(64, (128, 16), 128, 5, 32, 16, ctas=2, rate=1495, step=0.294),
        HopperTile(64, (128, 32, 16), 128, 5, 32, 16, ctas=2, rate=1495, step=0.350),
        HopperTile(64, (64, 32), 128, 7, 32, 32, ctas=4, rate=1221, step=0.270),
        HopperTile(64, (64, 32, 16), 128, 6, 32, 16, ctas=4, rate=1374, step=0.300),
        HopperTile(64, (128,), 128, 6, 32, 32, ctas=4, rate=1495, step=0.335),
        HopperTile(64, (128, 8), 128, 6, 32, 16, ctas=4, rate=1495, step=0.314),
        HopperTile(64, (128, 16), 128, 5, 32, 16, ctas=4, rate=1495, step=0.294),
        HopperTile(64, (128, 32), 128, 5, 32, 32, ctas=4, rate=1495, step=0.310),
        HopperTile(64, (64, 32, 8), 128, 5, 32, 16, parties=3, rate=1360, step=0.252),
        HopperTile(64, (128,), 128, 5, 32, 32, parties=3, rate=1500, step=0.264),
        HopperTile(64, (64, 32), 128, 5, 32, 32, parties=3, ctas=2, rate=1313, step=0.248),
        HopperTile(64, (64, 32, 8), 128, 5, 32, 16, parties=3, ctas=2, rate=1360, step=0.252),
        HopperTile(64, (32,), 128, 12, 32, 16, parties=1, rate=350, step=0.12),
        HopperTile(64, (32,), 128, 12, 32, 16, parties=1, ctas=2, rate=350, step=0.12),
        HopperTile(64, (32,), 128, 12, 32, 16, parties=1, ctas=4, rate=350, step=0.12),
        HopperTile(64, (32, 8), 128, 12, 32, 16, parties=1, rate=430, step=0.12),
        HopperTile(64, (32, 8), 128, 12, 32, 16, parties=1, ctas=2, rate=430, step=0.12),
        HopperTile(64, (32, 8), 128, 12, 32, 16, parties=1, ctas=4, rate=430, step=0.12),
        HopperTile(64, (32, 16), 128, 12, 32, 16, parties=1, rate=510, step=0.12),
        HopperTile(64, (32, 16), 128, 12, 32, 16, parties=1, ctas=2, rate=510, step=0.12),
        HopperTile(64, (32, 16), 128, 12, 32, 16, parties=1, ctas=4, rate=510, step=0.12),
    ),
}
