# SPDX-License-Identifier: MIT
"""The modes in which an MI300X is one device or several, and what each of them gets: computed from the chip."""

from __future__ import annotations

from dataclasses import dataclass

from rocm_guide.common.base import GuideError

__all__ = ["Partition", "partition_of", "partition_table"]

#: Compute mode -> devices that it makes of the eight dies; TPX is for the six dies of an MI300A.
COMPUTE = {"SPX": 1, "DPX": 2, "QPX": 4, "CPX": 8}
#: Memory mode -> pieces of the memory.
MEMORY = {"NPS1": 1, "NPS2": 2, "NPS4": 4}
_DIES, _UNITS, _GIB = 8, 304, 192  # eight stacks of 24 GiB: 206 GB


@dataclass(frozen=True)
class Partition:
    """The resources of one device of an MI300X in a mode:
    dies, compute units, and GiB of its own (its share, if shared).
    """

    compute: str
    memory: str
    devices: int
    dies: int
    units: int
    gib: float
    shared_by: int


def partition_of(compute: str, memory: str = "NPS1") -> Partition:
    """Return what a device of an MI300X has when the chip is set to ``compute`` and ``memory``.

    A compute device lives in one piece of the memory, so there may not be more pieces than devices. Which of the modes
    that this leaves a machine takes is the driver's to say: ``available_compute_partition`` and
    ``available_memory_partition`` beside the files of the current modes.

    Args:
        compute: "SPX", "DPX", "QPX" or "CPX".
        memory: "NPS1", "NPS2" or "NPS4".

    Raises:
        GuideError: no such mode, or more pieces of memory than devices.

    Source: "AMD Instinct MI300X GPU partitioning overview",
    https://instinct.docs.amd.com/projects/amdgpu-docs/en/latest/gpu-partitioning/mi300x/overview.html.

    >>> partition_of("CPX", "NPS4")
    Partition(compute='CPX', memory='NPS4', devices=8, dies=1, units=38, gib=24.0, shared_by=2)
    >>> partition_of("SPX", "NPS4")
    Traceback (most recent call last):
        ...
    cdna.base.InputError: SPX/NPS4: 4 pieces of memory for 1 device; a device lives in one piece, take NPS1
    """
    for given, allowed in ((compute, COMPUTE), (memory, MEMORY)):
        if given not in allowed:
            raise GuideError(f"{given!r}: no such mode of an MI300X; choose from {', '.join(allowed)}")
    count, pieces = COMPUTE[compute], MEMORY[memory]
    if pieces > count:
        best = [name for name, n in MEMORY.items() if n <= count][-1]
        many = f"{count} device{'s' * (count > 1)}"
        raise GuideError(
            f"{compute}/{memory}: {pieces} pieces of memory for {many}; a device lives in one piece, take {best}"
        )
    return Partition(compute, memory, count, _DIES // count, _UNITS // count, _GIB / count, count // pieces)


def partition_table(cards: int = 8) -> list[tuple[str, int, int, float]]:
    """Return, for a machine with ``cards`` MI300X, (compute mode, devices in all, compute units each, GiB each).

    >>> partition_table()[-1]
    ('CPX', 64, 38, 24.0)
    """
    return [(c, cards * p.devices, p.units, p.gib) for c in COMPUTE for p in [partition_of(c)]]
