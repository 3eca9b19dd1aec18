# SPDX-License-Identifier: MIT
"""`rocm-guide launch`: files that start one training run on several machines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["launch"]


def launch(
    kind: Annotated[str, typer.Argument(help="torchrun, slurm or accelerate.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write to this file instead of printing.")] = None,
) -> None:
    """Print a launch file: run it on every machine (torchrun), submit it (slurm), or give it to Accelerate."""
    from rocm_guide.cli.output import write_or_print
    from rocm_guide.launch import launch_file

    write_or_print(launch_file(kind), out)
