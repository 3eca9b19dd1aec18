# SPDX-License-Identifier: MIT
"""`rocm-guide system check | set | reset`: what the guide's env_check.sh set out to do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cdna.cli.options import JSON, between, choice, existing_folder, out_file
from cdna.cli.output import say
from rocm_guide.cli.doctor import report
from rocm_guide.common.base import shown

if TYPE_CHECKING:
    from rocm_guide.observe.system.apply import Outcome

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="System settings of an MI300X machine: check, set, reset."
)

_STATE = typer.Option(
    "--state",
    parser=out_file,
    metavar="FILE",
    help="File for the previous values, instead of the one in the state folder.",
)
_DRY = typer.Option("--dry-run", help="Say what would be done, change nothing.")
_ROOT = typer.Option("--root", help="Folder that holds proc and sys, for trying it out.", callback=existing_folder)


@app.command()
def check(as_json: JSON = False, root: Annotated[Path, _ROOT] = Path("/")) -> None:
    """Look at NUMA balancing, kernel arguments, IOMMU, huge pages, clocks, power caps, partitions. Needs no root.

    Exit code 1 if anything is [FAIL], else 0.
    """
    from rocm_guide.observe.system.audit import check_system
    from rocm_guide.observe.system.machine import Machine

    report(check_system(Machine(root)), as_json)


@app.command("set")
def set_(
    clock: Annotated[
        int,
        typer.Option(help="Clock limit in MHz for every GPU; 0 leaves the clocks alone.", callback=between(0, 10_000)),
    ] = 1900,
    numa: Annotated[bool, typer.Option(help="Switch automatic NUMA balancing off.")] = True,
    hugepages: Annotated[
        str | None,
        typer.Option(
            help="Transparent huge pages: always, madvise or never.", callback=choice("always", "madvise", "never")
        ),
    ] = None,
    power_cap: Annotated[int | None, typer.Option(help="Watts per GPU.", callback=between(1, 10_000))] = None,
    partition: Annotated[
        str | None,
        typer.Option(help="Compute partition: SPX, DPX, QPX or CPX.", callback=choice("SPX", "DPX", "QPX", "CPX")),
    ] = None,
    dry_run: Annotated[bool, _DRY] = False,
    state: Annotated[Path | None, _STATE] = None,
    as_json: JSON = False,
    root: Annotated[Path, _ROOT] = Path("/"),
) -> None:
    """Make the settings, after saving what was there before. Exit code 1 if one of them failed.

    HIP_FORCE_DEV_KERNARG=1 belongs into your shell, not into a program that ends: ROCm 6.2 and newer do it by default.
    """
    from rocm_guide.observe.system.apply import apply_settings, state_path
    from rocm_guide.observe.system.machine import Machine, wanted_settings

    machine = Machine(root)
    settings = wanted_settings(
        machine, clock=clock or None, numa=numa, hugepages=hugepages, power_cap=power_cap, partition=partition
    )
    _show(apply_settings(settings, machine, state or state_path(machine), dry_run=dry_run), as_json, "nothing to set")


@app.command()
def reset(
    dry_run: Annotated[bool, _DRY] = False,
    force: Annotated[bool, typer.Option("--force", help="Also restore what somebody else changed since.")] = False,
    state: Annotated[Path | None, _STATE] = None,
    as_json: JSON = False,
    root: Annotated[Path, _ROOT] = Path("/"),
) -> None:
    """Put back every value that `set` saved. Exit code 1 if one of them could not be restored."""
    from rocm_guide.observe.system.apply import reset_settings, state_path
    from rocm_guide.observe.system.machine import Machine, every_setting

    machine = Machine(root)
    where = state or state_path(machine)
    done = reset_settings(every_setting(machine), machine, where, dry_run=dry_run, force=force)
    _show(done, as_json, f"nothing to reset: {shown(where)} is not there")


def _show(outcomes: Sequence[Outcome], as_json: bool, nothing: str) -> None:
    if as_json:
        typer.echo(json.dumps([asdict(o) for o in outcomes], indent=1))
    else:
        for outcome in outcomes:
            say(outcome)
        if not outcomes:
            say(nothing)
    raise typer.Exit(1 if any(o.result in ("failed", "changed since") for o in outcomes) else 0)
