# SPDX-License-Identifier: MIT
"""The number of learners that fit on this machine, and what is missing for a hub: the doctor for classes."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from cdna.checks import Check
from hub.devices import Device, list_devices
from hub.proxy import proxy_version
from rocm_guide.common.base import GuideError, shown
from rocm_guide.common.host import cores, memory_available
from rocm_guide.observe.system.machine import Machine, whole_number

__all__ = ["Fit", "check_hub", "hub_libraries", "learners_that_fit"]

GIB = 2**30
#: What a learner takes, in GiB: measured with notebook 01 at tiny scale on a CPU (docs/hub.md says how).
RUNNING, IDLE = 0.9, 0.2
#: What the hub, its proxy and the system keep.
RESERVED = 1.0
#: Disk for a learner's notebooks, outputs and runs, without models of their own.
HOME = 2.0


@dataclass(frozen=True)
class Fit:
    """The number of learners that fit: all of them computing at once, or most of them reading;
    and what sets the limit.
    """

    running: int
    mixed: int
    with_device: int
    by_disk: int
    limit: str

    def __str__(self) -> str:
        """Return one line."""
        gpu = f"; {self.with_device} of them with a GPU device of their own" if self.with_device else ""
        return (
            f"{self.mixed} learners if one in four computes at a time, {self.running} if all do{gpu} "
            f"(the limit is {self.limit})"
        )


def learners_that_fit(
    memory: int, disk: int, gpus: int, *, running: float = RUNNING, idle: float = IDLE, home: float = HOME
) -> Fit:
    """Return the learners that fit into ``memory`` and ``disk`` bytes; ``gpus`` devices bound only those who want one.

    With M GiB left for learners, r for one who computes and i for one who reads, n learners of whom a quarter
    computes need n * (r + 3 * i) / 4.

    Args:
        memory: bytes that may be used.
        disk: bytes that are free where the homes lie.
        gpus: devices to hand out; 0 = a class on CPUs.
        running: GiB of a learner who computes.
        idle: GiB of a learner who reads.
        home: GiB on disk for a learner.

    Raises:
        GuideError: a figure that is not positive, or ``idle`` above ``running``.

    >>> print(learners_that_fit(24 * 2**30, 200 * 2**30, 0))
    61 learners if one in four computes at a time, 25 if all do (the limit is memory)
    """
    if not 0 < idle <= running or home <= 0:
        raise GuideError(f"running={running:g}, idle={idle:g}, home={home:g} GiB: positive, and idle at most running")
    left = max(memory / GIB - RESERVED, 0)
    all_at_once, quarter = int(left / running), int(left / ((running + 3 * idle) / 4))
    by_disk = int(disk / GIB / home)
    fits = {"memory": quarter, "disk": by_disk}
    limit = min(fits, key=lambda k: fits[k])
    return Fit(min(all_at_once, by_disk), min(quarter, by_disk), min(gpus, quarter, by_disk), by_disk, limit)


def _gpus(m: Machine, found: Sequence[Device]) -> list[Check]:
    if not found:
        if (m.root / "dev/kfd").exists():
            fix = "check the amdgpu driver: dmesg | grep -i amdgpu"
            return [Check("WARN", "devices", "/dev/kfd is here, but the kernel lists no device", fix)]
        return [Check("OK", "devices", "no AMD GPU here: learners compute on the CPU, at tiny scale")]
    rows = []
    for (mode, units), count in Counter((d.mode, d.units) for d in found).items():
        first = next(d for d in found if (d.mode, d.units) == (mode, units))
        many = f"{count} device{'s' * (count > 1)}"
        text = f"{many} of {units} compute units, {first.memory / GIB:.0f} GiB each ({mode or 'no modes'})"
        rows.append(Check("OK", "devices", text))
    if len({d.mode for d in found}) > 1:
        fix = "one mode for all: rocm-guide system set --partition CPX (no program may use the GPUs)"
        rows.append(Check("WARN", "modes", "the GPUs are in different modes: learners get unequal devices", fix))
    missing = [d.file for d in found if not (m.root / d.file.lstrip("/")).exists()]
    if missing:
        fix = "pass them in: --device /dev/kfd --device /dev/dri"
        rows.append(Check("FAIL", "files", f"not here: {', '.join(missing[:4])}{' …' * (len(missing) > 4)}", fix))
    return rows


def _groups(m: Machine, found: Sequence[Device]) -> list[Check]:
    if not found:
        return []
    names = {line.partition(":")[0] for line in (m.read("etc/group") or "").splitlines()}
    if missing := [g for g in ("video", "render") if g not in names]:
        fix = f"groupadd --system {missing[0]}, and let udev give it /dev/kfd and /dev/dri"
        return [Check("FAIL", "groups", f"no group {' and no group '.join(missing)}", fix)]
    return [Check("OK", "groups", "video and render are here; every learner must be in both")]


def _homes(m: Machine) -> list[Check]:
    """Check whether others can enter homes, and whether they see the arguments of a learner's processes."""
    rows = []
    accounts = (line.split(":") for line in (m.read("etc/passwd") or "").splitlines())
    learners = [a for a in accounts if len(a) > 6 and 1000 <= (whole_number(a[2]) or 0) < 60_000]
    homes = [(a[0], m.root / a[5].lstrip("/")) for a in learners]
    open_ones = [name for name, home in homes if home.is_dir() and home.stat().st_mode & 0o077]
    if open_ones:
        names = ", ".join(shown(n, 40) for n in open_ones[:5])
        fix = "chmod 700 each (the hub does so when a server starts)"
        rows.append(Check("WARN", "homes", f"others can look into the home of {names}", fix))
    mounts = re.findall(r"^\S+ /proc proc (\S+)", m.read("proc/mounts") or "", re.M)
    if mounts and not re.search(r"hidepid=(?:[24]|invisible|ptraceable)", mounts[-1]):
        fix = "mount -o remount,hidepid=2 /proc, and the same in /etc/fstab"
        rows.append(Check("WARN", "processes", "learners see the arguments of each other's processes", fix))
    return rows


def hub_libraries(clone: Path | None) -> Path | None:
    """Return where `make hub` has put the hub's libraries: the ``site-packages`` of its own environment;
    None before that.
    """
    return next(iter(sorted((clone / ".venv-hub/lib").glob("python3*/site-packages"))), None) if clone else None


def _versions(m: Machine, libraries: Path | None) -> list[Check]:
    path = sys.path if libraries is None else [str(libraries)]
    have = {d.metadata["Name"].lower(): d.version for d in importlib.metadata.distributions(path=path)}
    proxy = proxy_version(libraries.parents[2] if libraries else Path(sys.prefix))
    if "jupyterhub" not in have:
        return [Check("WARN", "jupyterhub", "not installed", "make hub installs it in a folder of its own")]
    if proxy is None and m.find("configurable-http-proxy") is None:
        fix = "run make hub again, or npm install -g configurable-http-proxy"
        return [Check("FAIL", "jupyterhub", f"{have['jupyterhub']}, without a proxy", fix)]
    return [Check("OK", "jupyterhub", f"{have['jupyterhub']}, proxy {proxy or 'on the PATH'}")]


def _pretended_memory(m: Machine) -> int:
    found = re.search(r"MemAvailable:\s+(\d{1,20})", m.read("proc/meminfo") or "")
    return int(found[1]) * 1024 if found else 0


def check_hub(
    machine: Machine | None = None,
    *,
    homes: Path = Path("/home"),
    libraries: Path | None = None,
    running: float = RUNNING,
    idle: float = IDLE,
) -> tuple[list[Check], Fit, list[Device]]:
    """Run every check of a hub's machine; return the results, how many learners fit, and the devices to hand out.

    Args:
        machine: the real one by default.
        homes: a folder on the disk of the homes.
        libraries: the folder with the hub's libraries (``site-packages``); None = this Python's.
        running: GiB of a learner who computes.
        idle: GiB of a learner who reads.

    Raises:
        GuideError: ``running`` and ``idle`` are not positive, or in the wrong order.

    >>> rows, fit, found = check_hub()
    >>> rows[0].name, fit.running >= 0
    ('devices', True)
    """
    m = machine or Machine()
    found = list_devices(m)
    if m.root == Path("/"):
        available, _ = memory_available()
    else:
        available = _pretended_memory(m)
    while not homes.exists() and homes != homes.parent:
        homes = homes.parent
    free = shutil.disk_usage(homes).free
    fit = learners_that_fit(available, free, len(found), running=running, idle=idle)
    rows = [*_gpus(m, found), *_groups(m, found), *_homes(m), *_versions(m, libraries)]
    each = f"{running:g} GiB for one who computes, {idle:g} for one who reads"
    rows.append(Check("OK" if fit.running else "FAIL", "memory", f"{available / GIB:.1f} GiB free; {each}"))
    enough = fit.by_disk >= fit.mixed and fit.by_disk > 0
    fix = "" if enough and fit.limit != "disk" else f"{HOME:g} GiB a learner: put the homes on a larger disk"
    rows.append(Check("WARN" if fix else "OK", "disk", f"{free / GIB:.0f} GiB free for homes", fix))
    count = cores()
    rows.append(Check("OK", "cpu", f"{count} cores: about {max(count, 1)} learners compute at full speed on the CPU"))
    rows.append(Check("OK" if fit.mixed else "FAIL", "learners", str(fit), "" if fit.mixed else "more memory or disk"))
    return rows, fit, found


def hub_as_dict(rows: Sequence[Check], fit: Fit, found: Sequence[Device]) -> dict[str, object]:
    """Return all of it as plain data, for ``--json``."""
    worst = max((r.status for r in rows), key=("OK", "WARN", "FAIL").index)
    return {
        "status": worst,
        "learners": asdict(fit),
        "devices": [{**asdict(d), "name": d.name, "file": d.file} for d in found],
        "checks": [asdict(r) for r in rows],
    }
