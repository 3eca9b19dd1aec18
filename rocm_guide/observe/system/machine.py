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
from dataclasses import dataclass, field
from pathlib import Path

from rocm_guide.common.base import GuideError

__all__ = ["Machine", "SystemSettingError"]


class SystemSettingError(GuideError):
    """A setting that cannot be read or changed: no such file, no rights, no tool, or the tool refused.

    >>> raise SystemSettingError("numa_balancing: no permission to write; run with sudo")
    Traceback (most recent call last):
        ...
    rocm_guide.observe.system.machine.SystemSettingError: numa_balancing: no permission to write; run with sudo
    """


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
        """Return the environment variables."""
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
        except (OSError, subprocess.TimeoutExpired) as e:
            raise SystemSettingError(f"{' '.join(command)}: did not run ({str(e)[:80]})") from e
        if run.returncode:
            said = (run.stderr.strip() or run.stdout.strip() or f"exit code {run.returncode}").splitlines()[-1]
            hint = "; run with sudo" if re.search(r"permission|root|privilege|sudo", said, re.I) else ""
            raise SystemSettingError(f"{' '.join(command)}: {said[:160]}{hint}")
        return run.stdout

    def gpus(self) -> list[Gpu]:
        """Return the AMD GPUs that take settings, in the order of their cards; partitions of one GPU count once."""
        found: dict[str, str] = {}
        cards = sorted(
            (p for p in (self.root / "sys/class/drm").glob("card*") if re.fullmatch(r"card\d+", p.name)),
            key=lambda p: int(p.name[4:]),
        )
        for card in cards:
            folder = f"sys/class/drm/{card.name}/device"
            if (
                self.read(f"{folder}/vendor") != "0x1002"
                or self.read(f"{folder}/power_dpm_force_performance_level") is None
            ):
                continue
            slot = re.search(r"PCI_SLOT_NAME=(\S+)", self.read(f"{folder}/uevent") or "")
            found.setdefault(slot[1] if slot else card.name, folder)
        return [Gpu(i, bdf, folder) for i, (bdf, folder) in enumerate(found.items())]
