# SPDX-License-Identifier: MIT
"""Read the other places where a fault leaves a trace: the kernel log (dmesg) and what the ROCm runtime prints."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from rocm_guide.common.base import shown
from rocm_guide.observe.debugging.faults.agent_log import read_lines

__all__ = ["LogFault", "read_log", "scan_log"]


@dataclass
class LogFault:
    """One fault in a log.

    Attributes:
        kind: "page fault", "runtime fault", "queue error", "hardware exception", "hang", "reset", "memory error" or
            "hardware error".
        source: "driver" (dmesg) or "runtime" (the program's own output).
        line: number of its first line, from 1.
        address: the page that was touched, None when the line does not say.
        write: True for a write, False for a read, None when the log does not say.
        process, pid: who.
        device: PCI address ("0000:c1:00.0") or GPU node; "" when the log does not say.
        meaning: what to make of it, in one sentence.
        details: further values of its lines; "kernel", "grid" and "workgroup" (work items) where the runtime names them
            (ROCm 7), "lines" where several lines say the same.
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
# What dmesg (plain, -T, -x, with the caller), /dev/kmsg, syslog and journalctl put before the driver's own words.
_BEFORE = re.compile(
    r"(?:\d{1,4},\d{1,20},\d{1,20}[^;]{0,20};)?(?:<\d{1,3}>)?(?:[^\[\]]{0,120}?\bkernel: ?)?"
    r"(?:\w{1,8}\s{0,9}:\w{1,8}\s{0,9}: ?)?"
    r"(?:\d{4}-\d\d-\d\dT[\d:,.+-]{8,24} )?(?:\[[\s\d.+TC]{1,30}\] ?|\[\w{3} \w{3} [\s\d:]{10,20}\] ?){0,2}"
)
_DRIVER = re.compile(r"amdgpu\b|amdkfd\b|kfd\b|\[drm\b")
_DEVICE = re.compile(r"amdgpu (\d{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d)", re.I)
_PAGE_FAULT = re.compile(r"\[(?:gfxhub|mmhub)\d*\]\s*(?:(no-)?retry )?page fault", re.I)
_PROCESS = re.compile(r"[Pp]rocess (?!information:)(\S[^\r\n]{0,63}?) pid (\d{1,9})")
_AT = re.compile(r"in page starting at address 0x([0-9a-f]{1,16})", re.I)
_CLIENT = re.compile(r"from (?:IH )?client (\S{1,20} \(\w{1,40}\))", re.I)
_STATUS = re.compile(r"\b(\w{0,60}PROTECTION_FAULT_STATUS):\s*(0x[0-9a-f]{1,16})", re.I)
_FIELD = re.compile(r"(Faulty UTCL2 client ID|MORE_FAULTS|WALKER_ERROR|PERMISSION_FAULTS|MAPPING_ERROR|RW):\s*(\S.*)$")
_SDMA = re.compile(r"\bSDMA\d*", re.I)

# One-line faults of the driver: pattern, kind, meaning.
_HANG = "a kernel did not end in time: an endless loop, a deadlock between workgroups, or a hung engine"
_QUEUE_STUCK = (
    "a queue could not be taken off the GPU: a kernel on it does not end, or waits for something that never comes"
)
_MES_STUCK = (
    "the scheduler's firmware (MES) does not answer: as for a stuck queue; a newer firmware and driver may help"
)
_MEMORY_ERROR = "hardware memory error: run the vendor's diagnostics; no change of the program will help"
_HARDWARE = "hardware error in another block than the memory: run the vendor's diagnostics; no program causes it"
_ONE_LINE = (
    (re.compile(r"poison (?:is )?(?:consumed|consumption|creation)", re.I), "memory error", _MEMORY_ERROR),
    (re.compile(r"uncorrectable hardware error ?\(", re.I), "hardware error", _HARDWARE),
    (re.compile(r"\bring \S{1,256} timeout", re.I), "hang", _HANG),
    (re.compile(r"\bMES (?:failed to resp|might be in unrecoverable|ring buffer is full)", re.I), "hang", _MES_STUCK),
    (re.compile(r"failed to \w{1,9} .{0,60}\bMES\b|remove_all_kfd_queues_mes", re.I), "hang", _MES_STUCK),
    (
        re.compile(r"Illegal (?:opcode|register access) in command stream", re.I),
        "queue error",
        "the GPU's command processor met what it cannot read: a damaged queue or packet, seldom the kernel itself",
    ),
    (
        re.compile(r"GPU reset\b|GPU recovery (?:disabled|failed)", re.I),
        "reset",
        "the driver restarts the GPU: everything that ran on it is lost, and the fault is in an earlier line",
    ),
)
_COUNTED = re.compile(r"\b(\d{1,20}) (?:new )?(un)?(?:correctable|deferred) hardware errors? detected", re.I)
_DEFERRED = re.compile(r"deferred hardware", re.I)
# These stand in some logs without the driver's name; nobody else says them.
_STUCK = re.compile(
    r"(?:\S{1,60}: ){0,3}(?:qcm fence wait loop timeout expired|the cp might be in an unrecoverable state"
    r"|failed to evict (?:process )?queue|failed to (?:suspend|quiesce) (?:process|kfd)|unmapping queues failed"
    r"|.{0,60}queue preemption (?:failed|time ?out))",
    re.I,
)

# What the runtime prints into the program's own output, behind whatever a launcher puts before it.
_RUNTIME = re.compile(
    r"Memory access fault by GPU node-(\d{1,4}) .{0,200}?on address (?:0x([0-9a-f]{1,16})|\(nil\))\.?\s{0,9}"
    r"(?:Reason: (.*)$)?"
)
_NAMED = re.compile(
    r"Memory Fault Error \[.{0,200}?GPU index: (\d{1,4}), faulting addr: 0x([0-9a-f]{1,16}), kernel: (.*?)\]?$"
)
_REASON = re.compile(r"\s*Reason: (\S.*)$")
_EXCEPTION = re.compile(r"HW [Ee]xception by GPU node-(\d{1,4})(?:.{0,80}reason ?: ?(.*)$)?")
_QUEUE = re.compile(
    r"(?:Queue (0x[0-9a-f]{1,16}) )?aborting with error\s{0,9}:?\s{0,9}(HSA_STATUS_ERROR(?:_\w+)?)", re.I
)
_KERNEL = re.compile(r"(?:^|\s)Kernel Name: (\S.*)$")
_HW_QUEUE = re.compile(r"\bHWq=(0x[0-9a-f]{1,16})", re.I)
_GRID = re.compile(r"\bgrid=\[([\d, ]{1,60})\], workgroup=\[([\d, ]{1,60})\]")
_QUEUE_MEANING = {
    "HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION": "an address outside every memory: usually a wild or freed pointer",
    "HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION": "code for another GPU, or overwritten code: check --offload-arch",
    "HSA_STATUS_ERROR_EXCEPTION": "an assertion or trap in the kernel, or a floating-point exception",
    "HSA_STATUS_ERROR_OUT_OF_RESOURCES": "no memory or no queue left: look at scratch size and at other processes",
    "HSA_STATUS_ERROR_MEMORY_FAULT": "a page that is not mapped: an index out of range, or memory used after its free",
    "HSA_STATUS_ERROR_INVALID_ALLOCATION": "a launch asks for more LDS or scratch than there is: look at its LDS",
    "HSA_STATUS_ERROR_INVALID_ISA": "code for another GPU: build for this one (gfx942 on an MI300X)",
}
_COPY_ENGINE = (
    "a copy engine (SDMA) touched the page, so there is no kernel to look for: look at the copies, and at buffers "
    "freed or unpinned while one ran"
)


class _Scan:
    """A reader that goes over the lines once and keeps, for each device, the fault that a further line belongs to."""

    def __init__(self) -> None:
        self.faults: list[LogFault] = []
        self.open: dict[str, LogFault] = {}  # PCI address -> the driver's fault that its next lines describe
        self.stuck: dict[tuple[str, str, str], LogFault] = {}  # (device, kind, meaning) -> lines that say it again
        self.last: LogFault | None = None
        self.kernels: list[tuple[int, dict[str, str]]] = []  # (line, what ROCm 7 says of a kernel), not yet given away
        self.before = ""

    def add(self, fault: LogFault) -> LogFault:
        self.faults.append(fault)
        return fault

    # ---- the runtime

    def runtime(self, number: int, text: str) -> bool:
        if found := _RUNTIME.search(text):
            self._runtime_fault(number, text, int(found[2] or "0", 16), f"GPU node-{found[1]}", reason=found[3] or "")
        elif found := _NAMED.search(text):
            kernel = found[3].strip()
            self._runtime_fault(number, text, int(found[2], 16), f"GPU index {found[1]}", kernel=kernel)
        elif found := _QUEUE.search(text):
            fault = self.add(LogFault("queue error", "runtime", number, text))
            fault.meaning = _QUEUE_MEANING.get(found[2], "the runtime stopped the queue; the name says why")
            fault.details["error"] = found[2]
            if found[1]:
                fault.details["queue"] = found[1].lower()
        elif found := _EXCEPTION.search(text):
            fault = self.add(LogFault("hardware exception", "runtime", number, text, device=f"GPU node-{found[1]}"))
            fault.meaning = "the GPU stopped the process: look for the cause in dmesg, at the same second"
            if found[2]:
                fault.details["reason"] = found[2].strip()
        elif found := _KERNEL.search(text):
            self.kernels.append((number, {"kernel": found[1].strip()}))
        elif self.kernels and (found := _HW_QUEUE.search(text)):
            self.kernels[-1][1].setdefault("queue", found[1].lower())
        elif self.kernels and (found := _GRID.search(text)):
            for name, value in zip(("grid", "workgroup"), found.groups(), strict=True):
                self.kernels[-1][1].setdefault(name, value.replace(" ", "").replace(",", " x "))
        elif (found := _REASON.match(text)) and self.faults and self.faults[-1].kind == "runtime fault":
            self._reason(self.faults[-1], found[1])  # the line was broken in two
        else:
            return False
        return True

    def _runtime_fault(
        self, number: int, text: str, address: int, device: str, *, reason: str = "", kernel: str = ""
    ) -> None:
        """Open a runtime fault, or complete that of the same page: ROCm 7 prints it a second time, with the kernel."""
        other = next((f for f in reversed(self.faults) if f.kind == "runtime fault"), None)
        lacking = "kernel" not in other.details if other and kernel else other and other.device.startswith("GPU index")
        if other and other.address == address and lacking:
            fault = other
        else:
            fault = self.add(LogFault("runtime fault", "runtime", number, text, address, meaning=_unmapped("")))
        if kernel:
            fault.details["kernel"] = kernel
            fault.device = fault.device or device
        else:
            fault.device = device
        if reason:
            self._reason(fault, reason)

    @staticmethod
    def _reason(fault: LogFault, reason: str) -> None:
        if fault.details.setdefault("reason", reason.rstrip(" .")) == reason.rstrip(" ."):
            fault.meaning = _unmapped(reason)

    def give_kernels(self) -> None:
        """Give each named kernel to the error of its queue; without one, to the next runtime fault, or the last."""
        for line, said in self.kernels:
            mine = [f for f in self.faults if f.source == "runtime" and f.kind in ("runtime fault", "queue error")]
            of_queue = [f for f in mine if "queue" in said and f.details.get("queue") == said["queue"]]
            free = [f for f in mine if "queue" not in f.details or "queue" not in said]
            chosen = of_queue or [f for f in free if f.line > line][:1] or free[-1:]
            for fault in chosen:
                known = fault.details.get("kernel", "").split("; ")
                if known == [""]:
                    fault.details.update({k: v for k, v in said.items() if k != "queue"})
                elif said["kernel"] not in known:
                    fault.details["kernel"] += f"; {said['kernel']}"  # several were waiting in the queue

    # ---- the driver

    def driver(self, number: int, text: str) -> None:
        before = _BEFORE.match(text)
        body = text[before.end() if before else 0 :]
        stuck = _STUCK.match(body)
        if text == self.before or not (stuck or _DRIVER.match(body)):
            return
        self.before = text
        device = _device(body)
        if stuck:
            self._once(number, text, "hang", _QUEUE_STUCK)
        elif _PAGE_FAULT.search(body):
            fault = self.open[device] = self.last = self.add(LogFault("page fault", "driver", number, text))
            fault.device = device
            fault.meaning = "the driver's side of a memory access fault; the lines below it say where and who"
            if found := _PROCESS.search(body):
                fault.process, fault.pid = found[1], int(found[2])
            if _SDMA.search(body):
                fault.meaning = _COPY_ENGINE
        elif found := _COUNTED.search(body):
            serious = found[2] or _DEFERRED.search(body)
            if serious and int(found[1]):  # "0 uncorrectable" is the good news of a health report
                memory = re.search(r"\bumc\b", body, re.I)
                kind = ("memory error", _MEMORY_ERROR) if memory else ("hardware error", _HARDWARE)
                self._once(number, text, *kind)
        elif simple := next((s for s in _ONE_LINE if s[0].search(body)), None):
            self._once(number, text, simple[1], simple[2])
        else:
            self._continue(number, text, body, device)

    def _once(self, number: int, text: str, kind: str, meaning: str) -> None:
        """Open a fault, or count the line to the one that says the same of this device since its last reset."""
        device = _device(text)
        if same := self.stuck.get((device, kind, meaning)):
            same.details["lines"] = str(int(same.details.get("lines", "1")) + 1)
            self.last = same
            return
        fault = self.add(LogFault(kind, "driver", number, text, device=device, meaning=meaning))
        if kind == "reset":
            self.stuck = {key: old for key, old in self.stuck.items() if key[0] not in (device, "")}
            self.open.pop(device, None)
        else:  # what comes after this is another one
            others = [key for key in self.stuck if key[1] != "reset" or (device and key[0] != device)]
            self.stuck = {key: self.stuck[key] for key in others}
        self.stuck[device, kind, meaning] = self.last = fault

    def _continue(self, number: int, text: str, body: str, device: str) -> None:
        """Take what a line adds to the open fault of its device; where the first line is missing, open one with it."""
        who, at, status, more = _PROCESS.search(body), _AT.search(body), _STATUS.search(body), _FIELD.search(body)
        if not (who or at or status or more):
            return
        fault = self.open.get(device)
        if who and not (at or status or more) and self.last and self.last.kind == "hang" and fault is not self.last:
            if not self.last.pid and device in ("", self.last.device):
                self.last.process, self.last.pid = who[1], int(who[2])
            return
        if fault is None and not device:
            fault = next((f for f in reversed(list(self.open.values()))), None)
        named = status or more
        if (
            fault is None
            or (who and fault.pid is not None and fault.pid != int(who[2]))
            or (at and fault.address is not None)
            or (named and named[1] in fault.details)
        ):
            fault = self.add(LogFault("page fault", "driver", number, text, device=device))
            fault.meaning = "the driver's side of a memory access fault, its first line is missing"
        self.open[fault.device] = self.last = fault
        if who and fault.pid is None:
            fault.process, fault.pid = who[1], int(who[2])
        if at:
            fault.address = int(at[1], 16)
            if client := _CLIENT.search(body):
                fault.details["client"] = client[1]
        if named:
            fault.details[named[1]] = named[2].strip()
        if more and more[1] == "RW":
            fault.write = more[2].strip() not in ("0x0", "0")
        if _SDMA.search(fault.details.get("client", "") + fault.details.get("Faulty UTCL2 client ID", "")):
            fault.meaning = _COPY_ENGINE


def _unmapped(reason: str) -> str:
    if not reason or "not present" in reason or reason.startswith("Unknown"):
        return "the page is not mapped: an index out of range, or memory used after its free"
    return "the page is mapped but not for this access, for example a write to read-only memory"


def _device(text: str) -> str:
    found = _DEVICE.search(text)
    return found[1].lower() if found else ""


def scan_log(lines: Iterable[str]) -> list[LogFault]:
    """Find the faults in a log; lines that belong to a fault are folded into it, by device and process.

    The driver's words count in the driver's lines only: a program that speaks of poison or of a timeout is no fault.

    Args:
        lines: the output of ``dmesg``, or of the program, or both mixed.

    Source: the lines are those of the Linux driver (drivers/gpu/drm/amd/amdgpu/gmc_v9_0.c, amdgpu_ras.c, mes_v11_0.c,
    amdkfd/kfd_device_queue_manager.c), of ROCr and of the HIP runtime (rocvirtual.cpp, AnalyzeAqlQueue); examples in
    https://github.com/ROCm/legacy-rocm-build/issues/2804, 6017 and https://github.com/cms-sw/cmssw/issues/50607.

    >>> found = scan_log(["Memory access fault by GPU node-1 (Agent handle: 0x1f829860) on address 0x7a8a4be00000. "
    ...                   "Reason: Page not present or supervisor privilege."])
    >>> found[0].kind, hex(found[0].address), found[0].device
    ('runtime fault', '0x7a8a4be00000', 'GPU node-1')
    """
    scan = _Scan()
    for number, raw in enumerate(lines, 1):
        text = raw.rstrip()
        if not text.isprintable():
            text = shown(text.expandtabs(), len(text) * 8)
        if not scan.runtime(number, text):
            scan.driver(number, text)
    scan.give_kernels()
    return scan.faults


def read_log(path: str | os.PathLike[str]) -> list[LogFault]:
    """Read a log from a file, see :func:`scan_log`; an empty list when there is no fault in it.

    Raises:
        FaultError: the file cannot be read.
    """
    return scan_log(read_lines(path))
