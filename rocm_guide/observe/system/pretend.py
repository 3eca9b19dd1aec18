# SPDX-License-Identifier: MIT
"""A pretended MI300X machine in a folder: kernel files, and tools that edit them as the driver would.

Settings that need root and a GPU can be tried out on it, by a reader and by the tests; nothing outside the folder is
touched. The values are those of a plausible machine, not of a measured one.
"""

from __future__ import annotations

import stat
import sys
from collections.abc import Sequence
from pathlib import Path

from rocm_guide.observe.system.machine import Machine

__all__ = ["photograph", "pretend_machine"]

#: PCI addresses of the pretended GPUs.
ADDRESSES = ("0000:0c:00.0", "0000:9f:00.0")

#: What stands for amd-smi and rocm-smi: it does what the driver does, in two steps, slowly if FAKE_PAUSE says so.
_TOOL = """\
#!{python}
import os, sys, time, pathlib
root, args = pathlib.Path({root!r}), sys.argv[1:]
pause = float(os.environ.get("FAKE_PAUSE", "0"))
with open(root / "calls.log", "a") as log:
    log.write({name!r} + " " + " ".join(args) + "\\n")
if os.environ.get("FAKE_FAIL"):
    sys.exit("ERROR: Permission denied, must be root")
cards = sorted(c for c in (root / "sys/class/drm").glob("card*/device") if (c / "uevent").exists())
if "--gpu" in args:
    bdf = args[args.index("--gpu") + 1]
    card = next(c for c in cards if bdf in (c / "uevent").read_text())
else:
    card = cards[int(args[args.index("-d") + 1])]
level, table = card / "power_dpm_force_performance_level", card / "pp_od_clk_voltage"
def clock(mhz):
    table.write_text("OD_SCLK:\\n0:        500Mhz\\n1:       %sMhz\\nOD_MCLK:\\n0: 900Mhz\\n" % mhz)
flag = next((a for a in args if a.startswith("--") and a not in ("--gpu", "--autorespond")), "")
value = args[args.index(flag) + 1] if flag and args.index(flag) + 1 < len(args) else ""
if args[0] == "reset" or flag == "--resetperfdeterminism":
    level.write_text("auto\\n"); time.sleep(pause); clock(2100)
elif flag in ("--perf-determinism", "--setperfdeterminism"):
    level.write_text("perf_determinism\\n"); time.sleep(pause); clock(os.environ.get("FAKE_CLAMP") or value)
elif flag in ("--perf-level", "--setperflevel"):
    level.write_text(value.lower() + "\\n")
else:
    sys.exit("unknown option " + " ".join(args))
"""


def pretend_machine(
    folder: Path,
    *,
    tools: Sequence[str] = ("amd-smi", "rocm-smi"),
    gpus: int = 2,
    levels: Sequence[str] = ("auto", "auto"),
) -> Machine:
    """Build the machine below ``folder`` and return it.

    Args:
        tools: which of amd-smi and rocm-smi are installed.
        gpus: 0, 1 or 2.
        levels: the performance level of each GPU.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as d:
    ...     machine = pretend_machine(Path(d))
    ...     [gpu.bdf for gpu in machine.gpus()], machine.read("proc/sys/kernel/numa_balancing")
    (['0000:0c:00.0', '0000:9f:00.0'], '1')
    """
    root = folder / "root"

    def put(name: str, text: str) -> None:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")

    put("proc/sys/kernel/numa_balancing", "1")
    put("proc/cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro iommu=pt")
    put("sys/kernel/mm/transparent_hugepage/enabled", "madvise")
    put("opt/rocm/.info/version", "7.0.1-42")
    for i in range(gpus):
        card = f"sys/class/drm/card{i * 8}/device"
        put(f"{card}/vendor", "0x1002")
        put(f"{card}/uevent", f"DRIVER=amdgpu\nPCI_SLOT_NAME={ADDRESSES[i]}")
        put(f"{card}/power_dpm_force_performance_level", levels[i])
        top = 1700 if levels[i] == "perf_determinism" else 2100
        put(f"{card}/pp_od_clk_voltage", f"OD_SCLK:\n0:        500Mhz\n1:       {top}Mhz\nOD_MCLK:\n0: 900Mhz")
        put(f"{card}/current_compute_partition", "SPX")
        put(f"{card}/current_memory_partition", "NPS1")
        put(f"{card}/numa_node", str(i))
        put(f"{card}/local_cpulist", f"{i * 96}-{i * 96 + 95}")
        for file in ("power1_cap", "power1_cap_max", "power1_cap_default"):
            put(f"{card}/hwmon/hwmon{i}/{file}", "750000000")
    put("sys/class/drm/card1/device/vendor", "0x10de")  # a card of another vendor
    put("sys/class/drm/card0-DP-1/status", "disconnected")
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    for name in tools:
        program = programs / name
        program.write_text(_TOOL.format(python=sys.executable, root=str(root), name=name))
        program.chmod(program.stat().st_mode | stat.S_IEXEC)
    return Machine(root, path=str(programs), environ={})


def photograph(machine: Machine) -> dict[str, str]:
    """Return every kernel file's content, to compare before and after."""
    return {
        str(p.relative_to(machine.root)): p.read_text()
        for top in ("proc", "sys")
        for p in sorted((machine.root / top).rglob("*"))
        if p.is_file()
    }
