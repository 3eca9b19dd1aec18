# SPDX-License-Identifier: MIT
"""`python -m course`: what authors and CI do with the notebooks and the library."""

from __future__ import annotations

import typer

from cdna.cli.program import lazy_group, run_program
from rocm_guide.common.installation import missing_library

COMMANDS = {
    "run": ("course.command", "Execute notebooks and write them with a report."),
    "store": ("course.command", "Re-execute notebooks and keep their outputs in the repository."),
    "table": ("course.kernel_table", "What every kernel of the course takes on MI300X, compiled here."),
    "count": ("course.count", "Files and lines of every room."),
    "currency": ("course.currency", "List what the course says of moving projects, to be looked at again."),
    "sbom": ("course.sbom", "Everything that is pinned, with licences: a bill of materials."),
}
EXAMPLES = {
    "run": [("python -m course run 01 02 --jobs 2", "two notebooks at a time, as rocm-guide run")],
    "store": [("python -m course store 01", "execute notebook 01 and keep its outputs")],
    "table": [
        ("python -m course table softmax gemm", "two modules"),
        ("python -m course table --check", "compare everything with the committed table"),
    ],
    "sbom": [
        ("python -m course sbom", "a list with licences"),
        ("python -m course sbom --out sbom.json", "as CycloneDX 1.6"),
        ("python -m course sbom --advisories advisory-database", "what is known against it, from a clone"),
    ],
    "count": [("python -m course count --json", "for a program")],
    "currency": [("python -m course currency --days 30", "what was looked at longer ago than a month")],
}

app = typer.Typer(
    cls=lazy_group(COMMANDS, lambda: EXAMPLES),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _top() -> None:
    """For authors and CI: execute, store and check the notebooks."""


def main() -> None:
    """Run the command that the command line names."""
    run_program(app, "python -m course", missing_library)


if __name__ == "__main__":
    main()
