# SPDX-License-Identifier: MIT
"""`rocm-guide doctor`: is this machine ready for the course?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, NoReturn

import typer

from cdna.checks import Check
from cdna.cli.options import JSON, between
from cdna.cli.output import PlainConsole

__all__ = ["doctor", "report"]


def doctor(
    as_json: JSON = False,
    timeout: Annotated[
        float, typer.Option(help="Seconds to wait for torch to find the GPUs.", callback=between(0.1, 86_400))
    ] = 120,
) -> None:
    """Check Python, libraries, accelerator, ROCm, memory, disk and cache; each finding with its fix.

    Exit code 1 if anything is [FAIL], else 0.
    """
    from rocm_guide.observe.doctor.diagnosis import diagnose

    report(diagnose(timeout=timeout), as_json)


def report(checks: Sequence[Check], as_json: bool) -> NoReturn:
    """Print checks, or the worst status and each of them as JSON; leave with exit code 1 if anything is [FAIL]."""
    worst = max((c.status for c in checks), key=("OK", "WARN", "FAIL").index)
    if as_json:
        typer.echo(json.dumps({"status": worst, "checks": [asdict(c) for c in checks]}, indent=1))
    else:
        console = PlainConsole()
        colours = {"OK": None, "WARN": "yellow", "FAIL": "red"}
        for check in checks:
            console.print(check, style=colours[check.status])
    raise typer.Exit(1 if worst == "FAIL" else 0)
