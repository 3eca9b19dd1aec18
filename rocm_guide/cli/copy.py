# SPDX-License-Identifier: MIT
"""`rocm-guide copy`: take one helper along into another project."""

from __future__ import annotations

from typing import Annotated

import typer

from rocm_guide.cli.options import OutFile, helper_names

__all__ = ["copy"]


def copy(
    helper: Annotated[
        str | None, typer.Argument(help="MODULE.NAME, for example base.write_text.", autocompletion=helper_names)
    ] = None,
    out: OutFile = None,
    list_all: Annotated[bool, typer.Option("--list", help="Print the names of all helpers.")] = False,
) -> None:
    """Print one helper as a self-contained file: it, what it needs from this package, its imports, its licence line."""
    from rocm_guide.base import GuideError
    from rocm_guide.cli.output import write_or_print
    from rocm_guide.copying.names import public_helpers
    from rocm_guide.copying.writer import copy_source

    if list_all:
        typer.echo("\n".join(public_helpers()))
        return
    if helper is None:
        raise GuideError("no helper named; write rocm-guide copy MODULE.NAME, or --list to see them all")
    write_or_print(copy_source(helper), out)
