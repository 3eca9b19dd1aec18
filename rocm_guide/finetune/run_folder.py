# SPDX-License-Identifier: MIT
"""The folder of a run: what lies in it, written whole or not at all, and never mixed up with another model."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rocm_guide.common.base import GuideError, shown
from rocm_guide.finetune.passport import PASSPORT, RunError, new_passport, read_passport, write_passport

__all__ = ["RunError", "RunFolder", "open_run", "runs_folder"]

_FULL = re.compile(r"No space left on device|Disk quota exceeded|File too large|os error (28|122|27)")


@dataclass(frozen=True)
class RunFolder:
    """A folder below ``runs/`` and the model that it belongs to.

    Attributes:
        folder: where it is.
        label: how it is called in print, for example ``runs/my-model``.
        model, dataset: what it was started from, as ``MODEL`` and ``DATASET`` of the notebooks.
        seed: of the tiny model, and of random weights.
    """

    folder: Path
    label: str
    model: str
    dataset: str
    seed: int = 0
    _owner: Any = field(default=None, repr=False, compare=False)  # a temporary folder lives as long as the run does

    def path(self, stage: str) -> Path:
        """Return the folder of a stage, for example ``adapter``, ``merged`` or ``gptq-4bit``;
        it may not be there yet.
        """
        if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", stage):
            raise RunError(f"stage {stage!r}: give a name of small letters, digits and -, for example 'gptq-4bit'")
        return self.folder / stage

    def has(self, stage: str) -> bool:
        """Return whether a stage has been kept. A folder gets its name only when everything in it has been written."""
        return self.path(stage).is_dir()

    @contextlib.contextmanager
    def lock(self, stage: str) -> Iterator[None]:
        """Let one notebook at a time make a stage: a second one waits for the first."""
        with (self.folder / f".{self.path(stage).name}.lock").open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def keep(self, stage: str) -> Iterator[Path]:
        """Give an empty folder to write to in a ``with`` block, which then becomes the stage, whole or not at all.

        An earlier folder of this stage is replaced only when the new one is complete.

        Raises:
            RunError: the disk is full, or the folder cannot be written; nothing half-written is left.
        """
        target = self.path(stage)
        part = target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
        old = part.with_suffix(".old")
        try:
            part.mkdir()
            yield part
            if target.exists():
                target.rename(old)
            part.rename(target)
        except Exception as error:
            if old.exists() and not target.exists():
                old.rename(target)
            if full := _FULL.search(f"{type(error).__name__} {error}"):
                fix = "free some space, or set ROCM_GUIDE_RUNS to a folder on another disk"
                raise RunError(f"{self.label}/{stage}: {full[0]}; nothing of it was kept; {fix}") from error
            if isinstance(error, OSError) and error.filename and str(part) in str(error.filename):
                fix = "choose another RUN, or a folder that you can write to"
                raise RunError(f"{self.label}/{stage}: cannot be written ({error.strerror}); {fix}") from error
            raise
        finally:
            shutil.rmtree(part, ignore_errors=True)
            shutil.rmtree(old, ignore_errors=True)

    def passport(self) -> dict[str, Any]:
        """Return what ``passport.json`` of this run says."""
        return read_passport(self.folder)

    def summary(self) -> str:
        """Return one line: what an earlier notebook has left here.

        >>> open_run("", model="tiny").summary()
        'a temporary folder, which goes away with this process: nothing kept yet'
        """
        kept = sorted(p.name for p in self.folder.iterdir() if p.is_dir() and not p.name.startswith("."))
        label = f"{self.label}, which goes away with this process" if self._owner else self.label
        return f"{label}: {', '.join(kept) + ' kept by an earlier run' if kept else 'nothing kept yet'}"


def runs_folder() -> Path:
    """Return where runs are kept: ``ROCM_GUIDE_RUNS``, else ``runs`` beside the folder of the notebooks,
    else ``./runs``.
    """
    if named := os.environ.get("ROCM_GUIDE_RUNS"):
        return Path(named).expanduser()
    here = Path.cwd()
    return (here.parent if (here / "00_start_here.ipynb").exists() else here) / "runs"


def open_run(name: str, *, model: str = "tiny", dataset: str = "tiny", seed: int = 0) -> RunFolder:
    """Return the folder of a run, made unless it is there.

    Args:
        name: ``my-model`` is a folder in ``runs/``; a path is taken as it is; empty: a temporary folder, which goes
            away with the process.
        model, dataset: what the run is about. A folder of another model is refused: nothing is overwritten.
        seed: of the tiny model, and of random weights.

    Raises:
        RunError: the folder belongs to another model, holds something else, or cannot be written.

    >>> run = open_run("", model="tiny")
    >>> run.has("adapter"), run.passport()["model"]
    (False, 'tiny')
    """
    if not name.strip():
        owner = tempfile.TemporaryDirectory(prefix="rocm-guide-run-", ignore_cleanup_errors=True)
        run = RunFolder(Path(owner.name), "a temporary folder", model, dataset, seed, owner)
        write_passport(run.folder, new_passport("temporary", model, dataset, seed))
        return run
    bare = "/" not in name and os.sep not in name and name not in (".", "..")
    folder = (runs_folder() / name if bare else Path(name).expanduser()).absolute()
    run = RunFolder(folder, f"runs/{name}" if bare else shown(name), model, dataset, seed)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with run.lock("passport"):
            _claim(run)
    except OSError as e:
        raise RunError(f"{run.label}: cannot be made ({e.strerror}); choose another RUN") from e
    return run


def _claim(run: RunFolder) -> None:
    """Write the passport of a new run, or make sure that the one there is of the same model."""
    if not (run.folder / PASSPORT).exists():
        if any(not p.name.startswith(".") for p in run.folder.iterdir()):
            raise RunError(f"{run.label}: holds other files and no {PASSPORT}; give RUN the name of a new folder")
        write_passport(run.folder, new_passport(run.folder.name, run.model, run.dataset, run.seed))
        return
    found = read_passport(run.folder)
    for what, wanted in (("model", run.model), ("dataset", run.dataset), ("seed", run.seed)):
        if found[what] != wanted:
            fix = f"give RUN another name, or set {what.upper()} to {shown(found[what])}"
            raise RunError(f"{run.label}: was made with {what} {shown(found[what])}, not {shown(wanted)}; {fix}")


def check_weights(file: Path) -> None:
    """Make sure that a safetensors file is complete: its header says where the last tensor ends.

    Raises:
        RunError: it is cut off, or is none.
    """
    try:
        size = file.stat().st_size
        with file.open("rb") as f:
            length = int.from_bytes(f.read(8), "little")
            header = json.loads(f.read(length)) if 0 < length <= min(size, 100_000_000) else None
        ends = [int(t["data_offsets"][1]) for n, t in (header or {}).items() if n != "__metadata__"]
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError) as e:
        raise RunError(f"{shown(file)}: cannot be read as weights; delete its folder and make it again") from e
    if not ends or 8 + length + max(ends) != size:
        raise RunError(f"{shown(file)}: half-written ({size:,} bytes); delete its folder and make it again")


def check_complete(folder: Path, label: str) -> None:
    """Make sure that a kept model or adapter can be read: weights that are complete, and a configuration.

    Raises:
        RunError: something is missing or cut off; the message names it.
    """
    weights = list(folder.glob("*.safetensors"))
    if not weights or not ((folder / "config.json").exists() or (folder / "adapter_config.json").exists()):
        raise RunError(f"{label}: half-written (no configuration or no weights); delete it, and it is made again")
    for file in weights:
        try:
            check_weights(file)
        except GuideError as e:
            raise RunError(f"{label}: {file.name} is half-written; delete {label}, and it is made again") from e
