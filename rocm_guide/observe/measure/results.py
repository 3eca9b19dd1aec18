# SPDX-License-Identifier: MIT
"""Time the cases on this machine's GPU and write the stamped file; read such files.

A file names the GPU, driver, versions and clocks, and for each case the median and spread. It holds nothing about the
user: no host name, no path, no serial number.
"""

from __future__ import annotations

import json
import math
import platform
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rocm_guide import __version__
from rocm_guide.common.base import GuideError, read_regular, shown
from rocm_guide.common.device import Timing, accelerator
from rocm_guide.observe.measure.cases import CASES, Calls

__all__ = ["FORMAT", "MeasureError", "chosen_cases", "measure", "read_result"]

FORMAT = "rocm-guide measure 1"
_LIMIT = 1 << 20  # bytes of a file that is read


class MeasureError(GuideError):
    """No GPU, an unknown case, or a file that is no result."""


def _driver() -> str:
    """Return the GPU driver's version as the system states it, or nothing."""
    for path, pattern in (("/sys/module/amdgpu/version", r"\S+"), ("/proc/driver/nvidia/version", r"\d+\.\d+[\d.]*")):
        try:
            found = re.search(pattern, Path(path).read_text(encoding="utf-8", errors="replace"))
        except OSError:
            continue
        if found:
            return found[0]
    return ""


def _clock() -> int | None:
    """Return the MHz at which the GPU runs now, if the driver's library is there."""
    import torch

    try:
        return int(torch.cuda.clock_rate())
    except Exception:  # noqa: BLE001  the library behind it (NVML, AMD SMI) is another one on each system
        return None


def _stamp() -> dict[str, Any]:
    import torch
    import triton

    here, props = accelerator(), torch.cuda.get_device_properties(0)
    return {
        "name": here.name,
        "arch": here.arch,
        "units": props.multi_processor_count,
        "memory_gib": round(here.memory_bytes / 2**30, 1),
        "driver": _driver(),
        "runtime": f"ROCm {torch.version.hip}" if torch.version.hip else f"CUDA {torch.version.cuda}",
        "versions": {
            "torch": torch.__version__,
            "triton": triton.__version__,
            "python": platform.python_version(),
            "rocm-guide": __version__,
        },
    }


def time_calls(calls: Calls, runs: int, least: float = 2e-3) -> tuple[Timing, bool]:
    """Return the seconds of one call, and whether they ran in a graph:
    each run makes the calls in turn for 2 ms or longer.

    In a graph the host's launches cost nothing; where a call cannot be captured it is launched one by one.
    """
    import torch

    from rocm_guide.common.device import time_call

    first = time_call(calls[0], runs=3, warmup=3).median
    rounds = max(1, math.ceil(least / first / len(calls)))
    rounds = min(rounds, 200)

    def all_calls() -> None:
        for _ in range(rounds):
            for call in calls:
                call()

    run, captured = all_calls, False
    try:
        graph = torch.cuda.CUDAGraph()
        for call in calls:
            call()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            all_calls()
        run, captured = graph.replay, True
    except RuntimeError:
        torch.cuda.synchronize()
    t = time_call(run, runs=runs, warmup=1)
    each = rounds * len(calls)
    return Timing(t.median / each, t.spread / each, t.runs), captured


def chosen_cases(names: Iterable[str]) -> list[str]:
    """Return the cases of these names, or whose names begin so; all of them for no name.

    >>> chosen_cases(["ladder naive"])
    ['ladder naive fp16 4096']

    Raises:
        MeasureError: no case is called so.
    """
    found: list[str] = []
    for name in names:
        called = [name] if name in CASES else [n for n in CASES if n.startswith(name)]
        if not called:
            raise MeasureError(f"case {shown(name)}: there are {', '.join(CASES)}")
        found += called
    return list(dict.fromkeys(found)) or list(CASES)


def measure(
    names: Iterable[str] = (), *, runs: int = 20, progress: Callable[[str, dict[str, Any]], object] | None = None
) -> dict[str, Any]:
    """Time cases on the GPU of this machine.

    Args:
        names: as for :func:`chosen_cases`.
        runs: timed runs of each.
        progress: called with each case's name and result.

    A case that fails (a type that the GPU does not have) is stored with its error, and the others go on.

    Raises:
        MeasureError: no GPU, or no such case.
    """
    import gc

    import torch

    chosen = chosen_cases(names)
    if not accelerator().is_gpu:
        raise MeasureError("no GPU here, and times are a GPU's: run this where one is; --list shows the predictions")
    out: dict[str, Any] = {"format": FORMAT, "hardware": _stamp(), "clock_mhz": {"before": _clock()}, "cases": {}}
    for name in chosen:
        case = CASES[name]
        try:
            t, captured = time_calls(case.make(), runs)
            found: dict[str, Any] = {
                "us": t.median * 1e6,
                "spread_us": t.spread * 1e6,
                "runs": t.runs,
                "graph": captured,
            }
        except Exception as e:  # noqa: BLE001  one kernel that this GPU cannot run must not lose the others' times
            found = {"error": f"{type(e).__name__}: {str(e).splitlines()[0][:160] if str(e) else ''}"}
        out["cases"][name] = found
        if progress is not None:
            progress(name, found)
        gc.collect()
        torch.cuda.empty_cache()
    out["clock_mhz"]["after"] = _clock()
    return out


def _positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0


def check_result(data: Any, name: str) -> dict[str, Any]:
    """Return ``data`` if it is a result.

    Raises:
        MeasureError: what is wrong with it.
    """
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise MeasureError(f"{name}: no file of rocm-guide measure (its format is not {FORMAT!r})")
    hardware, cases = data.get("hardware"), data.get("cases")
    if not isinstance(hardware, dict) or not isinstance(hardware.get("name"), str) or not hardware["name"]:
        raise MeasureError(f"{name}: it does not name its hardware; measure again")
    if not isinstance(cases, dict) or not cases:
        raise MeasureError(f"{name}: it holds no cases; measure again")
    for case, found in cases.items():
        timed = (
            isinstance(found, dict)
            and _positive(found.get("us"))
            and (found.get("spread_us", 0) == 0 or _positive(found.get("spread_us")))
        )
        failed = isinstance(found, dict) and isinstance(found.get("error"), str)
        if not (timed or failed):
            raise MeasureError(
                f"{name}: case {shown(case, 60)} has neither a positive time nor an error; measure again"
            )
    return data


def read_result(path: str | Path) -> dict[str, Any]:
    """Read a file that ``rocm-guide measure`` wrote.

    Raises:
        MeasureError: it cannot be read, or is no such file.
    """
    path = Path(path)
    try:
        data = json.loads(read_regular(path, _LIMIT).decode("utf-8"))
    except (OSError, ValueError, RecursionError) as e:
        raise MeasureError(f"{path.name}: cannot be read as a result ({shown(e, 100)})") from e
    return check_result(data, path.name)
