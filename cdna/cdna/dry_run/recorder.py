# SPDX-License-Identifier: MIT
"""The record of a dry run, and the object that Triton hands kernels to while it lasts (see ``dry_run``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cdna.base import InputError
from cdna.compile import Compiled, compiled_from_triton, name_constants
from cdna.report import KernelReport, kernel_report, report_table

__all__ = ["DryRunError", "Launch"]


class DryRunError(InputError):
    """A dry run that cannot start, or a kernel of a finished dry run that is launched."""


@dataclass(frozen=True)
class Launch:
    """One launch that would have happened.

    Attributes:
        kernel, grid: what, and over how many workgroups in x, y and z.
        tuning: True for a trial of ``@triton.autotune``; the launch with the chosen configuration follows.
        config: the autotuner's configuration, as it prints it; empty for a kernel that is not being tuned.
        compiled, report: all stages of the kernel, and what they mean for the hardware.
    """

    kernel: str
    grid: tuple[int, int, int]
    tuning: bool
    config: str
    compiled: Compiled = field(repr=False)
    report: KernelReport = field(repr=False)


@dataclass(frozen=True)
class Failure:
    """A configuration that Triton refused to compile while the autotuner tried it."""

    kernel: str
    config: str
    error: str


@dataclass
class DryRun:
    """Launches of a dry run, in order."""

    arch: str
    launches: list[Launch] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    @property
    def kernels(self) -> list[str]:
        """Names of the kernels, each once, in the order of their first launch."""
        return list(dict.fromkeys(launch.kernel for launch in self.launches))

    @property
    def reports(self) -> list[KernelReport]:
        """The reports of all launches, each different one once."""
        return list({id(launch.report): launch.report for launch in self.launches}.values())

    def __str__(self) -> str:
        return report_table(self.reports)


class DeviceNumber(int):
    """Device number 0 under a hash of its own, so that Triton's per-device caches keep dry runs apart."""

    serial: int

    def __hash__(self) -> int:
        return hash(("dry run", self.serial))

    def __eq__(self, other: object) -> bool:
        return self is other


class Recorder:
    """One dry run's side of the conversation with Triton."""

    def __init__(
        self,
        run: DryRun,
        serial: int,
        on_launch: Callable[[Compiled, tuple[int, int, int], dict[str, Any]], None] | None = None,
    ) -> None:
        self.run = run
        self.on_launch = on_launch
        self.device = DeviceNumber(0)
        self.device.serial = serial
        self.loading: tuple[Any, Any] = (None, None)
        self.files: dict[str, str] = {}
        self.functions: dict[int, Any] = {}
        self.tuners: dict[int, tuple[Any, dict[str, Any]]] = {}
        self.reports: dict[tuple[int, tuple[int, int, int]], KernelReport] = {}
        self.tuned = ""
        self.trial = ""
        self.trials = 0

    def load_start(self, module: Any, function: Any, name: str, files: dict[str, str], key: str) -> None:
        """Note, as Triton's hook before a load, where the stages of the kernel were stored."""
        self.files = dict(files)

    def load_binary(self, name: str, code: bytes, shared: int, device: Any) -> tuple[Any, ...]:
        """Answer Triton's "load this code object": everything about it becomes the function handle."""
        src, metadata = self.loading
        stages = {Path(p).suffix[1:]: Path(p) for p in self.files.values()}
        asm = {k: p.read_text() for k, p in stages.items() if k in ("ttir", "ttgir", "llir", "amdgcn")}
        fn = getattr(src, "fn", None)
        constants: dict[str, Any] = {}
        if fn is not None:
            self.functions[id(fn)] = fn
            constants = name_constants(fn, src.constants)
        compiled = compiled_from_triton({**asm, "hsaco": code}, metadata._asdict(), src.signature, constants)
        # No module handle, so that Triton never tries to unload it; and no limit on threads: that is a finding.
        return None, compiled, 0, 0, 1 << 30

    def record(self, compiled: Compiled, grid: tuple[int, int, int], arguments: Sequence[Any]) -> None:
        """Record one launch; reports are shared between equal ones."""
        key = (id(compiled), grid)
        if key not in self.reports:
            self.reports[key] = kernel_report(compiled, grid)
        self.run.launches.append(Launch(compiled.name, grid, bool(self.trial), self.trial, compiled, self.reports[key]))
        if self.on_launch is not None and not self.trial:
            self.on_launch(compiled, grid, dict(zip(compiled.signature, arguments, strict=True)))

    def bench(self, call: Callable[[], Any], quantiles: Any = None, **_: Any) -> Any:
        """Stand in for timing: the first configuration that can be launched and does not spill is the fastest."""
        start = len(self.run.launches)
        self.trials += 1
        try:
            call()
        except Exception as e:
            lines = str(e).strip().splitlines() or [""]
            self.run.failures.append(Failure(self.tuned, self.trial, f"{type(e).__name__}: {lines[-1].strip()}"))
            raise
        new = [launch.report for launch in self.run.launches[start:]]
        cost = self.trials + 1e6 * any(r.resources.vgpr_spills for r in new)
        cost = cost if all(r.launches for r in new) else float("inf")
        return [cost] * len(quantiles) if quantiles else cost

    def adopt(self, tuner: Any) -> None:
        """Give an autotuner an empty memory for this run; its own comes back on exit."""
        if id(tuner) not in self.tuners:
            self.tuners[id(tuner)] = (tuner, dict(vars(tuner)))
            vars(tuner).update(cache={}, cache_results=False, do_bench=self.bench)

    def restore(self) -> None:
        """Put autotuners back, and drop what Triton cached for this run's device."""
        for tuner, saved in self.tuners.values():
            vars(tuner).clear()
            vars(tuner).update(saved)
        for fn in self.functions.values():
            fn.device_caches.pop(self.device, None)
