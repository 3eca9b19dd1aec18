# SPDX-License-Identifier: MIT
"""The notebooks in a learner's home: fresh ones come, changed ones stay.

A list in the folder says what was handed out. A notebook that still is as it was handed out is replaced by the course's
new version; one that the learner has changed stays, and the course's new version lies beside it under another name. So
a learner who wants a fresh copy renames or deletes a notebook and starts the server again.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rocm_guide.common.base import GuideError, read_regular, shown, write_bytes, write_text

__all__ = ["HandedOut", "hand_out"]

LIST = ".handed_out.json"
_LARGEST = 64_000_000
_SKIPPED = {".ipynb_checkpoints", "__pycache__", "runs"}


@dataclass
class HandedOut:
    """The result of :func:`hand_out`, by the names of the files;
    ``problem`` is the one line about what it could not do.
    """

    new: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    beside: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    problem: str = ""

    def __str__(self) -> str:
        """Return one line that says what happened.

        >>> print(HandedOut(new=["01_lora.ipynb"], beside=["02_b.course.ipynb"], kept=["02_b.ipynb", "03_c.ipynb"]))
        notebooks: 1 new; 2 of yours kept as you left them; the course's new version lies beside: 02_b.course.ipynb
        """
        parts = [f"{len(self.new)} new"] if self.new else []
        parts += [f"{len(self.updated)} updated"] if self.updated else []
        parts += [f"{len(self.kept)} of yours kept as you left them"] if self.kept else []
        if self.beside:
            parts.append(f"the course's new version lies beside: {', '.join(self.beside[:5])}")
        parts += [self.problem] if self.problem else []
        return f"notebooks: {'; '.join(parts) or 'all as handed out'}"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    """Yield the regular files below a folder, without what a running notebook leaves there; links are not followed."""
    for path in sorted(folder.iterdir()):
        if path.is_symlink() or path.name in _SKIPPED:
            continue
        if path.is_dir():
            yield from _files(path)
        elif path.is_file():
            yield path


def _known(target: Path) -> dict[str, str]:
    """Return name -> digest of what was handed out;
    empty when there is no list that can be read: then everything is kept.
    """
    with contextlib.suppress(OSError, ValueError, AttributeError, RecursionError):
        data = json.loads(read_regular(target / LIST, 10_000_000))
        return {str(k): str(v) for k, v in data.items()}
    return {}


def _place_beside(path: Path, digest: str) -> Path | None:
    """Return a free name beside ``path`` for the course's version; None when that version lies there already."""
    for n in range(1, 1000):
        name = path.with_name(f"{path.stem}.course{'' if n == 1 else n}{path.suffix}")
        if not os.path.lexists(name):
            return name
        with contextlib.suppress(OSError):
            if _digest(read_regular(name, _LARGEST)) == digest:
                return None
    raise GuideError(f"{shown(path)}: a thousand versions lie beside it; move some of them away")


def hand_out(course: Path, target: Path) -> HandedOut:
    """Bring the files of ``course`` into ``target`` without losing a byte of what a learner wrote there.

    Runs as the learner, so that no link in a home leads it anywhere that the learner could not go. A full disk stops
    nothing: what is there stays, and the line says so.

    Args:
        course: the folder of notebooks that is handed out.
        target: the folder in the learner's home; made if it is not there.

    Raises:
        GuideError: ``course`` is no folder that can be read.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as d:
    ...     course, home = Path(d) / "course", Path(d) / "home"
    ...     course.mkdir()
    ...     _ = (course / "01_a.ipynb").write_text("first")
    ...     print(hand_out(course, home))
    ...     _ = (home / "01_a.ipynb").write_text("my answer")
    ...     _ = (course / "01_a.ipynb").write_text("second")
    ...     print(hand_out(course, home))
    ...     (home / "01_a.ipynb").read_text()
    notebooks: 1 new
    notebooks: 1 of yours kept as you left them; the course's new version lies beside: 01_a.course.ipynb
    'my answer'
    """
    done = HandedOut()
    try:
        sources = list(_files(course))
    except OSError as e:
        raise GuideError(f"{shown(course)}: cannot be read ({e.strerror}); name the course's notebooks folder") from e
    known = _known(target)
    try:
        for source in sources:
            name = str(source.relative_to(course))
            data = read_regular(source, _LARGEST)
            known[name] = _hand_out_one(target / name, data, known.get(name, ""), name, done)
    except (OSError, GuideError) as e:
        done.problem = _problem(e, target)
    try:
        write_text(target / LIST, json.dumps(known, indent=0, sort_keys=True))
    except GuideError as e:
        done.problem = done.problem or _problem(e, target)
    return done


def _hand_out_one(path: Path, data: bytes, before: str, name: str, done: HandedOut) -> str:
    """Hand out one file of the course; return the digest that the list is to hold for it."""
    new = _digest(data)
    if not os.path.lexists(path):
        write_bytes(path, data)
        done.new.append(name)
        return new
    try:
        mine = "a link" if path.is_symlink() else _digest(read_regular(path, _LARGEST))
    except OSError:
        mine = "not ours to read"
    if mine == new:
        return new
    if mine == before:
        write_bytes(path, data)
        done.updated.append(name)
        return new
    done.kept.append(name)
    if before != new and (beside := _place_beside(path, new)) is not None:
        write_bytes(beside, data)
        done.beside.append(str(Path(name).with_name(beside.name)))
    return new


def _problem(error: Exception, target: Path) -> str:
    full = isinstance(error, GuideError) and isinstance(error.__cause__, OSError)
    cause = error.__cause__ if full else error
    if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full: nothing of yours was changed, but the rest was not handed out; delete what you can"
    return f"not everything was handed out to {shown(target)}: {shown(cause)}"
