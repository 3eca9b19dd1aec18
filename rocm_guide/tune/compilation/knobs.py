# SPDX-License-Identifier: MIT
"""The switches of inductor (torch.compile's code generator) that the ROCm LLM guide names, as one table to toggle.

Source: ROCm documentation, "PyTorch inductor Triton tuning knobs"; the names were checked against torch 2.11 and 2.13.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch

from rocm_guide.common.base import GuideError
from rocm_guide.common.device import clock
from rocm_guide.tune.compilation.decoder import count_compilation

__all__ = ["KNOBS", "knob_table", "measure_knobs"]


@dataclass(frozen=True, slots=True)
class Knob:
    """One switch: its name under torch._inductor.config, what to set, what it does."""

    name: str
    value: Any
    does: str

    @property
    def env(self) -> str:
        """The environment variable that does the same."""
        return f"TORCHINDUCTOR_{self.name.upper()}={1 if self.value is True else self.value}" if self.name else ""

    @property
    def options(self) -> dict[str, Any]:
        """For ``torch.compile(..., options=knob.options)`` or ``torch._inductor.config.patch(knob.options)``."""
        return {self.name: self.value} if self.name else {}


#: Every knob of the guide's section, under the name that torch uses today, after a first row without any.
KNOBS: tuple[Knob, ...] = (
    Knob("", None, "inductor as it comes"),
    Knob("max_autotune", True, "both of the following, and convolutions: times several kernels for each"),
    Knob("max_autotune_pointwise", True, "times tile sizes of fused kernels"),
    Knob("max_autotune_gemm", True, "times BLAS against Triton for products only"),
    Knob(
        "max_autotune_gemm_backends",
        "TRITON",
        "products become Triton kernels even where BLAS is faster; what follows can be fused into them",
    ),
    Knob("coordinate_descent_tuning", True, "changes one tile parameter at a time as long as it gets faster"),
    Knob("freezing", True, "weights become constants: folding, better layouts; inference only"),
    Knob("cpp_wrapper", True, "launches kernels from C++: less time between launches"),
    Knob("layout_optimization", True, "channels-last convolutions; off on ROCm"),
)


def knob_table(knobs: Iterable[Knob] = KNOBS) -> list[dict[str, Any]]:
    """Return the knobs with the value that the installed torch starts with.

    Raises:
        GuideError: a knob that this torch does not have.

    >>> row = knob_table([k for k in KNOBS if k.name == "freezing"])[0]
    >>> row["default"], row["set"]
    (False, True)
    """
    from torch._inductor import config

    rows = []
    for knob in knobs:
        if knob.name and not hasattr(config, knob.name):
            raise GuideError(f"{knob.name}: torch._inductor.config has no such setting in this version of torch")
        default = getattr(config, knob.name) if knob.name else None
        row = {"knob": knob.name or "(none)", "default": default, "set": knob.value}
        rows.append({**row, "env": knob.env, "does": knob.does})
    return rows


def measure_knobs(
    make: Callable[[], Callable[[], Any]],
    *,
    knobs: Iterable[Knob] = KNOBS,
    runs: int = 20,
    device: str = "cpu",
    progress: Callable[[str], None] | None = None,
) -> list[dict[str, Any]]:
    """Toggle each knob alone: compile afresh, check the result against the first row, and time all rows in turns.

    ``make()`` returns a function without arguments to compile. The choice of backends is toggled together with
    ``max_autotune_gemm``, without which nothing reads it. A machine that drifts would pass for a knob if one row were
    timed after the other; so a round calls each row once, timed on the device. Name a knob twice for a control: how far
    its rows differ is what a difference means.
    Returns dicts: knob, ms (one per round), compile_s, kernels, max_error (against the first row), or error (one line).
    A knob that needs something this machine lacks (a compiler, a GPU) yields a row with ``error``, not an exception.
    """
    from torch._inductor import config

    # Autotuning prints a table of its candidates for each product; it would bury ours.
    quiet = {"autotune_num_choices_displayed": 0, "max_autotune_report_choices_stats": False}
    quiet = {name: value for name, value in quiet.items() if hasattr(config, name)}
    rows: list[dict[str, Any]] = []
    ready: list[tuple[dict[str, Any], dict[str, Any], Callable[[], Any]]] = []
    first: torch.Tensor | None = None
    torch._dynamo.reset()
    for number, knob in enumerate(knobs):
        row: dict[str, Any] = {"knob": knob.name or "(none)", "set": knob.value}
        extra = {"max_autotune_gemm": True} if knob.name == "max_autotune_gemm_backends" else {}
        # Without the cache each row pays its own compilation, and two rows never share a kernel.
        settings = {"force_disable_caches": True, **quiet, **extra, **knob.options}
        try:
            with torch.no_grad(), config.patch(settings), _few_words(), count_compilation() as report:
                compiled = torch.compile(_with_own_code(make(), number))
                result = compiled()
                clock(device)  # compiled and run, not only queued
            row |= {"compile_s": report.seconds, "kernels": report.kernels}
            first = result.clone() if first is None else first
            row["max_error"] = float((result.float() - first.float()).abs().max())
            ready.append((row, settings, compiled))
        except (RuntimeError, ImportError, OSError, AttributeError, ValueError, TypeError) as e:
            row["error"] = f"{type(e).__name__}: {str(e).strip()}".splitlines()[0][:160]
        rows.append(row)
        if progress:
            progress(row["knob"])
    for turn in range(runs + 3):  # three rounds to warm up
        for row, settings, compiled in ready:
            with torch.no_grad(), config.patch(settings):
                ms = _milliseconds(compiled, device)
            if turn >= 3:
                row.setdefault("ms", []).append(ms)
    return rows


def _with_own_code(fn: Callable[[], Any], number: int) -> Callable[[], Any]:
    """Return ``fn`` behind code that no other has: torch.compile finds what it compiled by the code object."""

    def call() -> Any:
        return fn()

    code = call.__code__.replace(co_name=f"row_{number}")
    return FunctionType(code, call.__globals__, f"row_{number}", None, call.__closure__)


@contextmanager
def _few_words() -> Iterator[None]:
    """Silence what PyTorch says once per row: that the caches are off (on purpose), and about a type of its own."""
    with warnings.catch_warnings():
        for message in ("dynamo_pgo force disabled", "TypedStorage is deprecated"):
            warnings.filterwarnings("ignore", message=message)
        yield


def _milliseconds(fn: Callable[[], Any], device: str) -> float:
    """Return the milliseconds of one call, by the GPU's own events where there is one, else by the clock."""
    if not device.startswith("cuda"):
        started = clock(device)
        fn()
        return (clock(device) - started) * 1e3
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    before.record()
    fn()
    after.record()
    after.synchronize()
    return float(before.elapsed_time(after))
