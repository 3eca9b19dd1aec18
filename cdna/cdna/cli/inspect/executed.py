# SPDX-License-Identifier: MIT
"""One launch whose gfx942 code is executed here: bytes, lines, conflicts, instructions, a model's time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdna.cli.inspect.python_file import HowTo

if TYPE_CHECKING:
    from cdna.cli.output import PlainConsole

__all__ = ["executed_counts", "print_executed"]

_WORDS = {
    "workgroups": "workgroups",
    "instructions": "wave instructions",
    "loaded": "bytes loaded from global memory by active lanes",
    "stored": "bytes stored",
    "lines": "lines of 128 bytes touched, each access by itself",
    "lines_floor": "lines that would hold as many bytes without gaps",
    "distinct_lines": "different lines",
    "lds_bytes": "bytes through LDS",
    "lds_conflicts": "cycles of LDS bank conflicts (32-bank model)",
    "mfma_flops": "operations of matrix instructions",
}


def executed_counts(path: Path, kernel: str, how: HowTo, grid: str) -> dict[str, Any]:
    """Execute the first launch of ``kernel`` (of the file, if empty) and count; ``model_us`` are a model's times.

    Raises:
        InputError: no way to launch it is known, or the code does something that an MI300X must not do.
    """
    from cdna.cli.step.launch import find_launch
    from cdna.predict.executed import model_time
    from cdna.run import run

    launch = find_launch(path, kernel, how, grid, "", None)
    result = run(launch.kernel, launch.grid, launch.arguments)
    model = model_time(result)
    return {
        "workgroups": result.machine.total,
        "instructions": result.executed,
        **result.counters.summary(),
        "model_us": {**model.parts, "limit": model.limit},
    }


def print_executed(console: PlainConsole, counts: dict[str, Any]) -> None:
    """Print the counts as a section of an inspection."""
    console.print("Executed on this machine's CPU (counts of gfx942 code, not times)", style="bold")
    for name, text in _WORDS.items():
        console.print(f"  {counts[name]:>14,}  {text}")
    kinds = [f"{n.removesuffix('_instructions')} {v:,}" for n, v in counts.items() if n.endswith("_instructions")]
    console.print(f"  by kind: {', '.join(kinds)}")
    times = counts["model_us"]
    parts = [f"{name} {us:.3f}" for name, us in times.items() if name != "limit"]
    console.print(
        f"  model: at peak rates an MI300X takes at least {times[times['limit']]:.3f} us ({times['limit']});"
        f" us by part: {', '.join(parts)}"
    )
