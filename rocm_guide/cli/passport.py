# SPDX-License-Identifier: MIT
"""`rocm-guide passport`: what a model of the course is, what it learnt, its size and its speed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from cdna.cli.options import JSON, out_file
from rocm_guide.common.base import whole_file

__all__ = ["passport"]


def passport(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run, as my-model, or its folder.")] = "my-model",
    as_json: JSON = False,
    out: Annotated[str | None, typer.Option("--out", help="Draw it into this PNG or SVG.")] = None,
) -> None:
    """Print the passport of a run: held-out figures, sizes, speeds, and what it says before and after."""
    from rocm_guide.finetune.passport import read_passport
    from rocm_guide.finetune.run_folder import runs_folder
    from rocm_guide.finetune.run_picture import passport_text

    picture = _picture(out)
    named = runs_folder() / run
    found = read_passport(run if Path(run).expanduser().exists() or not named.exists() else named)
    if picture is not None:
        import matplotlib as mpl

        mpl.use("agg")
        from rocm_guide.finetune.run_picture import draw_passport

        figure = draw_passport(found)
        with whole_file(picture) as part:
            figure.savefig(part, format=picture.suffix.lower().removeprefix("."))
    typer.echo(json.dumps(found, indent=1, ensure_ascii=False) if as_json else passport_text(found))


def _picture(out: str | None) -> Path | None:
    """Return the file to draw into, refused before anything is read."""
    if out is None:
        return None
    path = out_file(out)
    if path.suffix.lower() not in (".png", ".svg"):
        raise typer.BadParameter(f"{out}: a picture ends in .png or .svg; name it so")
    return path
