# SPDX-License-Identifier: MIT
"""`rocm-guide doctor`: is this machine ready for the course?"""

from __future__ import annotations

import json
from typing import Annotated

import typer

from cdna.cli.options import JSON, between
from cdna.cli.output import PlainConsole

__all__ = ["doctor"]


def doctor(
    as_json: JSON = False,
    timeout: Annotated[
        float, typer.Option(help="Seconds to wait for torch to find the GPUs.", callback=between(0.1, 86_400))
    ] = 120,
) -> None:
    """Check Python, libraries, accelerator, ROCm, memory, disk and cache; each finding with its fix.

    Exit code 1 if anything is [FAIL], else 0.
    """
    from rocm_guide.observe.doctor.diagnosis import checks_as_dict, diagnose

    checks = diagnose(timeout=timeout)
    summary = checks_as_dict(checks)
    if as_json:
        typer.echo(json.dumps(summary, indent=1))
    else:
        console = PlainConsole()
        colours = {"OK": None, "WARN": "yellow", "FAIL": "red"}
        for check in checks:
            console.print(check, style=colours[check.status])
    raise typer.Exit(1 if summary["status"] == "FAIL" else 0)
