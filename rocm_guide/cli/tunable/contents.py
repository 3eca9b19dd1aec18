# SPDX-License-Identifier: MIT
"""The contents of a TunableOp file, as JSON or as the file's own text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cdna.cli.output import say, write_or_print
from rocm_guide.common.base import write_text

if TYPE_CHECKING:
    from rocm_guide.tune.tunableop.files import TuningFile

__all__ = ["contents", "print_file"]


def contents(file: TuningFile) -> dict[str, Any]:
    """Return validators, tuned products with solution and time, lines that wait for tuning,
    and what was odd about the file.

    >>> from rocm_guide.tune.tunableop.files import parse_text
    >>> contents(parse_text("GemmTunableOp_Half_TN,tn_8_4_2,Default,0.5\\n"))["tuned"]
    [{'op': 'GemmTunableOp_Half_TN', 'params': 'tn_8_4_2', 'solution': 'Default', 'time_ms': 0.5}]
    """
    tuned = [{"op": g.op, "params": g.params, "solution": g.solution, "time_ms": g.time_ms} for g in file.tuned]
    untuned = [g.line() for g in file.gemms.values() if not g.tuned]
    return {"validators": file.validators, "tuned": tuned, "untuned": untuned, "problems": file.problems}


def print_file(file: TuningFile, out: Path | None, as_json: bool) -> None:
    """Write the file's text to ``out`` or the screen, with what was odd on stderr; with ``as_json`` what it holds."""
    if not as_json:
        for line in file.problems:
            say(f"[WARN] {line}", err=True)
        write_or_print(file.text(), out)
        return
    if out is not None:
        write_text(out, file.text())
    typer.echo(json.dumps(contents(file)))
