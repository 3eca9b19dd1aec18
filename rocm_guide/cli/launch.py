# SPDX-License-Identifier: MIT
"""`rocm-guide launch`: files that start one training run on several machines."""

from __future__ import annotations

from typing import Annotated

import typer

from cdna.cli.options import OutFile, between, choice
from cdna.cli.output import write_or_print

__all__ = ["launch"]

_KINDS = ("torchrun", "slurm", "accelerate")


def launch(
    kind: Annotated[
        str,
        typer.Argument(help="torchrun, slurm or accelerate.", callback=choice(*_KINDS), autocompletion=lambda: _KINDS),
    ],
    program: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- PROGRAM …]", help="Your own: train.py --lr 1e-4, or -m package.train."),
    ] = None,
    nodes: Annotated[
        str | None, typer.Option(metavar="N|LEAST:MOST", help="Machines; torchrun also takes 1:2, least and most.")
    ] = None,
    gpus: Annotated[int | None, typer.Option(help="GPUs of each machine.", callback=between(1, 1024))] = None,
    time: Annotated[str | None, typer.Option(metavar="HH:MM:SS", help="Slurm's time limit; also D-HH:MM:SS.")] = None,
    out: OutFile = None,
) -> None:
    """Print a launch file: run it on every machine (torchrun), submit it (slurm), or give it to Accelerate.

    What stands behind -- is your own program with its arguments; it takes the place of the course's.
    """
    from rocm_guide.finetune.nodes import launch_file

    write_or_print(launch_file(kind, nodes=nodes, gpus=gpus, time=time, program=program or ()), out)
