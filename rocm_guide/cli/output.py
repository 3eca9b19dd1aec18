# SPDX-License-Identifier: MIT
"""Where the text that a command makes goes."""

from __future__ import annotations

from pathlib import Path

import typer

from rocm_guide.base import write_text

__all__ = ["write_or_print"]


def write_or_print(text: str, out: Path | None) -> None:
    """To the file, and say so; or to the screen if there is none."""
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_text(out, text)
        typer.echo(f"{out}: {len(text.splitlines())} lines")
