# SPDX-License-Identifier: MIT
"""`python -m hub`: is this machine ready for a class, and for how many?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from cdna.cli.options import JSON, between, existing_folder
from cdna.cli.output import say
from cdna.cli.program import epilog, run_program
from rocm_guide.common.installation import missing_library

EXAMPLES = [
    ("python -m hub --homes /home --running 1.5", "with 1.5 GiB for each learner who computes"),
    ("python -m hub --modes", "the modes of an MI300X"),
    ("python -m hub --json", "for a program"),
]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(epilog=epilog(EXAMPLES))
def check(
    as_json: JSON = False,
    running: Annotated[
        float, typer.Option(help="GiB of memory for a learner who computes.", callback=between(0.01, 10_000))
    ] = 0.9,
    idle: Annotated[
        float, typer.Option(help="GiB of memory for a learner who reads.", callback=between(0.01, 10_000))
    ] = 0.2,
    homes: Annotated[Path, typer.Option(help="Folder of the learners' homes.")] = Path("/home"),
    modes: Annotated[bool, typer.Option("--modes", help="Only explain the modes of an MI300X.")] = False,
    root: Annotated[
        Path, typer.Option(help="Folder that holds proc, sys and dev, for trying it out.", callback=existing_folder)
    ] = Path("/"),
) -> None:
    """Check a class's machine: GPUs and partitions, groups, homes, versions, memory, disk; how many learners fit.

    Exit code 1 if anything is [FAIL], else 0.
    """
    from hub.capacity import check_hub, hub_as_dict, hub_libraries
    from hub.partitions import partition_table
    from rocm_guide.common.installation import clone_folder
    from rocm_guide.observe.system.machine import Machine

    if modes:
        table = partition_table()
        if as_json:
            keys = ("mode", "devices", "compute_units", "gib")
            typer.echo(json.dumps([dict(zip(keys, row, strict=True)) for row in table], indent=1))
            return
        for mode, count, units, gib in table:
            say(f"{mode}: eight MI300X are {count} devices of {units} compute units with {gib:g} GiB each")
        say("NPS1: the devices of a GPU share its memory. NPS4 with CPX: two devices share a quarter of it.")
        return
    rows, fit, found = check_hub(
        Machine(root), homes=homes, libraries=hub_libraries(clone_folder()), running=running, idle=idle
    )
    if as_json:
        typer.echo(json.dumps(hub_as_dict(rows, fit, found), indent=1))
    else:
        for row in rows:
            say(str(row))
    raise typer.Exit(1 if any(r.status == "FAIL" for r in rows) else 0)


def main() -> None:
    """Run the command."""
    run_program(app, "python -m hub", missing_library)


if __name__ == "__main__":
    main()
