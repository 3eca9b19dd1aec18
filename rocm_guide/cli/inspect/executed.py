# SPDX-License-Identifier: MIT
"""What one launch does when its gfx942 code is executed here: bytes, lines, conflicts, instructions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rocm_guide.cli.inspect.python_file import HowTo

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["executed_counts", "print_executed"]

_WORDS = {
    "workgroups": "workgroups",
    "instructions": "wave instructions",
    "loaded": "bytes loaded from global memory by active lanes",
    "stored": "bytes stored",
    "lines": "lines of 128 bytes touched, each access by itself",
    "lines_floor": "lines that would hold as many bytes without gaps",
    "lds_bytes": "bytes through LDS",
    "lds_conflicts": "cycles of LDS bank conflicts (32-bank model)",
    "mfma_flops": "operations of matrix instructions",
}


def executed_counts(path: Path, kernel: str, how: HowTo, grid: str) -> dict[str, int]:
    """Execute the first launch of ``kernel`` (of the file, if empty) and count.

    Raises:
        GuideError: no way to launch it is known, or the code does something that an MI300X must not do.
    """
    from rocm_guide.cli.step.launch import find_launch
    from rocm_guide.mi300x.run import run

    launch = find_launch(path, kernel, how, grid, "", None)
    result = run(launch.kernel, launch.grid, launch.arguments)
    c = result.counters
    places = 1
    for n in launch.grid:
        places *= n
    return {
        "workgroups": places, "instructions": result.executed, "loaded": c.loaded, "stored": c.stored,
        "lines": c.lines, "lines_floor": -(-c.loaded // 128) + -(-c.stored // 128), "lds_bytes": c.lds_bytes,
        "lds_conflicts": c.lds_conflicts, "mfma_flops": c.mfma_flops,
        **{f"{kind}_instructions": n for kind, n in sorted(c.instructions.items())},
    }  # fmt: skip


def print_executed(console: Console, counts: dict[str, int]) -> None:
    """The counts as a section of an inspection."""
    console.print("Executed on this machine's CPU (counts of gfx942 code, not times)", style="bold")
    for name, text in _WORDS.items():
        console.print(f"  {counts[name]:>14,}  {text}")
    kinds = [f"{n.removesuffix('_instructions')} {v:,}" for n, v in counts.items() if n.endswith("_instructions")]
    console.print(f"  by kind: {', '.join(kinds)}")
