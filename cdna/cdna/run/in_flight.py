# SPDX-License-Identifier: MIT
"""Memory operations under way, and ``s_waitcnt``: a result exists only after the wave has waited for it.

``vmcnt`` counts vector loads and stores, which return in order. ``lgkmcnt`` counts LDS operations, which return in
order, and scalar loads, which return in any order: only lgkmcnt(0) proves that one of those has arrived. A FLAT access
counts on both. What the wave does not wait for stays under way as long as possible, which is the worst that hardware
may do; a store reaches memory when it is waited for, or at the latest when the wave ends.
Source: "AMD Instinct MI300 Instruction Set Architecture", AMD, "Data Dependency Resolution"; "User Guide for AMDGPU
Backend", "Memory Model GFX942", LLVM, https://llvm.org/docs/AMDGPUUsage.html.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cdna.run.errors import RunError
from cdna.run.state import ALL_LANES, Flight, Run, Wave, lanes_of

__all__ = ["register_name"]

_MAX_VM, _MAX_LGKM = 63, 15


def register_name(r: int) -> str:
    """Return ``v7`` or ``a7``."""
    return f"v{r}" if r < 256 else f"a{r - 256}"


def _complete(w: Wave, f: Flight) -> None:
    """Count the operation down in one of its counters; after the last, its result is there."""
    f.pending -= 1
    if f.pending:
        return
    if f.deliver is not None:
        f.deliver()
    if not f.scalar:
        for j, r in enumerate(f.registers):
            if w.flight.get(r) is f:
                del w.flight[r]
                w.valid[r] |= f.lanes & ~f.undefined[j] if f.undefined else f.lanes


def _queue(w: Wave, f: Flight) -> None:
    if f.counter in ("vmcnt", "flat"):
        w.vm.append(f)
        if len(w.vm) > _MAX_VM:  # the counter is full: the hardware waits
            _complete(w, w.vm.popleft())
    if f.counter in ("lgkmcnt", "flat"):
        w.lg.append(f)
        if len(w.lg) > _MAX_LGKM:
            wait(w, {"lgkmcnt": _MAX_LGKM})


def issue_load(w: Wave, f: Flight) -> None:
    """Issue a load into vector registers (or into LDS)."""
    for r in f.registers:
        before = w.flight.get(r)
        if before is not None and before.counter != f.counter and before.lanes & f.lanes:
            raise RunError(
                f"{f.op} would load {register_name(r)} while {before.op} of line {before.line} still loads it",
                f.line,
                "wait",
            )
        w.flight[r] = f
        w.valid[r] &= ~f.lanes
    f.pending = 2 if f.counter == "flat" else 1
    _queue(w, f)


def issue_store(w: Wave, f: Flight) -> None:
    """Issue a store; an older one to the same bytes is done first, as one wave's accesses keep their order."""
    if f.region is not None:
        overlapping(w, f.region)
    f.pending = 2 if f.counter == "flat" else 1
    _queue(w, f)


def issue_scalar(w: Wave, f: Flight) -> None:
    """Issue a scalar load: its registers hold the Flight until it has arrived."""
    for r in f.registers:
        if w.s[r].__class__ is Flight:
            raise RunError(
                f"{f.op} would load s{r} while {w.s[r].op} of line {w.s[r].line} still loads it", f.line, "wait"
            )
    for r in f.registers:
        w.s[r] = f
    _queue(w, f)


def unless_off(run: Run, line: int, op: str, counter: str) -> Run:
    """Return ``run`` for waves with a lane on; for others the operation touches nothing, and is waited for."""

    def execute(w: Wave) -> None:
        if w.exec:
            run(w)
        else:
            issue_load(w, Flight(line, op, counter, (), 0, None))

    return execute


def overlapping(w: Wave, region: tuple[Any, int, int]) -> None:
    """Complete the wave's own stores under way that touch a region, without counting them down."""
    place, low, high = region
    for f in w.vm:
        if f.region is None or f.deliver is None or f.region[0] != place:
            continue
        if f.region[1] <= high and low <= f.region[2]:
            f.deliver()
            f.deliver = None


def wait(w: Wave, counts: dict[str, int]) -> None:
    """Execute ``s_waitcnt``."""
    keep = counts.get("vmcnt")
    if keep is not None:
        while len(w.vm) > keep:
            _complete(w, w.vm.popleft())
    keep = counts.get("lgkmcnt")
    if keep is None or len(w.lg) <= keep:
        return
    if keep == 0:
        while w.lg:
            _complete(w, w.lg.popleft())
        return
    # Scalar loads may be the ones that have returned, so each of them frees the oldest LDS operation from nothing.
    scalars = [f for f in w.lg if f.scalar]
    others = [f for f in w.lg if not f.scalar]
    for f in others[: max(0, len(w.lg) - keep - len(scalars))]:
        w.lg.remove(f)
        _complete(w, f)


def drain(w: Wave) -> bool:
    """Complete the newest operation of a wave that ends; True while there was one."""
    if w.vm:
        _complete(w, w.vm.pop())
        return True
    if w.lg:
        _complete(w, w.lg.popleft())
        return True
    return False


def deliver(
    w: Wave, rows: tuple[int, ...], values: Any, lanes: int, finish: Callable[[Any, Any], Any] | None = None
) -> Callable[[], None]:
    """Return what completes a load: column j of ``values`` (a line per active lane) goes to ``rows[j]``."""

    def done() -> None:
        for j, r in enumerate(rows):
            column = values[:, j]
            if lanes == ALL_LANES:
                w.V[r][:] = finish(column, w.V[r]) if finish else column
            else:
                which = lanes_of(lanes)
                w.V[r][which] = finish(column, w.V[r][which]) if finish else column

    return done


def narrow(name: str, d16: str | None) -> Callable[[Any, Any], Any] | None:
    """Return how a loaded byte or half becomes a register: sign-extended, or put into one half of it."""
    bits = 8 if name.endswith(("8", "byte")) else 16
    left = np.int32(32 - bits)
    signed = name in ("i8", "i16", "sbyte", "sshort")

    def extend(x: Any, old: Any) -> Any:
        if signed:
            x = (x.view(np.int32) << left >> left).view(np.uint32)
        if d16 is None:
            return x
        if d16.endswith("hi"):
            return old & np.uint32(0xFFFF) | x << np.uint32(16)
        return old & np.uint32(0xFFFF0000) | x & np.uint32(0xFFFF)

    return extend if signed or d16 else None
