# SPDX-License-Identifier: MIT
"""`rocm-guide copy` and `rocm-guide script`: take one helper, or a notebook's script, into another project."""

from __future__ import annotations

from typing import Annotated

import typer

from cdna.cli.options import OutFile
from cdna.cli.output import write_or_print
from rocm_guide.cli.copying.scan import public_helpers
from rocm_guide.cli.copying.writer import copy_source, find_helper
from rocm_guide.cli.lessons import introductions, notebook_of
from rocm_guide.common.base import GuideError

__all__ = ["copy"]

_MUCH = 700  # lines: nobody reads more before they become theirs


def copy(
    helper: Annotated[
        str | None,
        typer.Argument(
            help="MODULE.NAME, such as finetune.lora.LoRALinear; or the number of a notebook, for its script."
        ),
    ] = None,
    out: OutFile = None,
    list_all: Annotated[
        bool, typer.Option("--list", help="Print the names of all helpers, and the notebooks that introduce them.")
    ] = False,
) -> None:
    """Print one helper as a self-contained file: it, what it needs from this package, its imports, its licence line.

    Of a notebook's number, print its cells to take away, as one script: rocm-guide script 02 does the same.
    """
    if list_all:
        notebooks = _introductions()
        for name in public_helpers():
            where = notebook_of(name, notebooks)
            typer.echo(f"{name}\tnotebook {where}" if where else name)
        return
    if helper is None:
        raise GuideError("no helper named; write rocm-guide copy MODULE.NAME, or --list to see them all")
    if helper.isdigit():
        from rocm_guide.cli.copying.script import script_of

        write_or_print(script_of(helper), out)
        return
    full = find_helper(helper)
    if full != helper.removeprefix("rocm_guide."):
        typer.echo(f"{helper} is {full}", err=True)
    where = notebook_of(full, _introductions())
    text = copy_source(full, remark=f"Introduced in notebook {where}." if where else "")
    if (lines := text.count("\n")) > _MUCH and not full.startswith("kernels."):  # a kernel is one file, however long
        module, _, name = full.rpartition(".")
        whole = f"pip install ./cdna . in a clone, then: from rocm_guide.{module} import {name}"
        raise GuideError(f"{full}: it stands on {lines:,} lines of the course, too many to take along; {whole}")
    write_or_print(text, out)


def _introductions() -> dict[str, str]:
    """Return what the notebooks say; nothing where the package was installed without them, or one is damaged."""
    try:
        return introductions()
    except (GuideError, OSError):
        return {}
