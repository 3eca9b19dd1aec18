# SPDX-License-Identifier: MIT
"""Predicted against measured, of one file or several, as a table and a plot.

A prediction is compared with times of the GPU that it is for, and with no others. For an MI300X it is the model of each
kernel (:mod:`rocm_guide.observe.measure.predictions`); for another GPU whose data sheet is known it is that GPU's
roofline; for any other GPU there is none. The MI300X's predictions stand beside the times of other GPUs under their own
name: the bound, which no launch can beat, and the likely time (:mod:`cdna.predict.achieved`), with its distance from
published measurements.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from cdna.predict.achieved import LikelyTime, likely
from cdna.predict.published import accuracy
from cdna.predict.specs import find_gpu, gpu
from rocm_guide.common.plots import PALETTE, house_style
from rocm_guide.observe.measure.cases import CASES, predicted_us
from rocm_guide.observe.measure.predictions import GPU, read_predictions

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_merged", "likely_time", "merged_table"]

_MODEL, _ROOFLINE = "the model of each kernel", "the roofline of its data sheet"
_HEADS = (f"{GPU}, model", "likely", "limit", f"{GPU}, roofline")


def basis(result: dict[str, Any]) -> str:
    """Return what predicts the times of a file's GPU; empty if nothing does."""
    spec = find_gpu(result["hardware"]["name"])
    return "" if spec is None else _MODEL if spec.name == GPU else _ROOFLINE


def predictions_for(result: dict[str, Any]) -> dict[str, float]:
    """Return the predicted microseconds of the cases that a file has timed, for the GPU of that file."""
    spec, how = find_gpu(result["hardware"]["name"]), basis(result)
    timed = [n for n, c in result["cases"].items() if "us" in c and n in CASES]
    if spec is None:
        return {}
    if how == _MODEL:
        return {n: read_predictions()[n].us for n in timed}
    return {n: predicted_us(CASES[n], spec) for n in timed}


def likely_time(name: str) -> LikelyTime:
    """Return the likely time of a case on an MI300X, from the parts of its prediction and its operations.

    >>> print(likely_time("gemm bf16 8192"))
    bound 1,019.3 us, likely 1,672.0 us (compute units, 1.28 GHz)
    """
    case, predicted = CASES[name], read_predictions()[name]
    # Operations of the vector units do not slow the clock.
    matrix = 0.0 if case.unit == "fp32" else case.flops / gpu(GPU).peak_tflops(case.unit) / 1e6
    return likely(predicted.parts, matrix=matrix, launches=len(predicted.launches))


def shares(result: dict[str, Any]) -> dict[str, float]:
    """Return predicted / measured for each case that was timed, on a GPU that something predicts; 1 is as predicted."""
    return {n: us / result["cases"][n]["us"] for n, us in predictions_for(result).items()}


def _left_out(names: Iterable[str]) -> list[str]:
    """Return what the models of these cases do not charge, each with the cases that it is said of."""
    said: dict[str, list[str]] = {}
    for name in names:
        said.setdefault(read_predictions()[name].left_out, []).append(name)
    if len(said) < 2:
        return list(said)
    return [f"{text} ({', '.join(dict.fromkeys(n.split()[0] for n in cases))})" for text, cases in said.items()]


def _notes(results: Sequence[dict[str, Any]], names: Sequence[str]) -> list[str]:
    notes = [
        f"{GPU}, model: microseconds predicted by {_MODEL}, compiled for gfx942 and executed on a CPU; nobody measured "
        "them, and no launch takes less. rocm-guide measure --list --json has the parts: bytes, issue, waves, launches",
        f"{GPU}, likely: the same parts at the rates that people measured, and the launches; {accuracy()}",
        *(f"{GPU}, model, not charged: {left_out}" for left_out in _left_out(names)),
    ]
    for name in dict.fromkeys(r["hardware"]["name"] for r in results):
        how = basis(next(r for r in results if r["hardware"]["name"] == name))
        notes.append(
            f"{name}: measured; in brackets predicted / measured, predicted by {how}"
            if how
            else f"{name}: measured; nothing here predicts this GPU, so nothing is compared"
        )
    return notes


def merged_table(results: Sequence[dict[str, Any]]) -> str:
    """Return a line for each case: an MI300X by model, bound and likely, and by its roofline; then each file's median.

    In brackets stands predicted / measured, with the prediction for the GPU of that file.
    """
    mi300x, model = gpu("MI300X"), read_predictions()
    names = [n for n in CASES if any(n in r["cases"] for r in results) or not results]
    rows = [f"{'case':<42} {_HEADS[0]:>15} {_HEADS[1]:>12}  {_HEADS[2]:<14} {_HEADS[3]:>16}"]
    rows[0] += "".join(f"  {r['hardware']['name'][:28]:>24}" for r in results)
    parts = [shares(r) for r in results]
    for name in names:
        row = f"{name:<42} {model[name].us:>12,.1f} us {likely_time(name).microseconds:>9,.1f} us"
        row += f"  {model[name].limit:<14}"
        row += f" {predicted_us(CASES[name], mi300x):>13,.1f} us"
        for r, share in zip(results, parts, strict=True):
            found = r["cases"].get(name, {})
            if "us" not in found:
                text = "failed" if "error" in found else "-"
            else:
                text = f"{found['us']:,.1f} us" + (f" ({share[name]:.0%})" if name in share else "")
            row += f"  {text:>24}"
        rows.append(row)
    return "\n".join([*rows, *_notes(results, names)])


def draw_merged(results: Sequence[dict[str, Any]], ax: Axes | None = None) -> Axes:
    """Draw a row for each case: each file's measured time, joined to what was predicted for its GPU; logarithmic.

    The MI300X's predictions are drawn in every row under their own name, and joined to times of an MI300X only. A thin
    line leads from the bound to the likely time.
    """
    import matplotlib.pyplot as plt

    names = [n for n in CASES if any("us" in r["cases"].get(n, {}) for r in results) or not results]
    if ax is None:
        house_style()
        _, ax = plt.subplots(figsize=(8.0, 1.5 + 0.25 * len(names) + 0.17 * len(results)))
    rows = {n: i for i, n in enumerate(names)}
    step = 0.5 / max(1, len(results))
    model = read_predictions()
    for i, r in enumerate(results):
        colour, shift = PALETTE[i % (len(PALETTE) - 2)], (i - (len(results) - 1) / 2) * step + 0.1
        predicted, versions = predictions_for(r), r["hardware"].get("versions", {})
        timed = [n for n in names if "us" in r["cases"].get(n, {})]
        here = [rows[n] + shift for n in timed]
        measured = [r["cases"][n]["us"] for n in timed]
        if predicted:
            due = [predicted[n] for n in timed]
            ax.hlines(here, due, measured, color=colour, lw=1.2, alpha=0.6)
            label = f"{r['hardware']['name']}: predicted by {basis(r)}"
            ax.plot(due, here, "|", color=colour, markersize=9, markeredgewidth=1.8, label=label)
        label = f"{r['hardware']['name']}: measured, torch {str(versions.get('torch', '?')).split('+')[0]}"
        spread = [r["cases"][n].get("spread_us", 0) for n in timed]
        ax.errorbar(measured, here, xerr=spread, fmt="o", markersize=5, color=colour, label=label)
    due, probable = [model[n].us for n in names], [likely_time(n).microseconds for n in names]
    above = [i - 0.22 for i in rows.values()]  # beside the times of other GPUs, not on their line
    ax.hlines(above, due, probable, color=PALETTE[6], lw=0.8)
    label = f"{GPU}: likely; median error {accuracy().median:.0%} over {accuracy().points} published points"
    ax.plot(probable, above, "D", color=PALETTE[6], markersize=4, label=label)
    if not any(basis(r) == _MODEL for r in results):
        label = f"{GPU}: predicted by {_MODEL}; not measured"
        ax.plot(due, above, "D", color=PALETTE[6], markersize=5.5, fillstyle="none", label=label)
    ax.set_yticks(list(rows.values()), names, fontsize=8)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.set(xscale="log", title="Predicted and measured")
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.legend(fontsize=8, loc="lower left", bbox_to_anchor=(-0.35, 1.07), borderaxespad=0)
    not_charged = [textwrap.fill(f"{GPU}, predicted, not charged: {text}", 110) for text in _left_out(names)]
    ax.set_xlabel("\n".join(["microseconds", *not_charged]), fontsize=8, loc="right", multialignment="right")
    return ax
