# SPDX-License-Identifier: MIT
"""`rocm-guide passport`: what a model of the course is, what it learnt, its size and its speed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from cdna.cli.options import JSON

__all__ = ["passport"]


def passport(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run, as my-model, or its folder.")] = "my-model",
    as_json: JSON = False,
) -> None:
    """Print the passport of a run: held-out figures, sizes, speeds, and what it says before and after."""
    from rocm_guide.finetune.passport import passport_text, read_passport
    from rocm_guide.finetune.run_folder import runs_folder

    named = runs_folder() / run
    found = read_passport(run if Path(run).expanduser().exists() or not named.exists() else named)
    typer.echo(json.dumps(found, indent=1, ensure_ascii=False) if as_json else passport_text(found))
