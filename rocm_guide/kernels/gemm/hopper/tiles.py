# SPDX-License-Identifier: MIT
"""The tiles of the GEMM on NVIDIA's Hopper (:mod:`rocm_guide.kernels.gemm.hopper.kernel`), and what each costs.

Which of them a product gets: module ``configs`` beside this one; where the costs are from: module ``times``.
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
OVERLAP_WORK = {1: 6e9, 2: 4e10, 4: 4e10, 8: 4e10}


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

    The rows are 64 or 128. The columns are in one to three ``blocks``, each a power of two.

    Up to ``stages`` of ``bk`` columns of A wait in shared memory, C leaves in strips of ``strip`` columns (the last
    block may have fewer), ``per`` programs share a multiprocessor. ``parts``: of K, each summed by itself. ``stream``:
    programs share out steps of K, not tiles (see :mod:`rocm_guide.kernels.gemm.stream_k`). ``copied``: "a", "b" or "ab"
    are copied to rows of whole lines of the cache first. ``ctas``: 2, 4 or 8 for clusters of programs, one below the
    other, that fetch B together; with ``across`` = 2 or 4 they stand in so many columns, and those beside each other
    fetch A together. ``flip``: what is computed is C^T = B^T A^T, so its rows are columns of C.

    What it costs on an H100: ``rate``, TFLOPS of a full GPU far from the ends of a product, and ``step``, the least
    microseconds that one step of ``bk`` takes, however few programs there are.
    """

    rows: int
    blocks: tuple[int, ...]
    bk: int
    stages: int
    strip: int = 64
    parties: int = 2
    per: int = 1
    stream: bool = False
    parts: int = 1
    copied: str = ""
    ctas: int = 1
    across: int = 1
    flip: bool = False
    rate: float = 600.0
    step: float = 0.3

    @property
    def bm(self) -> int:
        """Rows of a tile of C (of C^T, if flipped), or of all of a cluster."""
        return self.parties * self.rows * self.down

    @property
    def width(self) -> int:
        """Columns of a program's tile of C."""
        return sum(self.blocks)

    @property
    def bn(self) -> int:
        """Columns of a tile of C, or of all of a cluster."""
        return self.width * self.across

    @property
    def alone(self) -> bool:
        """Whether one warpgroup has all of as many rows as are usually those of two."""
        return self.parties == 1 and self.rows > 64

    @property
    def down(self) -> int:
        """How many programs of a cluster are one below the other."""
        return self.ctas // self.across

    @property
    def group(self) -> int:
        """How many rows of tiles, or of clusters, are walked together."""
        return max(1, (16 if self.parties * self.rows == 64 else 8) // self.down)

    def overlaps(self, work: float) -> bool:
        """Whether it starts while the kernel before it is still finishing, for a product of ``work`` operations: not if
        its programs wait for each other."""
        return not self.stream and work <= OVERLAP_WORK[self.ctas] * self.bk / 64

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
    def adds(self) -> str:
        """In fp8: whether a warpgroup begins "steps" one by one or in "pairs", which takes half as many registers more.

        On an H100 pairs made 867 x 256 x 5,120 by 64 x 40 a sixth faster. Two warpgroups multiply by turns anyway, and
        take longer with pairs: 1,857 x 2,304 x 6,848 by two of 64 x 136 took 59 us and not 52.
        """
        return "pairs" if self.parties == 1 and self.per == 1 else "steps"

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
        how += ", one warpgroup" if self.alone else ""
        how += f", {self.per} at a time" if self.per > 1 else ""
        how += {1: "", 2: ", in pairs", 4: ", in fours", 8: ", in eights"}[self.ctas]
        how += {1: "", 2: ", in two columns", 4: ", in four columns"}[self.across] + (", flipped" if self.flip else "")
        return f"{self.bm}x{self.bn}x{self.bk}{how}{f', {self.copied} copied' if self.copied else ''}"


#: By bits of the element type.
HOPPER_TILES: dict[int, tuple[HopperTile, ...]] = {
    16: (
        HopperTile(64, (32, 8), 64, 12, 32, parties=1, rate=320, step=0.09),
        HopperTile(64, (64, 8), 64, 12, 32, parties=1, rate=592, step=0.1),
        HopperTile(64, (64, 16), 64, 11, 32, parties=1, rate=662, step=0.1),
        HopperTile(64, (64, 32), 64, 10, 32, parties=1, rate=540, step=0.1),
        HopperTile(64, (64, 32, 16), 64, 9, 32, parties=1, rate=644, step=0.12),
        HopperTile(64, (128, 8), 64, 8, 32, parties=1, rate=675, step=0.15),
        HopperTile(64, (128, 32), 64, 7, 32, parties=1, rate=792, step=0.208),
        HopperTile(64, (128, 64), 64, 6, 32, parties=1, rate=942, step=0.257),
        HopperTile(64, (256,), 64, 5, 32, parties=1, rate=954, step=0.353),
        HopperTile(64, (64, 16), 64, 7, 32, rate=712, step=0.19),
        HopperTile(64, (64, 16, 8), 64, 7, 16, rate=666, step=0.248),
        HopperTile(64, (64, 32), 64, 7, 32, rate=774, step=0.295),
        HopperTile(64, (64, 32, 16), 64, 6, 32, rate=795, step=0.25),
        HopperTile(64, (128,), 64, 6, rate=885, step=0.22),
        HopperTile(64, (128, 16), 64, 5, 32, rate=866, step=0.25),
        HopperTile(64, (128, 32), 64, 5, 32, rate=889, step=0.26),
        HopperTile(64, (128, 32, 16), 64, 5, 32, rate=840, step=0.3),
        HopperTile(64, (128, 64), 64, 5, 32, rate=861, step=0.3),
        HopperTile(64, (128, 64, 8), 64, 5, 32, rate=891, step=0.3),
        HopperTile(64, (128, 64, 16), 64, 5, 16, rate=851, step=0.3),
        HopperTile(64, (128, 64, 32), 64, 4, 32, rate=869, step=0.33),
        HopperTile(64, (256,), 64, 4, rate=891, step=0.35),
        HopperTile(64, (256, 32), 64, 4, 32, rate=842, step=0.344),
        HopperTile(64, (256, 64), 64, 3, 32, rate=725, step=0.36),
        HopperTile(64, (64, 32, 8), 64, 5, 32, parties=3, rate=726, step=0.264),
        HopperTile(64, (128,), 64, 5, 32, parties=3, rate=846, step=0.264),
        HopperTile(64, (128, 16), 64, 5, 16, parties=3, rate=848, step=0.28),
        HopperTile(64, (128, 32), 64, 4, 32, parties=3, rate=846, step=0.3),
        HopperTile(64, (128, 32, 8), 64, 4, 32, parties=3, rate=860, step=0.292),
        HopperTile(64, (128, 64), 64, 4, 32, parties=3, rate=880, step=0.296),
        HopperTile(64, (128, 64, 16), 64, 4, 16, parties=3, rate=745, step=0.304),
        HopperTile(128, (128, 32), 64, 4, 16, rate=873, step=0.4),
        HopperTile(128, (128, 64), 64, 3, 32, rate=783, step=0.45),
        HopperTile(64, (128,), 64, 4, 32, parties=1, per=2, rate=813, step=0.309),
        HopperTile(64, (128, 64, 8), 64, 5, 32, ctas=2, rate=802, step=0.3),
        HopperTile(64, (256,), 64, 4, ctas=2, rate=869, step=0.35),
        HopperTile(64, (128, 64), 64, 4, 32, parties=3, ctas=2, rate=865, step=0.296),
        HopperTile(64, (128, 64, 8), 64, 4, 32, parties=3, ctas=2, rate=705, step=0.3),
        HopperTile(128, (128, 32), 64, 4, 16, ctas=2, rate=850, step=0.4),
        HopperTile(128, (128, 64), 64, 3, 32, ctas=2, rate=826, step=0.45),
        HopperTile(64, (128,), 64, 9, 32, parties=1, ctas=4, rate=671, step=0.21),
        HopperTile(64, (128, 16), 64, 8, 32, parties=1, ctas=4, rate=738, step=0.18),
        HopperTile(64, (128, 32), 64, 5, 32, ctas=4, rate=895, step=0.26),
        HopperTile(64, (128, 64), 64, 5, 32, ctas=4, rate=843, step=0.3),
        HopperTile(64, (128, 64, 8), 64, 5, 32, ctas=4, rate=858, step=0.3),
        HopperTile(64, (256,), 64, 4, 32, ctas=4, rate=877, step=0.35),
        HopperTile(64, (64, 32), 64, 10, 32, parties=1, ctas=4, across=2, rate=521, step=0.13),
        HopperTile(64, (128,), 64, 6, 32, ctas=4, across=2, rate=803, step=0.25),
        HopperTile(64, (128, 32), 64, 5, 32, ctas=4, across=2, rate=826, step=0.26),
        HopperTile(64, (64, 16), 64, 11, 32, parties=1, ctas=8, across=2, rate=536, step=0.164),
        HopperTile(64, (64, 32), 64, 10, 32, parties=1, ctas=8, across=2, rate=607, step=0.13),
        HopperTile(64, (128, 16), 64, 8, 32, parties=1, ctas=8, across=2, rate=743, step=0.18),
        HopperTile(64, (128,), 64, 6, 32, ctas=8, across=2, rate=807, step=0.2),
        HopperTile(64, (64, 16), 64, 11, 32, parties=1, ctas=8, across=4, rate=500, step=0.188),
        HopperTile(128, (128, 16, 8), 64, 4, 16, ctas=2, across=2, rate=797, step=0.38),
        HopperTile(128, (128, 32), 64, 4, 16, ctas=2, across=2, rate=855, step=0.4),
        HopperTile(64, (128, 64), 64, 4, 32, parties=3, ctas=2, across=2, rate=862, step=0.296),
        HopperTile(64, (256,), 64, 4, 32, ctas=2, across=2, rate=801, step=0.35),
        HopperTile(64, (64,), 64, 13, 32, parties=1, ctas=4, across=2, rate=467, step=0.11),
        HopperTile(64, (64, 16), 64, 11, 32, parties=1, ctas=4, across=2, rate=476, step=0.12),
        HopperTile(64, (64,), 64, 13, 32, parties=1, ctas=8, across=2, rate=468, step=0.11),
        HopperTile(64, (64, 32, 16), 64, 9, 32, parties=1, ctas=8, across=2, rate=627, step=0.14),
        HopperTile(64, (128, 32), 64, 5, 32, ctas=8, across=2, rate=849, step=0.26),
        HopperTile(64, (32, 16), 64, 14, 32, parties=1, ctas=8, across=4, rate=364, step=0.11),
        HopperTile(64, (64,), 64, 13, 32, parties=1, ctas=8, across=4, rate=491, step=0.11),
        HopperTile(64, (64, 8), 64, 12, 32, parties=1, ctas=8, across=4, rate=492, step=0.12),
        HopperTile(64, (64, 32, 8), 64, 10, 32, parties=1, ctas=8, across=4, rate=546, step=0.14),
        HopperTile(64, (64, 16), 64, 6, 32, parties=3, rate=775, step=0.24),
        HopperTile(64, (64, 32, 16), 64, 5, 32, parties=3, rate=853, step=0.26),
        HopperTile(64, (128, 16, 8), 64, 4, 16, parties=3, rate=846, step=0.28),
        HopperTile(64, (128, 16, 8), 64, 5, 16, rate=859, step=0.26),
        HopperTile(64, (128, 64, 32), 64, 4, 32, ctas=2, rate=865, step=0.33),
        HopperTile(64, (128, 16), 64, 4, 32, parties=3, ctas=2, rate=775, step=0.28),
        HopperTile(64, (128, 16), 64, 4, 32, parties=3, ctas=2, across=2, rate=822, step=0.28),
        HopperTile(64, (64, 32), 64, 4, 32, parties=1, per=2, rate=720, step=0.253),
        HopperTile(128, (64,), 64, 3, 32, parties=1, per=2, rate=700, step=0.309),
        HopperTile(128, (64, 16), 64, 8, 32, parties=1, rate=736, step=0.19),
        HopperTile(128, (64, 32, 16), 64, 7, 32, parties=1, rate=862, step=0.25),
        HopperTile(128, (128,), 64, 6, 32, parties=1, rate=948, step=0.22),
        HopperTile(128, (128, 16), 64, 5, 32, parties=1, rate=879, step=0.25),
        HopperTile(128, (128, 32), 64, 5, 32, parties=1, rate=890, step=0.26),
        HopperTile(128, (128, 64), 64, 5, 32, parties=1, rate=880, step=0.3),
        HopperTile(128, (64, 32, 16), 64, 7, 32, parties=1, ctas=4, rate=751, step=0.25),
        HopperTile(128, (128,), 64, 6, 32, parties=1, ctas=4, rate=813, step=0.22),
        HopperTile(128, (128, 16), 64, 5, 32, parties=1, ctas=4, rate=836, step=0.25),
        HopperTile(128, (128, 32), 64, 5, 32, parties=1, ctas=4, rate=855, step=0.26),
    ),
    8: (
        HopperTile(64, (32, 8), 128, 12, 32, parties=1, rate=752, step=0.075),
        HopperTile(64, (32, 16), 128, 12, 32, parties=1, rate=924, step=0.075),
        HopperTile(64, (64, 8), 128, 12, 32, parties=1, rate=1062, step=0.098),
        HopperTile(64, (64, 32), 128, 10, 32, parties=1, rate=1205, step=0.112),
        HopperTile(64, (128, 8), 128, 8, 32, parties=1, rate=1142, step=0.205),
        HopperTile(64, (64, 16), 128, 7, 32, rate=1106, step=0.332),
        HopperTile(64, (64, 32), 128, 7, 32, rate=1283, step=0.271),
        HopperTile(64, (64, 32, 8), 128, 7, 32, rate=1220, step=0.285),
        HopperTile(64, (64, 32, 16), 128, 6, 32, rate=1490, step=0.3),
        HopperTile(64, (128,), 128, 6, rate=1494, step=0.353),
        HopperTile(64, (128, 16), 128, 5, 32, rate=1636, step=0.294),
        HopperTile(64, (128, 32), 128, 5, 32, rate=1620, step=0.32),
        HopperTile(64, (128, 32, 16), 128, 5, 32, rate=1721, step=0.35),
        HopperTile(64, (128, 64), 128, 5, 32, rate=1795, step=0.35),
        HopperTile(64, (128, 128), 128, 4, 32, rate=1577, step=0.4),
        HopperTile(64, (128,), 128, 4, 32, parties=1, per=2, rate=1612, step=0.285),
        HopperTile(64, (64,), 128, 4, 32, parties=1, per=3, rate=1118, step=0.211),
        HopperTile(64, (64, 32), 128, 10, 32, parties=1, ctas=2, rate=1012, step=0.222),
        HopperTile(64, (64, 32, 16), 128, 9, 32, parties=1, ctas=2, rate=1005, step=0.2),
        HopperTile(64, (128, 16), 128, 5, 32, ctas=2, rate=1426, step=0.294),
        HopperTile(64, (128, 128), 128, 4, 32, ctas=2, rate=1547, step=0.4),
        HopperTile(64, (32, 16), 128, 12, 32, parties=1, ctas=4, rate=909, step=0.09),
        HopperTile(64, (128, 8), 128, 8, 32, parties=1, ctas=4, rate=1206, step=0.205),
        HopperTile(64, (128, 16), 128, 8, 32, parties=1, ctas=4, rate=1210, step=0.266),
        HopperTile(64, (128,), 128, 6, 32, ctas=4, rate=1520, step=0.366),
        HopperTile(64, (64, 16), 128, 11, 32, parties=1, ctas=4, across=2, rate=1115, step=0.137),
        HopperTile(64, (64, 32), 128, 10, 32, parties=1, ctas=4, across=2, rate=1051, step=0.15),
        HopperTile(64, (128, 16), 128, 5, 32, ctas=4, across=2, rate=1496, step=0.294),
        HopperTile(64, (128, 64), 128, 5, 32, ctas=4, across=2, rate=1548, step=0.35),
        HopperTile(64, (64,), 128, 13, 32, parties=1, ctas=8, across=2, rate=867, step=0.165),
        HopperTile(64, (64, 32), 128, 7, 32, ctas=8, across=2, rate=1209, step=0.271),
        HopperTile(64, (128,), 128, 6, 32, ctas=8, across=2, rate=1516, step=0.335),
        HopperTile(64, (128, 8), 128, 6, 32, ctas=2, rate=1354, step=0.316),
        HopperTile(64, (128,), 128, 6, 32, ctas=2, across=2, rate=1396, step=0.316),
        HopperTile(64, (128, 64), 128, 5, 32, ctas=2, across=2, rate=1535, step=0.35),
        HopperTile(64, (64, 16), 128, 11, 32, parties=1, ctas=8, across=2, rate=1122, step=0.155),
        HopperTile(64, (64, 32), 128, 10, 32, parties=1, ctas=8, across=2, rate=1087, step=0.18),
        HopperTile(64, (64, 32, 16), 128, 9, 32, parties=1, ctas=8, across=2, rate=1313, step=0.199),
        HopperTile(64, (64, 16), 128, 11, 32, parties=1, ctas=8, across=4, rate=1092, step=0.157),
        HopperTile(64, (64, 32), 128, 10, 32, parties=1, ctas=8, across=4, rate=1188, step=0.181),
    ),
}
