# SPDX-License-Identifier: MIT
"""Checkpoints that a killed process cannot spoil: written whole or not at all, and checked before they are used."""

from __future__ import annotations

import hashlib
import io
import re
from pathlib import Path
from typing import Any

from rocm_guide.common.base import GuideError, check_private, open_regular, write_bytes

__all__ = []

_NAME = re.compile(r"step_(\d{8})-([0-9a-f]{16})\.pt")


def save_checkpoint(folder: str | Path, step: int, state: dict[str, Any], *, keep: int = 2) -> Path:
    """Write ``state`` as the checkpoint of ``step`` and drop all but the ``keep`` newest; returns its path.

    The file's name carries the step and a digest of the content. It appears under that name only when every byte is on
    the disk, so whatever is found under such a name is complete.

    Args:
        state: tensors, numbers, strings, lists and dictionaries of these: what can be loaded without executing code.

    Raises:
        GuideError: the folder cannot be written, or keep is less than 1.

    >>> import tempfile, torch
    >>> with tempfile.TemporaryDirectory() as d:
    ...     for step in (10, 20, 30):
    ...         _ = save_checkpoint(d, step, {"w": torch.ones(2) * step})
    ...     [p.name[:13] for p in sorted(Path(d).iterdir())], load_checkpoint(newest_checkpoint(d))["w"]
    (['step_00000020', 'step_00000030'], tensor([30., 30.]))
    """
    import torch

    if keep < 1:
        raise GuideError(f"keep={keep}: keep at least one checkpoint to go on from")
    folder = Path(folder)
    buffer = io.BytesIO()
    torch.save(state, buffer)
    data = buffer.getvalue()
    path = write_bytes(folder / f"step_{step:08d}-{hashlib.sha256(data).hexdigest()[:16]}.pt", data)
    by_age = sorted((p for p in folder.glob("step_*.pt") if _NAME.fullmatch(p.name)), key=_step, reverse=True)
    for old in by_age[keep:]:
        old.unlink(missing_ok=True)
    return path


def newest_checkpoint(folder: str | Path) -> Path | None:
    """Return the checkpoint with the highest step whose content is what its name promises; None if there is none.

    A file that a disk has damaged is passed over, and the one before it is taken.

    >>> newest_checkpoint("no/such/folder") is None
    True
    """
    found = [p for p in Path(folder).glob("step_*.pt") if _NAME.fullmatch(p.name)]
    for path in sorted(found, key=_step, reverse=True):
        try:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
        except FileNotFoundError:  # a run that goes on beside us has replaced it by a newer one
            continue
        if digest.startswith(path.stem.partition("-")[2]):
            return path
    return None


def load_checkpoint(path: str | Path) -> dict[str, Any]:
    """Return what :func:`save_checkpoint` was given, with every tensor on the CPU.

    Raises:
        GuideError: the file is not one of these checkpoints, is damaged, or could have been written by another user.
    """
    import torch

    try:
        with open_regular(check_private(path)) as f:
            state = torch.load(f, map_location="cpu", weights_only=True)
    except GuideError:
        raise
    except Exception as e:  # of a damaged file, torch and pickle raise whatever the step that fails happens to raise
        reason = getattr(e, "strerror", None) or type(e).__name__
        raise GuideError(f"{path}: cannot be read as a checkpoint ({reason}); it is damaged, take another one") from e
    if not isinstance(state, dict):
        raise GuideError(f"{path}: holds {type(state).__name__}, not what save_checkpoint writes; take another one")
    return state


def _step(path: Path) -> int:
    match = _NAME.fullmatch(path.name)
    return int(match[1]) if match else -1
