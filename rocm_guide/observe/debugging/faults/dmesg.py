# SPDX-License-Identifier: MIT
"""Read the other places where a fault leaves a trace: the kernel log (dmesg) and what the ROCm runtime prints."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from rocm_guide.common.base import read_regular, shown
from rocm_guide.observe.debugging.faults.model import LARGEST_TEXT, FaultError

__all__ = ["read_log", "scan_log"]


@dataclass
class LogFault:
    """One fault in a log.

    Attributes:
        kind: "page fault", "runtime fault", "queue error", "hardware exception", "hang", "reset" or "memory error".
        source: "driver" (dmesg) or "runtime" (the program's own output).
        line: line number, from 1.
        address: the page that was touched, None when the line does not say.
        write: True for a write, False for a read, None when the log does not say.
        process, pid: who.
        device: PCI address ("0000:c1:00.0") or GPU node.
        meaning: what to make of it, in one sentence.
        details: further values of the following lines.
    """

    kind: str
    source: str
    line: int
    text: str
    address: int | None = None
    write: bool | None = None
    process: str = ""
    pid: int | None = None
    device: str = ""
    meaning: str = ""
    details: dict[str, str] = field(default_factory=dict)


# Every repetition has a limit or can begin in one place only: damaged lines are read as fast as good ones.
_DEVICE = re.compile(r"amdgpu (\d{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d)", re.I)
_PAGE_FAULT = re.compile(r"\[(?:gfxhub|mmhub)\d*\]\s*(?:(no-)?retry )?page fault", re.I)
_PROCESS = re.compile(r"[Pp]rocess (\S{1,256}) pid (\d{1,9})")
_AT = re.compile(r"in page starting at address 0x([0-9a-f]{1,16})", re.I)
_STATUS = re.compile(r"\b(\w{0,60}PROTECTION_FAULT_STATUS):\s*(0x[0-9a-f]{1,16})", re.I)
_FIELD = re.compile(r"(Faulty UTCL2 client ID|MORE_FAULTS|WALKER_ERROR|PERMISSION_FAULTS|MAPPING_ERROR|RW):\s*(\S.*)$")
_RUNTIME = re.compile(
    r"Memory access fault by GPU node-(\d{1,4}) .{0,200}?on address (?:0x([0-9a-f]{1,16})|\(nil\))\.?\s{0,9}"
    r"Reason: (.*)$"
)
_QUEUE = re.compile(r"aborting with error\s{0,9}:?\s{0,9}(HSA_STATUS_ERROR_\w+)", re.I)
_SIMPLE = (
    (
        re.compile(r"HW [Ee]xception by GPU node-\d"),
        "hardware exception",
        "runtime",
        "the GPU stopped the process: look for the cause in dmesg, at the same second",
    ),
    (
        re.compile(r"ring \S{1,256} timeout", re.I),
        "hang",
        "driver",
        "a kernel did not end in time: an endless loop, a deadlock between workgroups, or a hung engine",
    ),
    (
        re.compile(r"GPU reset begin", re.I),
        "reset",
        "driver",
        "the driver restarts the GPU: everything that ran on it is lost, and the fault is in an earlier line",
    ),
    (
        re.compile(r"uncorrectable (?:hardware )?error|poison", re.I),
        "memory error",
        "driver",
        "hardware memory error: run the vendor's diagnostics; no change of the program will help",
    ),
)
_QUEUE_MEANING = {
    "HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION": "an address outside every memory: usually a wild or freed pointer",
    "HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION": "code for another GPU, or overwritten code: check --offload-arch",
    "HSA_STATUS_ERROR_EXCEPTION": "an assertion or trap in the kernel, or a floating-point exception",
    "HSA_STATUS_ERROR_OUT_OF_RESOURCES": "no memory or no queue left: look at scratch size and at other processes",
    "HSA_STATUS_ERROR_MEMORY_FAULT": "a page that is not mapped: an index out of range, or memory used after its free",
}


def scan_log(lines: Iterable[str]) -> list[LogFault]:
    """Find the faults in a log; lines that belong to a fault are folded into it.

    Args:
        lines: the output of ``dmesg``, or of the program.

    Source: the lines are those of the Linux driver (drivers/gpu/drm/amd/amdgpu/gmc_v9_0.c, gmc_v10_0.c) and of ROCr;
    examples in https://github.com/ROCm/legacy-rocm-build/issues/2804.

    >>> found = scan_log(["Memory access fault by GPU node-1 (Agent handle: 0x1f829860) on address 0x7a8a4be00000. "
    ...                   "Reason: Page not present or supervisor privilege."])
    >>> found[0].kind, hex(found[0].address), found[0].device
    ('runtime fault', '0x7a8a4be00000', 'GPU node-1')
    """
    faults: list[LogFault] = []
    last: LogFault | None = None
    for number, raw in enumerate(lines, 1):
        text = raw.rstrip()
        if not text.isprintable():
            text = shown(text.expandtabs(), len(text) * 8)
        if found := _RUNTIME.search(text):
            meaning = (
                "the page is not mapped: an index out of range, or memory used after its free"
                if "not present" in found[3]
                else "the page is mapped but not for this access, for example a write to read-only memory"
            )
            last = LogFault(
                "runtime fault", "runtime", number, text, int(found[2] or "0", 16), device=f"GPU node-{found[1]}"
            )
            last.meaning = meaning
            last.details["reason"] = found[3].rstrip(".")
            faults.append(last)
        elif found := _PAGE_FAULT.search(text):
            device = _DEVICE.search(text)
            last = LogFault("page fault", "driver", number, text, device=device[1] if device else "")
            last.meaning = "the driver's side of a memory access fault; the lines below it say where and who"
            _who(last, text)
            faults.append(last)
        elif found := _QUEUE.search(text):
            last = LogFault("queue error", "runtime", number, text)
            last.meaning = _QUEUE_MEANING.get(found[1], "the runtime stopped the queue; the name says why")
            last.details["error"] = found[1]
            faults.append(last)
        elif simple := next((s for s in _SIMPLE if s[0].search(text)), None):
            device = _DEVICE.search(text)
            last = LogFault(simple[1], simple[2], number, text, device=device[1] if device else "", meaning=simple[3])
            faults.append(last)
        elif last is not None and last.kind == "page fault":
            _continue(last, text)
    return faults


def _who(fault: LogFault, text: str) -> None:
    if found := _PROCESS.search(text):
        fault.process, fault.pid = found[1], int(found[2])


def _continue(fault: LogFault, text: str) -> None:
    """Take what a line below the first one adds."""
    device = _DEVICE.search(text)
    if fault.device and device and device[1] != fault.device:
        return
    _who(fault, text)
    if (found := _AT.search(text)) and fault.address is None:
        fault.address = int(found[1], 16)
    elif found := _STATUS.search(text):
        fault.details.setdefault(found[1], found[2])
    elif found := _FIELD.search(text):
        fault.details.setdefault(found[1], found[2])
        if found[1] == "RW" and fault.write is None:
            fault.write = found[2].strip() not in ("0x0", "0")


def read_log(path: str | os.PathLike[str]) -> list[LogFault]:
    """Read a log from a file, see :func:`scan_log`; an empty list when there is no fault in it.

    Raises:
        FaultError: the file cannot be read.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "dmesg.txt"
    ...     _ = file.write_text("[ 9.1] amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!\\n")
    ...     [(f.kind, f.device) for f in read_log(file)]
    [('reset', '0000:c1:00.0')]
    """
    try:
        return scan_log(read_regular(path, LARGEST_TEXT).decode("utf-8", "replace").split("\n"))
    except OSError as e:
        raise FaultError(f"{path}: cannot be read ({e.strerror or e}); try sudo dmesg > dmesg.txt") from e
