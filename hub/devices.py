# SPDX-License-Identifier: MIT
"""The devices to hand out: AMD GPUs and their partitions, as the kernel lists them.

The runtime numbers its devices in the order of the kernel's topology, so the number that ``ROCR_VISIBLE_DEVICES`` takes
is read off it, and no library has to be asked: a hub needs no ROCm of its own.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from rocm_guide.observe.system.machine import Machine

__all__ = ["Device", "list_devices"]

_NODES = "sys/class/kfd/kfd/topology/nodes"


@dataclass(frozen=True)
class Device:
    """One GPU, or one partition of a GPU, that a program can be given.

    Args:
        number: what ``ROCR_VISIBLE_DEVICES`` takes; it changes when a GPU is partitioned anew.
        gpu: PCI address of the GPU.
        partition: which of its partitions, from 0; 0 for a GPU that is not partitioned.
        render: the number of its file ``/dev/dri/renderD<render>``.
        memory: bytes; partitions that share a memory share this figure out.
        dies: compute dies (XCDs).
        units: compute units that are switched on.
        mode: compute and memory mode, as "CPX/NPS4"; empty where the kernel has none.
    """

    number: int
    gpu: str
    partition: int
    render: int
    memory: int
    dies: int
    units: int
    mode: str

    @property
    def name(self) -> str:
        """The same device has the same name after a restart of the machine.

        >>> Device(9, "0000:0c:00.0", 1, 129, 24 * 2**30, 1, 38, "CPX/NPS4").name
        '0000:0c:00.0#1'
        """
        return f"{self.gpu}#{self.partition}"

    @property
    def file(self) -> str:
        """Its device file; together with ``/dev/kfd`` all that a container needs."""
        return f"/dev/dri/renderD{self.render}"


def _numbers(text: str | None) -> dict[str, int]:
    # The ``name value`` lines of a file in the kernel's topology.
    return {k: int(v) for k, v in re.findall(r"^(\w+) (\d{1,20})$", text or "", re.M)}


def _memory(m: Machine, node: str) -> int:
    """Return the bytes of the banks of frame buffer (types 1 and 2) of a node."""
    banks = (m.root / _NODES / node / "mem_banks").glob("*/properties")
    found = (_numbers(m.read(str(b.relative_to(m.root)))) for b in banks)
    return sum(b.get("size_in_bytes", 0) for b in found if b.get("heap_type") in (1, 2))


def list_devices(machine: Machine | None = None) -> list[Device]:
    """Return the AMD devices of this machine in the order of their numbers; nodes that may not be read are left out.

    In a container, the kernel hides the nodes of devices that the container was not given, as the runtime does.

    Args:
        machine: the real one by default.

    Source: the kernel's ``drivers/gpu/drm/amd/amdkfd/kfd_topology.c`` for the files and their fields.

    >>> isinstance(list_devices(), list)
    True
    """
    m = machine or Machine()
    nodes = sorted((p.name for p in (m.root / _NODES).glob("*") if p.name.isdigit()), key=int)
    seen = [(node, _numbers(m.read(f"{_NODES}/{node}/properties"))) for node in nodes]
    modes = {gpu.bdf: _mode(m, gpu.folder) for gpu in m.gpus()}
    found: list[Device] = []
    partitions: Counter[str] = Counter()
    for node, p in seen:
        simds = p.get("simd_count", 0)
        if not simds or p.get("vendor_id", 0x1002) != 0x1002:
            continue  # a processor, or a node that this container may not read
        # The partition's number is mixed into the function or, by newer kernels, into the four highest bits.
        place = p.get("location_id", 0)
        gpu = f"{p.get('domain', 0):04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}.0"
        found.append(
            Device(
                number=len(found),
                gpu=gpu,
                partition=partitions[gpu],
                render=p.get("drm_render_minor", 0),
                memory=_memory(m, node),
                dies=p.get("num_xcc", 1),
                units=simds // (p.get("simd_per_cu") or 4),
                mode=modes.get(gpu, ""),
            )
        )
        partitions[gpu] += 1
    return found


def _mode(m: Machine, folder: str) -> str:
    both = [m.read(f"{folder}/current_{what}_partition") for what in ("compute", "memory")]
    return "/".join(filter(None, both))
