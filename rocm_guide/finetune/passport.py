# SPDX-License-Identifier: MIT
"""``passport.json``: one small file that says what a model is, what it learnt, its size and its speed.

Version 1 of the schema::

    {"schema": 1, "run": "my-model", "model": "tiny", "dataset": "tiny", "seed": 0,
     "stages": [{"stage": "adapter", "notebook": "02", "date": "2026-11-22", "folder": "adapter",
                 "held_out": {"rows": 216, "loss": 0.02, "perplexity": 1.02, "exact_match": 0.97},
                 "size": {"disk_bytes": 130592, "memory_bytes": 6573312},
                 "speed": {"training_tokens_per_s": 3027, "prefill_tokens_per_s": …, "decode_tokens_per_s": …},
                 "generations": [{"prompt": "…", "text": "…"}], "settings": {…},
                 "hardware": "…", "versions": {"torch": "…"}}]}

A figure that was not measured is null. A stage that is measured again replaces its older entry. A key that is none of
these, one that stands twice, or a figure that cannot be is named: a file that somebody edited is not believed.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import math
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rocm_guide.common.base import DoubledKey, GuideError, each_once, read_regular, shown, write_text

__all__ = ["RunError", "add_stage", "passport_line", "passport_text", "read_passport"]

PASSPORT = "passport.json"
SCHEMA = 1
_LIBRARIES = ("torch", "transformers", "trl", "peft", "gptqmodel", "bitsandbytes")
#: Groups of figures in a stage, and the figures of each.
FIGURES = {
    "held_out": ("rows", "loss", "perplexity", "exact_match"),
    "size": ("disk_bytes", "memory_bytes"),
    "speed": ("training_tokens_per_s", "prefill_tokens_per_s", "decode_tokens_per_s"),
}

#: Everything else that a passport and a stage may hold.
_OUTER = {"schema", "run", "model", "dataset", "seed", "stages"}
_STAGE = {*FIGURES, "stage", "notebook", "date", "folder", "generations", "settings", "hardware", "versions"}


class RunError(GuideError):
    """A run folder that is not what was expected, or cannot be written."""


def new_passport(name: str, model: str, dataset: str, seed: int = 0) -> dict[str, Any]:
    """Return a passport without stages.

    >>> new_passport("my-model", "tiny", "tiny")["stages"]
    []
    """
    return {"schema": SCHEMA, "run": name, "model": model, "dataset": dataset, "seed": seed, "stages": []}


def write_passport(folder: Path, passport: Mapping[str, Any]) -> None:
    """Write the file whole or not at all."""
    write_text(folder / PASSPORT, json.dumps(passport, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_passport(folder: str | Path) -> dict[str, Any]:
    """Read and check the passport of a run.

    Raises:
        RunError: no such folder or file, not JSON, another schema, or entries of another kind.
    """
    path = Path(folder).expanduser()
    file = path / PASSPORT if path.is_dir() else path
    label = shown(folder)
    if not file.is_file():
        fix = "name the folder of a run, for example runs/my-model (notebook 02 makes it)"
        raise RunError(f"{label}: no {PASSPORT} there; {fix}")
    try:
        found = json.loads(read_regular(file, 20_000_000), object_pairs_hook=each_once)
    except DoubledKey as e:
        raise RunError(f"{label}/{PASSPORT}: {e}") from e
    except (OSError, ValueError, RecursionError) as e:
        reason = (e.strerror or str(e)) if isinstance(e, OSError) else "not valid JSON"
        raise RunError(f"{label}/{PASSPORT}: cannot be read ({reason}); move the folder away and run again") from e
    if not isinstance(found, dict) or not isinstance(found.get("schema"), int):
        raise RunError(f"{label}/{PASSPORT}: is no passport of this course; give RUN the name of a new folder")
    if found["schema"] != SCHEMA:
        raise RunError(
            f"{label}/{PASSPORT}: has schema {found['schema']}, this version reads {SCHEMA}; update rocm-guide"
        )
    texts = all(isinstance(found.get(k), str) for k in ("run", "model", "dataset"))
    stages = found.get("stages")
    if not texts or not isinstance(stages, list) or not all(_is_stage(s) for s in stages):
        raise RunError(f"{label}/{PASSPORT}: entries are missing or of another kind; move the folder away, run again")
    if wrong := _unlikely(found):
        raise RunError(f"{label}/{PASSPORT}: {wrong}; mend the file, or move the folder away and run again")
    found.setdefault("seed", 0)
    return found


def _unlikely(passport: Mapping[str, Any]) -> str:
    """Return what is wrong with the entries of a passport whose kinds are right; "" when nothing is."""
    if unknown := sorted(set(passport) - _OUTER):
        return f"{shown(repr(unknown[0]), 60)} is no entry of a passport"
    names = [stage["stage"] for stage in passport["stages"]]
    if twice := [name for name in names if names.count(name) > 1]:
        return f"stage {shown(twice[0], 60)} stands twice"
    for stage in passport["stages"]:
        where = f"stage {shown(stage['stage'], 60)}"
        if unknown := sorted(set(stage) - _STAGE):
            return f"{where}: {shown(repr(unknown[0]), 60)} is no entry of a stage"
        for group, known in FIGURES.items():
            figures = stage.get(group, {})
            if unknown := sorted(set(figures) - set(known)):
                return f"{where}: {shown(repr(unknown[0]), 60)} is no figure of {group}"
            for name, value in figures.items():
                most = 1.0 if name == "exact_match" else math.inf
                if value is not None and not 0 <= value <= most:
                    return f"{where}: {name}={value} cannot be"
        held = stage.get("held_out", {})
        loss, said = held.get("loss"), held.get("perplexity")
        if loss is not None and said is not None and not math.isclose(said, math.exp(min(loss, 80)), rel_tol=0.01):
            return f"{where}: perplexity={said:g} is not exp(loss), {math.exp(min(loss, 80)):g}"
    return ""


def _is_stage(stage: Any) -> bool:
    """Return whether a stage has a name, and its groups hold numbers or null."""
    if not isinstance(stage, dict) or not isinstance(stage.get("stage"), str):
        return False
    groups = [stage.get(group, {}) for group in FIGURES]
    if not all(isinstance(g, dict) for g in groups) or not isinstance(stage.get("settings", {}), dict):
        return False
    values = [g.get(name) for g, names in zip(groups, FIGURES.values(), strict=True) for name in names]
    said = stage.get("generations", [])
    texts = isinstance(said, list) and all(
        isinstance(g, dict) and all(isinstance(g.get(k), str) for k in ("prompt", "text")) for g in said
    )
    return texts and all(v is None or (isinstance(v, int | float) and not isinstance(v, bool)) for v in values)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / ".passport.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def add_stage(run: str | Path, stage: str, notebook: str = "", **entries: Any) -> dict[str, Any]:
    """Put a stage into the passport, in the course's order; one of the same name is replaced.

    Two notebooks may do so at the same time.

    Args:
        stage: "base", "adapter", "merged", "gptq-4bit", ….
        entries: ``held_out``, ``size``, ``speed``, ``generations``, ``settings``, ``hardware``, ``folder``.

    Raises:
        RunError: no passport there, or an entry of the wrong kind.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as d:
    ...     write_passport(Path(d), new_passport("r", "tiny", "tiny"))
    ...     _ = add_stage(d, "base", "02", held_out={"loss": 2.5})
    ...     read_passport(d)["stages"][0]["held_out"]["loss"]
    2.5
    """
    path = Path(run)
    entry: dict[str, Any] = {"stage": stage, "notebook": notebook, "date": datetime.date.today().isoformat()}
    entry |= {k: _plain(v) for k, v in entries.items()}
    entry.setdefault("versions", _versions())
    if not _is_stage(entry):
        raise RunError(f"stage {stage}: its figures must be numbers, its generations a list of prompt and text")
    with _locked(path):
        passport = read_passport(path)
        names = [s["stage"] for s in passport["stages"]]
        if stage in names:
            passport["stages"][names.index(stage)] = entry
        else:
            passport["stages"].append(entry)
        passport["stages"].sort(key=_place)
        write_passport(path, passport)
    return entry


def _place(stage: Mapping[str, Any]) -> tuple[int, str]:
    """Return the place of a stage: the course's order, whichever notebook ran first."""
    first = ("base", "adapter", "full")
    return first.index(stage["stage"]) if stage["stage"] in first else len(first), str(stage["notebook"])


def _plain(value: Any) -> Any:
    """Return a value that JSON can hold: a number that is not finite becomes null."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int | bool) else str(value)


def _versions() -> dict[str, str]:
    found = {}
    for name in _LIBRARIES:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


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
