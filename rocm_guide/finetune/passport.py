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

__all__ = ["RunError", "add_stage", "read_passport"]

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
        run: its folder.
        stage: "base", "adapter", "merged", "gptq-4bit", ….
        notebook: its number.
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
