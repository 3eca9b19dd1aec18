# SPDX-License-Identifier: MIT
"""The passport as text, and a stage of it as one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rocm_guide.common.base import shown
from rocm_guide.finetune.passport import RunError

__all__ = ["passport_line", "passport_text"]

_HEAD = ("stage", "loss", "perplexity", "exact", "on disk", "in memory", "train/s", "prefill/s", "decode/s")


def _bytes(n: float | None) -> str:
    """Return a size as people write it.

    >>> _bytes(6_442_000), _bytes(13.5e9), _bytes(None)
    ('6.44 MB', '13.5 GB', '-')
    """
    if n is None:
        return "-"
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n >= size:
            return f"{n / size:.3g} {unit}"
    return f"{n} B"


def _row(stage: Mapping[str, Any]) -> tuple[str, ...]:
    held, size, speed = (stage.get(k, {}) for k in ("held_out", "size", "speed"))

    def number(value: float | None, form: str) -> str:
        return "-" if value is None else form.format(value)

    return (
        shown(stage["stage"], 24),
        number(held.get("loss"), "{:.4f}"),
        number(held.get("perplexity"), "{:.4g}"),
        number(held.get("exact_match"), "{:.1%}"),
        _bytes(size.get("disk_bytes")),
        _bytes(size.get("memory_bytes")),
        number(speed.get("training_tokens_per_s"), "{:,.0f}"),
        number(speed.get("prefill_tokens_per_s"), "{:,.0f}"),
        number(speed.get("decode_tokens_per_s"), "{:,.0f}"),
    )


def passport_text(passport: Mapping[str, Any]) -> str:
    """Return the passport as lines of text: a row of figures for each stage, then what it says, before and after.

    Args:
        passport: from :func:`rocm_guide.finetune.passport.read_passport`.

    >>> print(passport_text({"run": "r", "model": "tiny", "dataset": "tiny", "stages": []}))
    r: tiny, fine-tuned on tiny
    no stage yet: run notebook 02 with this RUN
    """
    names = (shown(passport[k], 80) for k in ("run", "model", "dataset"))
    lines = ["{}: {}, fine-tuned on {}".format(*names)]
    stages = passport["stages"]
    if not stages:
        return "\n".join([*lines, "no stage yet: run notebook 02 with this RUN"])
    rows = [_HEAD, *map(_row, stages)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEAD))]
    for row in rows:
        first, *rest = (c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        lines.append("  ".join([first, *rest]))
    counts = sorted({s.get("held_out", {}).get("rows") or 0 for s in stages} - {0})
    judged = f"held-out rows: {', '.join(map(str, counts))}; " if counts else ""
    lines.append(f"{judged}train, prefill, decode: tokens per second")
    for hardware in dict.fromkeys(shown(s.get("hardware", ""), 120) for s in stages if s.get("hardware")):
        lines.append(
            f"on {hardware}: {', '.join(shown(s['stage'], 60) for s in stages if s.get('hardware') == hardware)}"
        )
    lines += _sayings(stages)
    return "\n".join(lines)


#: Figures of a stage in one line: name, group, its key, form, factor by which it may change before that is worse.
_IN_ONE_LINE = (
    ("loss", "held_out", "loss", "{:.4f}".format, 1.0),
    ("exact", "held_out", "exact_match", "{:.1%}".format, 1.0),
    ("on disk", "size", "disk_bytes", lambda n: _bytes(n), 1.0),
    ("in memory", "size", "memory_bytes", lambda n: _bytes(n), 1.1),
    ("decode/s", "speed", "decode_tokens_per_s", "{:,.0f}".format, 1.1),
)
_MORE_IS_BETTER = ("exact", "decode/s")


def passport_line(passport: Mapping[str, Any], stage: str) -> str:
    """Return a stage in one line: each figure, in brackets that of the stage it was made from, and "worse" if it is.

    That stage is the one that the settings name under ``of``; else of an adapter and of a full training the base, of a
    merged model the adapter, of all others the merged model, or the base where there is none. Speeds differ by some per
    cent from run to run, so one is called worse from a tenth on, as is the memory; a speed of a stage without a prefill
    was measured in another way, and is compared with nothing.

    Args:
        passport: from :func:`rocm_guide.finetune.passport.read_passport`.
        stage: the name of one that is in it.

    Raises:
        RunError: it has no such stage.

    >>> stages = [{"stage": name, "held_out": {"loss": loss}} for name, loss in (("base", 2.5), ("adapter", 2.75))]
    >>> passport_line({"run": "r", "stages": stages}, "adapter")
    'adapter: loss 2.7500 (base 2.5000, worse); rocm-guide passport r shows all stages'
    """
    stages = {s["stage"]: s for s in passport["stages"]}
    if stage not in stages:
        raise RunError(
            f"{shown(passport['run'])}: has no stage {shown(stage)}; it has {', '.join(stages) or 'none yet'}"
        )
    now, before = stages[stage], _made_from(stages, stage)
    alike = all(s.get("speed", {}).get("prefill_tokens_per_s") for s in (now, before))
    alike &= now.get("hardware") == before.get("hardware")
    told = []
    for name, group, key, form, slack in _IN_ONE_LINE:
        value, earlier = (s.get(group, {}).get(key) for s in (now, before))
        if value is None:
            continue
        text = f"{name} {form(value)}"
        # The files of an adapter are no model; a whole one is not compared with them.
        fair = alike if group == "speed" else key != "disk_bytes" or before.get("stage") != "adapter"
        if earlier is not None and fair:
            worse = value * slack < earlier if name in _MORE_IS_BETTER else value > earlier * slack
            worse &= form(value) != form(earlier)  # not a digit that nobody sees
            text += f" ({before['stage']} {form(earlier)}{', worse' if worse else ''})"
        told.append(text)
    return f"{shown(stage, 24)}: {', '.join(told)}; rocm-guide passport {shown(passport['run'], 80)} shows all stages"


def _made_from(stages: Mapping[str, Mapping[str, Any]], stage: str) -> Mapping[str, Any]:
    """Return the stage that another one was made from; an empty one if it is not in the passport."""
    usual = {"base": (), "adapter": ("base",), "full": ("base",), "merged": ("adapter",)}
    named = stages[stage].get("settings", {}).get("of")
    names = (named, *usual.get(stage, ("merged", "base")))
    return next((stages[name] for name in names if name in stages and name != stage), {})


def _sayings(stages: list[Mapping[str, Any]]) -> list[str]:
    """Return what the first and the last stage with generations answer to the same prompts."""
    told = [s for s in stages if s.get("generations")]
    if not told:
        return []
    lines, pair = [], [told[0]] if len(told) == 1 else [told[0], told[-1]]
    width = max(len(shown(s["stage"], 24)) for s in pair)
    for said in pair[0]["generations"]:
        lines.append(f"> {shown(said['prompt'], 100)}")
        for stage in pair:
            text = next((g["text"] for g in stage["generations"] if g["prompt"] == said["prompt"]), None)
            if text is not None:
                lines.append(f"  {shown(stage['stage'], 24):{width}}  {shown(text, 100)}")
    return lines
