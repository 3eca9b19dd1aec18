# SPDX-License-Identifier: MIT
"""The machine that the settings live on: files below a root, tools on a path, environment variables.

Everything goes through a :class:`Machine`, so the same code runs against a pretended ``/sys`` in a folder.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from rocm_guide.common.base import GuideError

__all__ = ["Machine", "SystemSettingError", "every_setting", "wanted_settings", "whole_number"]


class SystemSettingError(GuideError):
    """A setting that cannot be read or changed: no such file, no rights, no tool, or the tool refused."""


def whole_number(text: str | None) -> int | None:
    """Return the number that a kernel file holds; None for another text, and for more digits than the kernel writes.

    >>> whole_number("750000000"), whole_number("x"), whole_number("9" * 5000), whole_number(None)
    (750000000, None, None, None)
    """
    return int(text) if text and re.fullmatch("[0-9]{1,20}", text) else None


@dataclass(frozen=True)
class Gpu:
    """An AMD GPU as the kernel lists it: its number among them, PCI address, and folder below the root."""

    index: int
    bdf: str
    folder: str


@dataclass(frozen=True)
class Machine:
    """The places to look at and the tools to call.

    Args:
        root: the folder that holds ``proc``, ``sys`` and ``dev``; "/" is the real machine.
        path: where tools are searched; None = the environment's PATH.
        environ: environment variables; None = this process's.

    >>> Machine().read("proc/self/comm") is not None
    True
    """

    root: Path = Path("/")
    path: str | None = None
    environ: Mapping[str, str] | None = field(default=None, compare=False)

    def variables(self) -> Mapping[str, str]:
        return os.environ if self.environ is None else self.environ

    def read(self, name: str) -> str | None:
        """Return the text of a file below the root without its line end; None when it is not there or not readable."""
        try:
            return (self.root / name).read_text(errors="replace").strip()
        except OSError:
            return None

    def write(self, name: str, text: str) -> None:
        """Write a value into a kernel file (in place: files in /proc and /sys cannot be renamed over).

        Raises:
            SystemSettingError: not there, no rights, or the kernel refused the value.
        """
        try:
            # Without O_CREAT and O_TRUNC: a setting that does not exist must not become a file.
            fd = os.open(self.root / name, os.O_WRONLY)
            try:
                os.write(fd, text.encode() + b"\n")
                if (self.root / name).stat().st_size:  # a pretended kernel file: cut off what was longer before
                    os.ftruncate(fd, len(text.encode()) + 1)
            finally:
                os.close(fd)
        except PermissionError as e:
            raise SystemSettingError(f"/{name}: no permission to write {text!r}; run with sudo") from e
        except OSError as e:
            raise SystemSettingError(f"/{name}: does not take {text!r} ({e.strerror or e})") from e

    def find(self, tool: str) -> str | None:
        """Return the path of a tool, or None. ROCm's own folder is searched behind the path."""
        found = shutil.which(tool, path=self.path)
        if found is None and self.path is None:
            found = shutil.which(tool, path="/opt/rocm/bin")
        return found

    def run(self, command: Sequence[str], *, timeout: float = 60) -> str:
        """Run a tool and return what it printed.

        Raises:
            SystemSettingError: not there, failed, or did not end in time; the message is the tool's last line.
        """
        program = self.find(command[0])
        if program is None:
            raise SystemSettingError(f"{command[0]}: not installed; it comes with ROCm (/opt/rocm/bin)")
        try:
            run = subprocess.run(
                [program, *command[1:]], capture_output=True, text=True, errors="replace", timeout=timeout
            )
        except subprocess.TimeoutExpired as e:
            raise SystemSettingError(f"{' '.join(command)}: did not run (no answer in {timeout:g} s)") from e
        except OSError as e:
            raise SystemSettingError(f"{' '.join(command)}: did not run ({str(e)[:80]})") from e
        if run.returncode:
            said = (run.stderr.strip() or run.stdout.strip() or f"exit code {run.returncode}").splitlines()[-1]
            hint = "; run with sudo" if re.search(r"permission|root|privilege|sudo", said, re.I) else ""
            raise SystemSettingError(f"{' '.join(command)}: {said[:160]}{hint}")
        return run.stdout

    def gpus(self) -> list[Gpu]:
        """Return the AMD GPUs that take settings, in the order of their cards; partitions of one GPU count once."""
        found: dict[str, str] = {}
        cards = [p.name for p in (self.root / "sys/class/drm").glob("card*") if re.fullmatch(r"card\d{1,9}", p.name)]
        for card in sorted(cards, key=lambda name: int(name[4:])):
            folder = f"sys/class/drm/{card}/device"
            level = self.read(f"{folder}/power_dpm_force_performance_level")
            if self.read(f"{folder}/vendor") == "0x1002" and level is not None:
                slot = re.search(r"PCI_SLOT_NAME=(\S+)", self.read(f"{folder}/uevent") or "")
                found.setdefault(slot[1] if slot else card, folder)
        return [Gpu(i, bdf, folder) for i, (bdf, folder) in enumerate(found.items())]

    def power_cap(self, gpu: Gpu) -> str | None:
        """Return the file of a GPU's power cap in microwatts, below the root; None if it has none."""
        files = sorted((self.root / gpu.folder).glob("hwmon/hwmon*/power1_cap"))
        return str(files[0].relative_to(self.root)) if files else None


class Setting(Protocol):
    """One value of the machine. ``key`` names it in the saved state, ``wanted`` is the value to set."""

    @property
    def key(self) -> str: ...

    @property
    def wanted(self) -> str: ...

    def current(self, machine: Machine) -> str:
        """Return the value now."""
        ...

    def write(self, machine: Machine, value: str) -> None:
        """Change it to ``value``, one that :meth:`current` returned or ``wanted``."""
        ...


@dataclass(frozen=True)
class FileSetting:
    """A kernel file that holds the value itself, or all choices with the current one in brackets.

    >>> FileSetting.chosen("always [madvise] never"), FileSetting.chosen("0")
    ('madvise', '0')
    """

    key: str
    file: str
    wanted: str

    @staticmethod
    def chosen(text: str) -> str:
        """Return the current value in the text of such a file."""
        found = re.search(r"\[([^\]]+)\]", text)
        return found[1] if found else text.strip()

    def current(self, machine: Machine) -> str:
        text = machine.read(self.file)
        if text is None:
            raise SystemSettingError(f"/{self.file}: not on this machine; nothing to set")
        return self.chosen(text)

    def write(self, machine: Machine, value: str) -> None:
        machine.write(self.file, value)
        if (now := self.current(machine)) != value:
            raise SystemSettingError(f"/{self.file}: is {now!r} after writing {value!r}; the kernel refused it")


@dataclass(frozen=True)
class ClockLimit:
    """Performance determinism of one GPU: an upper limit of its clock in MHz, through amd-smi or rocm-smi.

    Values: "auto" (no limit), "determinism 1900", or another performance level ("high", "manual", …).
    Source: "Performance levels and performance determinism",
    https://rocm.docs.amd.com/projects/amdsmi/en/latest/conceptual/perf-determinism.html.
    """

    key: str
    gpu: Gpu
    wanted: str

    def current(self, machine: Machine) -> str:
        level = machine.read(f"{self.gpu.folder}/power_dpm_force_performance_level")
        if level is None:
            raise SystemSettingError(f"GPU {self.gpu.bdf}: its performance level cannot be read; is amdgpu loaded?")
        if level != "perf_determinism":
            return level
        table = machine.read(f"{self.gpu.folder}/pp_od_clk_voltage") or ""
        # OD_SCLK: / 0: 500Mhz / 1: 1900Mhz: the second line is the limit.
        limit = re.search(r"OD_SCLK:\s*0:\s*\d+\s*mhz\s*1:\s*(\d+)\s*mhz", table, re.I)
        return f"determinism {limit[1]}" if limit else "determinism"

    def commands(self, machine: Machine, value: str) -> list[list[str]]:
        """Return the commands that set ``value``. amd-smi first: rocm-smi has been in maintenance since ROCm 7.0.

        Raises:
            SystemSettingError: neither tool is there, or a value that it cannot set.
        """
        amd, rocm = machine.find("amd-smi"), machine.find("rocm-smi")
        if not amd and not rocm:
            raise SystemSettingError("neither amd-smi nor rocm-smi is installed; they come with ROCm (/opt/rocm/bin)")
        which = ["--gpu", self.gpu.bdf] if amd else ["-d", str(self.gpu.index)]
        word, _, limit = value.partition(" ")
        if word == "determinism":
            if not limit.isdigit():
                raise SystemSettingError(f"GPU {self.gpu.bdf}: the clock limit is not known; set it anew by hand")
            if amd:
                return [["amd-smi", "set", *which, "--perf-determinism", limit]]
            return [["rocm-smi", *which, "--setperfdeterminism", limit, "--autorespond", "y"]]
        # Leaving determinism also lifts the clock limit; setting another level alone would leave the limit behind.
        if amd:
            leave = ["amd-smi", "reset", *which, "--perf-determinism"]
            level = ["amd-smi", "set", *which, "--perf-level", word.upper()]
        else:
            leave = ["rocm-smi", *which, "--resetperfdeterminism"]
            level = ["rocm-smi", *which, "--setperflevel", word]
        return [leave] if word == "auto" else [leave, level]

    def write(self, machine: Machine, value: str) -> None:
        for command in self.commands(machine, value):
            machine.run(command)
        if (now := self.current(machine)) != value:
            raise SystemSettingError(f"GPU {self.gpu.bdf}: {now!r} after setting {value!r}; the firmware refused it")


def wanted_settings(
    machine: Machine,
    *,
    clock: int | None = 1900,
    numa: bool = True,
    hugepages: str | None = None,
    power_cap: int | None = None,
    partition: str | None = None,
) -> list[FileSetting | ClockLimit]:
    """Return the settings to make, for the GPUs and files that this machine has.

    Args:
        clock: clock limit in MHz for every GPU, None to leave the clocks alone.
        numa: switch automatic NUMA balancing off.
        hugepages: "always", "madvise" or "never" for transparent huge pages.
        power_cap: watts per GPU.
        partition: "SPX", "DPX", "QPX" or "CPX", the compute partition mode of every GPU.

    Raises:
        SystemSettingError: a value outside what the hardware takes.

    Source: "AMD Instinct MI300X system optimization",
    https://instinct.docs.amd.com/projects/amdgpu-docs/en/latest/system-optimization/mi300x.html.

    >>> [s.key for s in wanted_settings(Machine(), clock=None, hugepages="always")]
    ['numa_balancing', 'transparent_hugepage']
    """
    if clock is not None and not 100 <= clock <= 5000:
        raise SystemSettingError(f"clock={clock}: MHz, between 100 and 5000; the guide uses 1900 for MI300X")
    if hugepages not in (None, "always", "madvise", "never"):
        raise SystemSettingError(f"hugepages={hugepages!r}: choose always, madvise or never")
    if partition is not None and partition.upper() not in ("SPX", "DPX", "TPX", "QPX", "CPX"):
        raise SystemSettingError(f"partition={partition!r}: choose SPX, DPX, TPX, QPX or CPX")
    if power_cap:
        for gpu in machine.gpus():
            if (file := machine.power_cap(gpu)) is None:
                raise SystemSettingError(f"GPU {gpu.bdf}: has no power cap here; leave --power-cap out")
            most = whole_number(machine.read(f"{file}_max"))
            if not power_cap > 0 or (most is not None and power_cap * 1_000_000 > most):
                limit = "positive" if most is None else f"at most {most // 1_000_000}"
                raise SystemSettingError(f"power_cap={power_cap}: watts, {limit} on GPU {gpu.bdf}")
    wanted = {
        "numa_balancing": "0" if numa else None,
        "transparent_hugepage": hugepages,
        "partition": partition and partition.upper(),
        "clock": f"determinism {clock}" if clock else None,
        "power": str(power_cap * 1_000_000) if power_cap else None,
    }
    named = [(setting, wanted[setting.key.partition(" ")[0]]) for setting in every_setting(machine)]
    return [replace(setting, wanted=value) for setting, value in named if value]


def every_setting(machine: Machine) -> list[FileSetting | ClockLimit]:
    """Return every setting that :func:`wanted_settings` can make on this machine, for matching with saved values.

    Their ``wanted`` is empty: they are for reading and for restoring.

    >>> [s.key for s in every_setting(Machine())][:2]
    ['numa_balancing', 'transparent_hugepage']
    """
    found: list[FileSetting | ClockLimit] = [
        FileSetting("numa_balancing", "proc/sys/kernel/numa_balancing", ""),
        FileSetting("transparent_hugepage", "sys/kernel/mm/transparent_hugepage/enabled", ""),
    ]
    for gpu in machine.gpus():
        found.append(FileSetting(f"partition {gpu.bdf}", f"{gpu.folder}/current_compute_partition", ""))
        found.append(ClockLimit(f"clock {gpu.bdf}", gpu, ""))
        if file := machine.power_cap(gpu):
            found.append(FileSetting(f"power {gpu.bdf}", file, ""))
    return found
