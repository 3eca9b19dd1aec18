# SPDX-License-Identifier: MIT
"""A pretended machine with partitioned GPUs, for trying a hub and testing it without one.

The values are those of a plausible machine, not of a measured one.
"""

from __future__ import annotations

from pathlib import Path

from hub.partitions import partition_of
from rocm_guide.observe.system.machine import Machine

__all__ = ["pretend_hub_machine"]


def pretend_hub_machine(
    folder: Path, *, gpus: int = 8, compute: str = "SPX", memory: str = "NPS1", high_bits: bool = False
) -> Machine:
    """Build a machine with two processors and ``gpus`` MI300X in the given modes below ``folder``.

    Args:
        high_bits: a partition's number lies in the highest bits of the location, as newer kernels put it.

    >>> import tempfile
    >>> from hub.devices import list_devices
    >>> with tempfile.TemporaryDirectory() as d:
    ...     found = list_devices(pretend_hub_machine(Path(d), compute="CPX", memory="NPS4"))
    >>> len(found), found[9].name, found[9].units, found[9].mode
    (64, '0000:1c:00.0#1', 38, 'CPX/NPS4')
    """
    root = folder / "root"

    def put(name: str, text: str) -> None:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")

    part = partition_of(compute, memory)
    nodes = "sys/class/kfd/kfd/topology/nodes"
    for n in range(2):
        put(f"{nodes}/{n}/properties", "cpu_cores_count 96\nsimd_count 0\nvendor_id 0")
    render = 128
    for i in range(gpus):
        bus = 0x0C + 0x10 * i
        card = f"sys/class/drm/card{i * 8 + 1}/device"
        put(f"{card}/vendor", "0x1002")
        put(f"{card}/uevent", f"DRIVER=amdgpu\nPCI_SLOT_NAME=0000:{bus:02x}:00.0")
        put(f"{card}/power_dpm_force_performance_level", "auto")
        put(f"{card}/current_compute_partition", compute)
        put(f"{card}/current_memory_partition", memory)
        for k in range(part.devices):
            node = f"{nodes}/{2 + i * part.devices + k}"
            place = bus << 8 | (k << 28 if high_bits else k)
            fields = {
                "cpu_cores_count": 0,
                "simd_count": part.units * 4,
                "simd_per_cu": 4,
                "num_xcc": part.dies,
                "gfx_target_version": 90402,
                "vendor_id": 0x1002,
                "location_id": place,
                "domain": 0,
                "drm_render_minor": render,
            }
            put(f"{node}/properties", "\n".join(f"{k} {v}" for k, v in fields.items()))
            put(f"{node}/mem_banks/0/properties", f"heap_type 1\nsize_in_bytes {int(part.gib * 2**30)}")
            put(f"dev/dri/renderD{render}", "")
            render += 1
    if gpus:
        put("dev/kfd", "")
    put("proc/meminfo", "MemTotal:       24000000 kB\nMemAvailable:   23000000 kB")
    put("proc/mounts", "proc /proc proc rw,nosuid,nodev,noexec,relatime,hidepid=2 0 0")
    put("etc/group", "root:x:0:\nvideo:x:44:\nrender:x:105:\nusers:x:100:ann,bob")
    put("etc/passwd", "root:x:0:0::/root:/bin/bash\nann:x:1001:100::/home/ann:/bin/bash")
    return Machine(root, path="", environ={})
