# SPDX-License-Identifier: MIT
"""`python -m course predict`: work out the times that an MI300X should take again, after a kernel has changed."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["predict"]


def predict(
    names: Annotated[list[str] | None, typer.Argument(help="Cases, or how their names begin; all if none.")] = None,
) -> None:
    """Compile and execute the kernels of the cases on this CPU, and keep the times predicted for an MI300X."""
    from rocm_guide.observe.measure.cases import CASES
    from rocm_guide.observe.measure.predict import predict_all
    from rocm_guide.observe.measure.predictions import PredictionError, read_predictions, write_predictions
    from rocm_guide.observe.measure.results import chosen_cases

    chosen = chosen_cases(names or ())
    new = {p.case: p for p in predict_all(chosen, lambda name: typer.echo(f"executing {name}", err=True))}
    try:
        kept = read_predictions() if names else {}
    except PredictionError:
        kept = {}
    found = {**kept, **new}
    path = write_predictions(found[n] for n in CASES if n in found)
    for p in new.values():
        typer.echo(f"{p.case:<44} {p.us:>10,.1f} us, limited by {p.limit}")
    typer.echo(f"{len(new)} predictions for an MI300X written: {path.name}")
